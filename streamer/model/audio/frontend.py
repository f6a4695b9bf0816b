"""Hears one turn once for all its models. In: samples, mono 16 kHz float32. Out: windows, maximum,
speech or not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import Samples
from streamer.core.audio.trim import Trim
from streamer.model.audio.mel import MelWindow, StreamingLogMel
from streamer.model.audio.vad import FRAME_SAMPLES, Frame, VoiceActivity

# The network costs 1.5 times as much in calls of 6 frames, and 3 times in calls of one (vad.py).
JUDGED_SAMPLES = 16 * FRAME_SAMPLES


class TurnVoice:
    """Where speech is in one turn. Samples wait until they are worth a call of the network, or
    until somebody asks."""

    def __init__(self) -> None:
        self._voice = VoiceActivity()
        self._waiting: list[NDArray[np.float32]] = []
        self._num_waiting = 0

    def push(self, samples: NDArray[np.float32]) -> None:
        self._waiting.append(samples)
        self._num_waiting += len(samples)
        if self._num_waiting >= JUDGED_SAMPLES:
            self._judge()

    def count(self, frames: Sequence[Frame]) -> None:
        """Take what is judged already, `start_sample` of this turn, in place of samples."""
        for frame in frames:
            self._voice.count(frame)

    @property
    def has_speech(self) -> bool:
        if not self._voice.has_speech:
            self._judge()
        return self._voice.has_speech

    def last_speech_sample(self) -> int | None:
        """Where speech ended last, in samples of this turn; None where there is none."""
        self._judge()
        return self._voice.last_speech_sample

    def _judge(self) -> None:
        if self._waiting:
            self._voice.push(np.concatenate(self._waiting))
        self._waiting = []
        self._num_waiting = 0


class Ear:
    """Log-mel and voice activity of one turn; its state is at most two windows.

    num_samples: the turn's own; voice activity counts in them. The log-mel is of what lies between
    its first and its last sound (core/audio/trim.py).
    """

    def __init__(self) -> None:
        self._mel = StreamingLogMel()
        self._trim = Trim()
        self.voice = TurnVoice()
        self.num_samples = 0

    @property
    def num_heard(self) -> int:
        """Samples in the log-mel so far."""
        return self._mel.num_samples

    @property
    def maximum(self) -> float:
        """The running maximum of the log-mel, after `finish` the clip's own."""
        return self._mel.maximum

    def push(
        self, samples: NDArray[np.float32], frames: Sequence[Frame] | None = None
    ) -> tuple[list[MelWindow], Samples]:
        """Take samples [n]; return the windows that are complete now, and the samples that are
        heard now. frames: what voice activity made of the turn so far, where it has heard these
        samples already."""
        self.num_samples += len(samples)
        if frames is None:
            self.voice.push(samples)
        else:
            self.voice.count(frames)
        heard = self._trim.push(samples)
        return self._mel.push(heard), heard

    def provisional(self) -> MelWindow | None:
        """The last window as if the turn ended now; changes nothing."""
        return self._mel.provisional()

    def finish(self) -> tuple[list[MelWindow], Samples]:
        """End the turn; return what is left of it: at most one window, and the samples that only
        its end lets be heard."""
        heard = self._trim.finish()
        return [*self._mel.push(heard), *self._mel.finish()], heard

"""Hears one turn once for all its models. In: samples, mono 16 kHz float32. Out: windows, maximum,
speech or not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import Samples
from streamer.core.audio.trim import Trim
from streamer.model.audio.mel import MelWindow, StreamingLogMel
from streamer.model.audio.turn_voice import TurnVoice
from streamer.model.audio.vad import Frame


class Ear:
    """Log-mel and voice activity of one turn; its state is at most two windows.

    num_samples: the turn's own; voice activity counts in them. The log-mel is of what lies between
    its first and its last sound (core/audio/trim.py).
    """

    def __init__(self, voice: TurnVoice | None = None) -> None:
        """voice: hears the turn already, for its measures."""
        self._mel = StreamingLogMel()
        self._trim = Trim()
        self.voice = voice or TurnVoice()
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

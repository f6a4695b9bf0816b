"""Hears one turn once for all its models. In: samples, mono 16 kHz float32. Out: windows, maximum,
speech or not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.model.audio.mel import MelWindow, StreamingLogMel
from streamer.model.audio.vad import VoiceActivity


class Ear:
    """Log-mel and voice activity of one turn; its state is at most one window."""

    def __init__(self) -> None:
        self._mel = StreamingLogMel()
        self._voice = VoiceActivity()

    @property
    def num_samples(self) -> int:
        return self._mel.num_samples

    @property
    def maximum(self) -> float:
        """The running maximum of the log-mel, after `finish` the clip's own."""
        return self._mel.maximum

    @property
    def has_speech(self) -> bool:
        return self._voice.has_speech

    @property
    def last_speech_sample(self) -> int | None:
        """Where speech ended last, in samples of this turn."""
        return self._voice.last_speech_sample

    def push(self, samples: NDArray[np.float32]) -> list[MelWindow]:
        """Take samples [n]; return the windows that are complete now."""
        self._voice.push(samples)
        return self._mel.push(samples)

    def provisional(self) -> MelWindow | None:
        """The last window as if the turn ended now; changes nothing."""
        return self._mel.provisional()

    def finish(self) -> list[MelWindow]:
        """End the turn; return what is left of it, at most one window."""
        return self._mel.finish()

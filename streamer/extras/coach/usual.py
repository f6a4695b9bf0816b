"""Learn how somebody usually speaks, from the frames of their speech.

Only frames are taken whose syllables no longer change. They are held until the baseline is known,
without long silences.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from typing import Any

import numpy as np

from streamer.core.measures.frames import FRAMES_PER_S, PAUSE_FRAMES, Floats, runs, without_gaps
from streamer.core.measures.track import Frames
from streamer.extras.coach.network import STEPS_PER_S, Heard
from streamer.extras.coach.options import Baseline, BaselineError

SETTLED_FRAMES = 60  # this far behind the newest frame nothing changes
LONG_PAUSE_FRAMES = 150  # a longer one is no pause within speech
MIN_SPEECH_S = 5.0
MEASURED = [each.name for each in fields(Baseline)][:5]  # those that are of SpeechMeasures
PRIOR_S = 40  # seconds that the SD of people counts beside a speaker's own
# SDs of a second's mean of loudness, tempo and melody: about those of 45 readers that the network
# did not learn from, 1.3, 0.18 and 0.19 (2026-11). The limits of nudges.py were chosen with them.
SPREADS = (1.3, 0.19, 0.2)


class Seconds:
    """Mean of one value, and the SD of its mean over a second, in constant memory."""

    def __init__(self, spread: float) -> None:
        """spread: the SD of people in general."""
        self._spread = spread
        self._rest = np.zeros((2, 0))  # weight of each step, and weight times value
        self._num = 0
        self._weight = self._sum = self._squares = 0.0

    def add(self, values: Floats, weights: Floats | None = None) -> None:
        """Values [n] of the next steps, and their weights [n]; None: 1 each."""
        weight = np.ones(len(values)) if weights is None else weights.astype(float)
        held = np.concatenate([self._rest, [weight, weight * values]], 1)
        whole = held.shape[1] // STEPS_PER_S * STEPS_PER_S
        count, total = held[:, :whole].reshape(2, -1, STEPS_PER_S).mean(2)
        self._rest = held[:, whole:]
        self._num += len(count)
        self._weight += float(count.sum())
        self._sum += float(total.sum())
        self._squares += float((total**2 / count).sum())

    def found(self) -> tuple[float, float] | None:
        """(mean, SD), None before two seconds. The SD is drawn towards that of people, as if
        PRIOR_S more seconds had been heard."""
        if self._num < 2:
            return None
        own = max(0.0, self._squares - self._sum * self._sum / self._weight)
        variance = (own + PRIOR_S * self._spread**2) / (self._num - 1 + PRIOR_S)
        return self._sum / self._weight, variance**0.5


class Learner:
    """Call `take` for each step; `found` is the baseline so far. speech_s: seconds of speech taken,
    short gaps included."""

    def __init__(self) -> None:
        self.speech_s = 0.0
        self._seconds = [Seconds(spread) for spread in SPREADS]
        self._frames: Frames | None = None
        self._end = 0  # frames of the session that were taken

    def take(self, heard: Heard, frames: Frames, num_pitched: int, first: int) -> None:
        """The new steps, and the frames so far; F0 is known in the first `num_pitched` of them.
        first: number of the first frame in the session."""
        loudness, tempo, melody = self._seconds
        loudness.add(heard.loudness, heard.trust)
        tempo.add(heard.tempo)
        melody.add(heard.melody)
        begin = max(0, self._end - first)
        end = max(begin, num_pitched - SETTLED_FRAMES)
        self._end = first + end
        if end == begin:
            return
        spoken = without_gaps(frames.speech, PAUSE_FRAMES)[begin:end]
        self.speech_s += float(spoken.sum()) / FRAMES_PER_S
        parts: Any = [values[begin:end] for values in frames]
        if self._frames is not None:
            parts = [np.concatenate(both) for both in zip(self._frames, parts, strict=True)]
        self._frames = without_long_pauses(Frames(*parts))

    def found(self) -> Baseline | None:
        """None while there is too little speech, or where the sound is no voice."""
        usual = [each.found() for each in self._seconds]
        if self._frames is None or self.speech_s < MIN_SPEECH_S or None in usual:
            return None
        measures = self._frames.measures()
        values = [getattr(measures, name) for name in MEASURED]
        if None in values:
            return None
        values += [self.speech_s, *(value for pair in usual if pair for value in pair)]
        with suppress(BaselineError):
            return Baseline(*map(float, values))
        return None


def without_long_pauses(frames: Frames) -> Frames:
    """`frames` without silences that are too long for a pause. A silence at the end, which may go
    on, keeps enough frames to be found again."""
    kept = np.ones(len(frames.speech), bool)
    for begin, end in runs(~frames.speech):
        if end - begin > LONG_PAUSE_FRAMES:
            last = LONG_PAUSE_FRAMES + 1 if end == len(kept) else 0
            kept[begin : end - last] = False
    parts: Any = (values[kept] for values in frames)
    return Frames(*parts)

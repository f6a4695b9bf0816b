"""A speaker's baseline, learnt. In: what was said, step by step. Out: a Baseline, when it is
enough.

Only frames are taken whose syllables stay as they are; it holds 8 bytes for each.
"""

from __future__ import annotations

import numpy as np

from streamer.core.measures.frames import (
    FRAMES_PER_S,
    PAUSE_FRAMES,
    Growing,
    active_level,
    pitch_stats,
)
from streamer.core.measures.track import Flags, Frames
from streamer.extras.coach.baseline import LIMITS, Baseline
from streamer.extras.coach.evidence import Seconds
from streamer.extras.coach.voice import Heard

SETTLED_FRAMES = 60  # so far behind what is known nothing changes
LONG_PAUSE_FRAMES = 150  # a longer one is no pause within speech
MIN_SPEECH_S = 5.0
# About the SD of a second's mean of people, of loudness, tempo and melody: 1.3, 0.18 and 0.19 of 45
# readers that the network did not learn from (2026-11). The first is of a second that counts as
# most do, by half: wider than one that counts in full, 0.9. The limits were chosen with it.
SPREADS = (1.3, 0.19, 0.2)


class Learner:
    """`hear` and `take` each step; `found` is the baseline so far."""

    def __init__(self) -> None:
        self._seconds = [Seconds(spread) for spread in SPREADS]
        self._power = Growing()
        self._f0 = Growing()
        self._syllables = 0.0
        self._num_spoken = 0
        self._num_paused = 0  # frames of pauses that speech followed
        self._gap = 0
        self._end = 0  # frames taken, of the session

    @property
    def speech_s(self) -> float:
        """Seconds of speech that were taken."""
        return self._num_spoken / FRAMES_PER_S

    def hear(self, heard: Heard) -> None:
        """What the next steps say."""
        loudness, tempo, melody = self._seconds
        loudness.add(heard.loudness, heard.trust)
        tempo.add(heard.tempo)
        melody.add(heard.melody)

    def take(self, frames: Frames, known: int, first: int) -> None:
        """Of the first `known` frames F0 is there. first: the number of the frames' first one, in
        the session."""
        begin = max(0, self._end - first)
        end = max(begin, known - SETTLED_FRAMES)
        self._end = first + end
        if end == begin:
            return
        filled = without_gaps(frames.speech)[begin:end]
        speech = frames.speech[begin:end]
        added = frames.syllables()
        self._num_spoken += int(filled.sum())
        self._syllables += float(added[begin:end].sum())
        self._power.append(frames.power[begin:end][speech])
        self._f0.append(frames.f0[begin:end][filled])
        for is_spoken in filled.tolist():
            if is_spoken and self._num_spoken and PAUSE_FRAMES <= self._gap <= LONG_PAUSE_FRAMES:
                self._num_paused += self._gap
            self._gap = 0 if is_spoken else self._gap + 1

    def found(self) -> Baseline | None:
        """None while there is too little speech, or what was heard is no voice."""
        f0 = self._f0.values
        voiced = f0[f0 > 0]
        usual = [each.found() for each in self._seconds]
        if self.speech_s < MIN_SPEECH_S or len(voiced) < FRAMES_PER_S or None in usual:
            return None
        power = self._power.values
        pitch = pitch_stats(voiced)
        values = [
            self._syllables / self.speech_s,
            pitch.median_hz,
            pitch.sd_semitones,
            float(active_level(power, np.ones(len(power), bool))[0]),
            self._num_paused / (self._num_spoken + self._num_paused),
            self.speech_s,
            *(value for pair in usual if pair for value in pair),
        ]
        limits = LIMITS.values()
        within = all(a <= value <= b for value, (a, b) in zip(values, limits, strict=True))
        return Baseline(*values) if within else None


def without_gaps(speech: Flags) -> Flags:
    """Speech with the gaps in it that are too short for a pause."""
    edges = np.flatnonzero(np.diff(speech.astype(np.int8), prepend=0, append=0))
    found = speech.copy()
    for end, begin in zip(edges[1::2], edges[2::2], strict=False):
        if begin - end < PAUSE_FRAMES:
            found[end:begin] = True
    return found

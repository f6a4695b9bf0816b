"""A speaker's baseline, learnt. In: what was said, step by step. Out: a Baseline, when it is
enough.

Only frames are taken whose syllables stay as they are; it holds 12 bytes for each.
"""

from __future__ import annotations

import numpy as np

from streamer.core.coach.baseline import LIMITS, Baseline
from streamer.core.coach.spoken import Spoken
from streamer.core.measures.frames import FRAMES_PER_S, PAUSE_FRAMES, active_level
from streamer.core.measures.nuclei import MISSED
from streamer.core.measures.pitch import in_range, pitch_stats
from streamer.core.measures.turn_track import Growing

SETTLED_FRAMES = 60  # so far behind what is known a peak stays a peak
LONG_PAUSE_FRAMES = 150  # a longer one is no pause within speech
MIN_SPEECH_S = 5.0


class Learner:
    """`take` each step's frames; `found` is the baseline so far."""

    def __init__(self) -> None:
        self._power = Growing()
        self._f0 = Growing()
        self._num_peaks = 0
        self._num_spoken = 0
        self._num_paused = 0  # frames of pauses that speech followed
        self._gap = 0
        self._end = 0  # frames taken, of the session

    @property
    def speech_s(self) -> float:
        """Seconds of speech that were taken."""
        return self._num_spoken / FRAMES_PER_S

    def take(self, spoken: Spoken, first: int) -> None:
        """first: the number of the frames' first one, in the session."""
        begin = max(0, self._end - first)
        end = max(begin, spoken.known - SETTLED_FRAMES)
        self._end = first + end
        filled = spoken.filled[begin:end]
        speech = spoken.speech[begin:end]
        self._num_spoken += int(filled.sum())
        self._num_peaks += int(((spoken.peaks >= begin) & (spoken.peaks < end)).sum())
        self._power.append(spoken.power[begin:end][speech])
        self._f0.append(spoken.f0[begin:end][filled])
        for is_spoken in filled.tolist():
            if is_spoken and self._num_spoken and PAUSE_FRAMES <= self._gap <= LONG_PAUSE_FRAMES:
                self._num_paused += self._gap
            self._gap = 0 if is_spoken else self._gap + 1

    def found(self) -> Baseline | None:
        """None while there is too little speech, or what was heard is no voice."""
        f0 = self._f0.values
        voiced = in_range(f0[f0 > 0])
        if self.speech_s < MIN_SPEECH_S or len(voiced) < FRAMES_PER_S:
            return None
        power = self._power.values
        pitch = pitch_stats(voiced)
        values = {
            "rate_syllables_per_s": MISSED * self._num_peaks / self.speech_s,
            "pitch_median_hz": pitch.median_hz,
            "pitch_sd_semitones": pitch.sd_semitones,
            "level_dbfs": float(active_level(power, np.ones(len(power), bool))[0]),
            "pause_share": self._num_paused / (self._num_spoken + self._num_paused),
            "speech_s": self.speech_s,
        }
        within = all(low <= values[name] <= high for name, (low, high) in LIMITS.items())
        return Baseline(**values) if within else None

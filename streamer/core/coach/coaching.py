"""One session's coach. In: the frames of the session's sound, in steps of 200 ms. Out: what it
hears, the baseline, and Nudges.

It knows nothing of turns: a silence between two of them is a silence. It holds 40 s of frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.coach.baseline import Baseline
from streamer.core.coach.coach import Coach
from streamer.core.coach.learner import Learner
from streamer.core.coach.nudger import (
    FLAT_WINDOWS_S,
    LEVEL_WINDOWS_S,
    RATE_WINDOWS_S,
    Now,
    Nudge,
    Nudger,
)
from streamer.core.coach.spoken import Spoken, last_gap
from streamer.core.measures.frames import FRAMES_PER_S, HOP_SAMPLES, decibel
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.core.measures.turn_track import UNIT_SAMPLES, Frames, TurnTrack

STEP_SAMPLES = SAMPLE_RATE_HZ // 5
LOOK_S = 16.0  # rate and movement are looked for so far back
SHOWN_S = 7.0
MAX_FRAMES = 40 * FRAMES_PER_S
FORGOTTEN_UNITS = 125  # 20 s
GAP_FRAMES = 25  # a pause that lets one breathe
POINT_FRAMES = 5  # of the curve: one for 50 ms


@dataclass(frozen=True, slots=True)
class CoachNews:
    """What the coach hears at t_s of the session, 5 a second. last: of its last 7 s. learnt_s:
    seconds of speech that a baseline was learnt from so far. The curve: one point for each 50 ms
    from curve_s on; pitch in Hz or None where unvoiced, level in dBFS."""

    t_s: float
    last: SpeechMeasures
    learnt_s: float
    curve_s: float
    pitch_hz: tuple[float | None, ...]
    level_dbfs: tuple[float, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain types, rounded."""
        return {
            "t_s": round(self.t_s, 3),
            "last": self.last.as_json(),
            "learnt_s": round(self.learnt_s, 2),
            "curve_s": round(self.curve_s, 3),
            "pitch_hz": [None if hz is None else round(hz, 1) for hz in self.pitch_hz],
            "level_dbfs": [round(level, 1) for level in self.level_dbfs],
        }


@dataclass(frozen=True, slots=True)
class BaselineKnown:
    """What the coach measures against from t_s on: learnt, or given."""

    t_s: float
    baseline: Baseline


CoachEvent = Nudge | BaselineKnown | CoachNews


class Coaching:
    """Fill `track` with a step's frames, then `step`."""

    def __init__(self, coach: Coach, pitch_hop: int) -> None:
        self.track = TurnTrack(pitch_hop)
        self.baseline = coach.baseline
        self._coach = coach
        self._learner = Learner()
        self._nudger = Nudger(coach)
        self._first = 0  # number of the track's first frame in the session
        self._curve = 0  # frames of the session whose points were told
        self._last_speech: int | None = None  # frame of the session
        self._run_from = 0  # frame of the session, behind the last pause
        self._num_steps = 0

    def step(self) -> list[CoachEvent]:
        """What 200 ms more bring."""
        self._num_steps += 1
        t_s = self._num_steps * STEP_SAMPLES / SAMPLE_RATE_HZ
        self._forget()
        frames = self.track.frames()
        recent = frames.last(LOOK_S)
        first = self._first + len(frames.f0) - len(recent.f0)
        known = max(0, self._first + self.track.num_pitched - first)
        spoken = Spoken.of(recent, known)
        events: list[CoachEvent] = [*self._learn(spoken, first, t_s)]
        events += self._nudger.hear(self._now(spoken, first, t_s), self.baseline)
        return [*events, self._news(frames, t_s)]

    def found(self) -> Baseline | None:
        """The baseline that is in force, or of what was said so far."""
        return self.baseline or self._learner.found()

    def _learn(self, spoken: Spoken, first: int, t_s: float) -> list[CoachEvent]:
        if self.baseline is not None:
            known = self._num_steps == 1
            return [BaselineKnown(t_s, self.baseline)] if known else []
        self._learner.take(spoken, first)
        if self._learner.speech_s < self._coach.learn_s:
            return []
        self.baseline = self._learner.found()
        return [BaselineKnown(t_s, self.baseline)] if self.baseline else []

    def _now(self, spoken: Spoken, first: int, t_s: float) -> Now:
        end = first + len(spoken.speech)
        at = np.flatnonzero(spoken.speech)
        if len(at):
            self._last_speech = first + int(at[-1])
        gap = last_gap(spoken.speech, GAP_FRAMES)
        if gap is not None:
            self._run_from = first + gap
        last = self._last_speech
        silence_s = None if last is None else (end - 1 - last) / FRAMES_PER_S
        if self.baseline is None:
            return Now(t_s, silence_s, (end - self._run_from) / FRAMES_PER_S)
        rates = {s: rate for s in RATE_WINDOWS_S if (rate := spoken.rate(s)) is not None}
        levels = {s: found for s in LEVEL_WINDOWS_S if (found := spoken.level_dbfs(s)) is not None}
        moved = {
            s: found for s in FLAT_WINDOWS_S if (found := spoken.pitch_sd_semitones(s)) is not None
        }
        run_s = (end - self._run_from) / FRAMES_PER_S
        return Now(t_s, silence_s, run_s, rates, levels, moved)

    def _news(self, frames: Frames, t_s: float) -> CoachNews:
        begin = self._curve - self._first
        end = begin + (self.track.num_pitched - begin) // POINT_FRAMES * POINT_FRAMES
        curve_s = self._curve / FRAMES_PER_S
        self._curve = self._first + end
        f0 = frames.f0[begin:end].reshape(-1, POINT_FRAMES)
        power = frames.power[begin:end, 0].reshape(-1, POINT_FRAMES)
        pitch = [float(np.median(row[row > 0])) if (row > 0).any() else None for row in f0]
        levels = decibel(power.mean(1)).tolist() if len(power) else []
        last = frames.last(SHOWN_S).measures()
        return CoachNews(t_s, last, self._learner.speech_s, curve_s, tuple(pitch), tuple(levels))

    def _forget(self) -> None:
        if self.track.num_frames > MAX_FRAMES:
            self.track.forget(FORGOTTEN_UNITS)
            self._first += FORGOTTEN_UNITS * UNIT_SAMPLES // HOP_SAMPLES

"""When to say a word. In: what is heard now, against the baseline. Out: Nudges.

Tempo, level and melody are weighed by evidence.py, each against a shift of its own. A word also
waits until the measure that it tells is beyond what is usual: two ways of measuring then agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.extras.coach.baseline import Baseline
from streamer.extras.coach.evidence import Evidence
from streamer.extras.coach.options import Coach
from streamer.extras.coach.voice import STEPS_PER_S, Floats, Heard
from streamer.stages.events import CoachEvent

Kind = Literal["too_fast", "too_slow", "too_soft", "flat", "long_silence", "no_pause"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MEASURES: dict[Kind, tuple[str, str]] = {
    "too_fast": ("rate_syllables_per_s", "syllables/s"),
    "too_slow": ("rate_syllables_per_s", "syllables/s"),
    "too_soft": ("level_dbfs", "dBFS"),
    "flat": ("pitch_sd_semitones", "semitones"),
}
# Of the limit `sureness`: with these six nudges are false in 62 minutes of 45 readers, on both
# sides of bench.coach (2026-11).
LIMITS: dict[Kind, float] = {"too_fast": 0.6, "too_slow": 0.95, "too_soft": 0.95, "flat": 1.35}
# Of the octaves of a change, so many are looked for: the network says 0.7 to 0.8 of them, and half
# of the movement should be nearer to flat than to usual. More are looked for in fast speech: that
# tells twice the tempo sooner, and 1.5 times it less often.
SAID: dict[Kind, float] = {"too_fast": 1.0, "too_slow": 0.7, "flat": 0.6}
MOST_TEMPO = 1.2  # octaves: of more the network says no more
# Times the shift, and SDs of a second: what is further than both counts as this far.
FURTHEST, FURTHEST_SDS = 2.0, 5.0
TALKING_S = 0.6  # behind the last speech, how they spoke is judged no more
MIN_TOLD_S = 2.0  # a rate or a movement is told of no less, and
MIN_LEVEL_S = 0.6  # a level
BACK_S = 1.0  # a silence is over


@dataclass(frozen=True, slots=True)
class Nudge(CoachEvent):
    """A word to the speaker: what is measured, what is usual for them (None: nothing is), in
    `unit`; t_s: seconds of the session's audio."""

    kind: Kind
    measure: str
    value: float
    usual: float | None
    unit: str
    t_s: float
    wire_type = "streamer.nudge"

    def as_json(self) -> dict[str, Any]:
        """Plain types."""
        usual = None if self.usual is None else round(self.usual, 3)
        row = {"kind": self.kind, "measure": self.measure, "value": round(self.value, 3)}
        return row | {"usual": usual, "unit": self.unit, "t_s": round(self.t_s, 3)}


@dataclass(frozen=True)
class Now:
    """What is heard at t_s. silence_s: since the last speech, None where nobody spoke yet. run_s:
    of speech since the last pause. heard: since the step before. last: the measures of so many of
    the last seconds whose F0 is known, or of the very last."""

    t_s: float
    silence_s: float | None
    run_s: float
    heard: Heard
    last: Callable[[float, bool], SpeechMeasures]


class Nudger:
    """Ask `hear` again and again, in the order of time. A kind that was told waits until the voice
    came back, and for the cooldown."""

    def __init__(self, coach: Coach) -> None:
        self._coach = coach
        self._evidence = {
            kind: Evidence(coach.sureness * LIMITS.get(kind, 1.0)) for kind in MEASURES
        }
        self._since: dict[Kind, float] = dict.fromkeys(MEASURES, 0.0)  # there is some evidence
        self._told: set[Kind] = set()  # and not yet back
        self._last: dict[Kind, float] = {}  # when each was told

    def hear(self, now: Now, usual: Baseline | None) -> list[Nudge]:
        """At most one nudge; usual None: only what needs no baseline is judged."""
        if usual is not None:
            self._weigh(now, usual)
        self._told = {kind for kind in self._told if not self._is_back(kind, now)}
        if now.t_s - max(self._last.values(), default=-math.inf) < self._coach.gap_s:
            return []
        for kind in KINDS:
            since = now.t_s - self._last.get(kind, -math.inf)
            if kind in self._told or since < self._coach.cooldown_s:
                continue
            if (found := self._beyond(kind, now, usual)) is not None:
                self._told.add(kind)
                self._last[kind] = now.t_s
                return [found]
        return []

    def _weigh(self, now: Now, usual: Baseline) -> None:
        for kind, evidence in self._evidence.items():
            values, mean, sd, shift = self._shifted(kind, now.heard, usual)
            if not shift or not len(values):
                continue
            counts = now.heard.trust if kind == "too_soft" else np.ones_like(values)
            most = max(FURTHEST * abs(shift), FURTHEST_SDS * sd)
            off = min(max(float(np.average(values, weights=counts)) - mean, -most), most)
            seconds = float(counts.sum()) / STEPS_PER_S
            evidence.weigh(off / sd * seconds, seconds, shift / sd)
            if not evidence.nats:
                self._since[kind] = now.t_s

    def _shifted(
        self, kind: Kind, heard: Heard, usual: Baseline
    ) -> tuple[Floats, float, float, float]:
        """(values, what is usual of them and its SD, the shift that is looked for; 0: off), in dB
        or octaves."""
        coach = self._coach
        if kind == "too_soft":
            return heard.loudness, usual.loudness_db, usual.loudness_sd_db, -coach.soft_db
        if kind == "flat":
            shift = SAID[kind] * octaves(coach.flat_ratio)
            return heard.melody, usual.melody_octaves, usual.melody_sd_octaves, shift
        ratio = coach.fast_ratio if kind == "too_fast" else coach.slow_ratio
        shift = SAID[kind] * octaves(ratio)
        shift = math.copysign(min(abs(shift), MOST_TEMPO), shift)
        return heard.tempo, usual.tempo_octaves, usual.tempo_sd_octaves, shift

    def _beyond(self, kind: Kind, now: Now, usual: Baseline | None) -> Nudge | None:
        """The nudge of this kind, where it is due."""
        coach = self._coach
        if kind == "long_silence":
            if not coach.silence_s or now.silence_s is None or now.silence_s < coach.silence_s:
                return None
            return Nudge(kind, "silence_s", now.silence_s, None, "s", now.t_s)
        if now.silence_s is None or now.silence_s > TALKING_S:
            return None
        if kind == "no_pause":
            if not coach.breath_s or now.run_s < coach.breath_s:
                return None
            return Nudge(kind, "speech_without_pause_s", now.run_s, None, "s", now.t_s)
        if usual is None or not self._evidence[kind].is_enough:
            return None
        return self._told_of(kind, now, usual)

    def _told_of(self, kind: Kind, now: Now, usual: Baseline) -> Nudge | None:
        """None where the measure that is told does not agree."""
        name, unit = MEASURES[kind]
        least_s = MIN_LEVEL_S if kind == "too_soft" else MIN_TOLD_S
        measures = now.last(max(least_s, now.t_s - self._since[kind]), kind == "flat")
        value, was = getattr(measures, name), getattr(usual, name)
        if value is None or (value <= was if kind == "too_fast" else value >= was):
            return None
        return Nudge(kind, name, value, was, unit, now.t_s)

    def _is_back(self, kind: Kind, now: Now) -> bool:
        if kind == "long_silence":
            return now.silence_s is not None and now.silence_s < min(BACK_S, self._coach.silence_s)
        if kind == "no_pause":
            return now.run_s < self._coach.breath_s / 2
        return not self._evidence[kind].nats


def octaves(ratio: float) -> float:
    """0 for a kind that is off."""
    return math.log2(ratio) if ratio else 0.0

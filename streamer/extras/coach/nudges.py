"""Decide when a nudge is due.

For tempo, level and melody, the log-likelihood of a change against none is summed and never goes
under 0 (Page's test, 1954). Of all tests with as few false alarms none detects that change sooner
(Moustakides, 1986); a change of under half of it is never told. A nudge also waits until the
measure that it names is beyond the usual one: two ways of measuring then agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from streamer.core.measures.frames import Floats
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.extras.coach.network import STEPS_PER_S, Heard
from streamer.extras.coach.options import Baseline, Coach
from streamer.stages.events import CoachEvent

Kind = Literal[
    "too_fast", "too_slow", "too_soft", "flat", "long_silence", "no_pause", "filled_pauses"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
# Kinds without a baseline: a field of Now, its threshold in Coach; the nudge's measure and unit.
PLAIN: dict[Kind, tuple[str, str, str, str]] = {
    "long_silence": ("silence_s", "silence_s", "silence_s", "s"),
    "no_pause": ("run_s", "breath_s", "speech_without_pause_s", "s"),
    "filled_pauses": ("filled", "filled_per_min", "filled_pauses_per_min", "per minute"),
}
# Changes from a baseline: the measure and its unit; nats of evidence that are enough: with these,
# six nudges are false in 62 minutes of 45 readers (bench/coach.py of commit db8cd9ff, 2026-11); and
# the share of a change's octaves that is looked for. The network reports 0.7 to 0.8 of them. Half
# of the usual movement should be nearer to flat than to usual. The whole octave of fast speech
# finds twice the tempo sooner, and 1.5 times the tempo less often.
CHANGES: dict[Kind, tuple[str, str, float, float]] = {
    "too_fast": ("rate_syllables_per_s", "syllables/s", 6.0, 1.0),
    "too_slow": ("rate_syllables_per_s", "syllables/s", 9.5, 0.7),
    "too_soft": ("level_dbfs", "dBFS", 9.5, 1.0),
    "flat": ("pitch_sd_semitones", "semitones", 13.5, 0.6),
}
MOST_TEMPO = 1.2  # octaves: the most that the network reports
# Bounds of a deviation: times the change, and SDs of a second. The larger one holds.
FURTHEST, FURTHEST_SDS = 2.0, 5.0
TALKING_S = 0.6  # after so much silence, the way of speaking is no longer judged
MIN_TOLD_S = 2.0  # the shortest stretch of a rate or movement that a nudge names
MIN_LEVEL_S = 0.6  # and of a level
GAP_S = 5.0  # between any two nudges
COOLDOWN_S = 20.0  # between two of one kind
BACK_S = 1.0  # a silence under this is over


@dataclass(frozen=True, slots=True)
class Nudge(CoachEvent):
    """A change of the speaker's way: the measured value and the usual one, in `unit`.

    usual: None where nothing is usual. t_s: seconds of the session's audio.
    """

    kind: Kind
    measure: str
    value: float
    usual: float | None
    unit: str
    t_s: float
    wire_type = "streamer.nudge"


@dataclass(frozen=True)
class Now:
    """The session at t_s.

    silence_s: since the last speech, None before any. run_s: of speech since the last pause. heard:
    since the step before. last: measures of the last so many seconds whose F0 is known, or (False)
    of the very last ones. filled: filled pauses in the last minute.
    """

    t_s: float
    silence_s: float | None
    run_s: float
    heard: Heard
    last: Callable[[float, bool], SpeechMeasures]
    filled: int = 0


class Nudger:
    """Call `hear` for each step, in the order of time. A kind is told again only after the voice
    came back and the cooldown passed."""

    def __init__(self, coach: Coach) -> None:
        self._coach = coach
        self._nats: dict[Kind, float] = dict.fromkeys(CHANGES, 0.0)  # evidence for each change
        self._since: dict[Kind, float] = dict.fromkeys(CHANGES, 0.0)  # when evidence began
        self._away: set[Kind] = set()  # told, and not yet back
        self._last: dict[Kind, float] = {}  # when each was told

    def hear(self, now: Now, usual: Baseline | None) -> list[Nudge]:
        """At most one nudge. usual None: only silence, breath and filled pauses are judged."""
        if usual is not None:
            self._weigh(now, usual)
        self._away = {kind for kind in self._away if not self._is_back(kind, now)}
        if now.t_s - max(self._last.values(), default=-math.inf) < GAP_S:
            return []
        for kind in KINDS:
            since = now.t_s - self._last.get(kind, -math.inf)
            if kind in self._away or since < COOLDOWN_S:
                continue
            if (found := self._due(kind, now, usual)) is not None:
                self._away.add(kind)
                self._last[kind] = now.t_s
                return [found]
        return []

    def _weigh(self, now: Now, usual: Baseline) -> None:
        """Sum the evidence for each change, never under 0."""
        for kind, nats in self._nats.items():
            values, mean, sd, change = self._compared(kind, now.heard, usual)
            if not change or not len(values):
                continue
            weights = now.heard.trust if kind == "too_soft" else np.ones_like(values)
            most = max(FURTHEST * abs(change), FURTHEST_SDS * sd)
            off = min(max(float(np.average(values, weights=weights)) - mean, -most), most)
            seconds = float(weights.sum()) / STEPS_PER_S
            change /= sd  # from here on in SDs of a second, as is the deviation
            nats = max(0.0, nats + change * (off / sd * seconds) - change * change / 2 * seconds)
            self._nats[kind] = min(CHANGES[kind][2], nats)
            if not nats:
                self._since[kind] = now.t_s

    def _compared(
        self, kind: Kind, heard: Heard, usual: Baseline
    ) -> tuple[Floats, float, float, float]:
        """(values, their usual mean and SD, the change looked for; 0: off), in dB or octaves."""
        coach = self._coach
        if kind == "too_soft":
            return heard.loudness, usual.loudness_db, usual.loudness_sd_db, -coach.soft_db
        ratios = {"too_fast": coach.fast_ratio, "too_slow": coach.slow_ratio}
        ratio = ratios.get(kind, coach.flat_ratio)
        change = CHANGES[kind][3] * math.log2(ratio) if ratio else 0.0
        if kind == "flat":
            return heard.melody, usual.melody_octaves, usual.melody_sd_octaves, change
        change = min(max(change, -MOST_TEMPO), MOST_TEMPO)
        return heard.tempo, usual.tempo_octaves, usual.tempo_sd_octaves, change

    def _due(self, kind: Kind, now: Now, usual: Baseline | None) -> Nudge | None:
        """The nudge, unless it is too early or the measure that it names disagrees."""
        is_talking = now.silence_s is not None and now.silence_s <= TALKING_S
        if not is_talking and kind not in ("long_silence", "filled_pauses"):
            return None
        if kind in PLAIN:
            name, threshold, measure, unit = PLAIN[kind]
            value, least = getattr(now, name), getattr(self._coach, threshold)
            if not least or value is None or value < least:
                return None
            return Nudge(kind, measure, value, None, unit, now.t_s)
        name, unit, enough, _ = CHANGES[kind]
        if usual is None or self._nats[kind] < enough:
            return None
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
        if kind == "filled_pauses":
            return now.filled <= self._coach.filled_per_min / 2
        return not self._nats[kind]

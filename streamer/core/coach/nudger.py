"""When to say a word. In: what is heard now, against the baseline. Out: Nudges.

A rate of one second of speech says little: of a steady reader, the SD of its logarithm is
FAST_SPREAD, and of 6 s it is 0.095 (12 readers, 2026-11). So several windows are asked, and the
shorter one is, the further it must be beyond the bound: `sureness` standard errors. A great change
is told soon, a small one late.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from streamer.core.coach.baseline import Baseline
from streamer.core.coach.coach import Coach

Kind = Literal["too_fast", "too_slow", "too_soft", "flat", "long_silence", "no_pause"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# Of the last seconds of speech. The spreads are of 1 s, and fall with the root of the seconds.
RATE_WINDOWS_S = (1.5, 2.5, 4.0, 6.0, 9.0)
LEVEL_WINDOWS_S = (1.0, 2.0, 4.0)
FLAT_WINDOWS_S = (3.0, 5.0, 8.0)
FAST_SPREAD = 0.24
SLOW_SPREAD = 0.30  # ends of sentences are drawn out
LEVEL_SPREAD_DB = 2.75
FLAT_SPREAD = 0.45  # of the logarithm
BACK_RATE_S = 4.0
BACK_LEVEL_S = 2.0
BACK_FLAT_S = 5.0
TALKING_S = 0.6  # behind the last speech, rate and level are judged no more


@dataclass(frozen=True, slots=True)
class Nudge:
    """A word to the speaker: what is measured, what is usual for them (None: nothing is), in
    `unit`; t_s: seconds of the session's audio."""

    kind: Kind
    measure: str
    value: float
    usual: float | None
    unit: str
    t_s: float

    def as_json(self) -> dict[str, Any]:
        """Plain types."""
        usual = None if self.usual is None else round(self.usual, 3)
        row = {"kind": self.kind, "measure": self.measure, "value": round(self.value, 3)}
        return row | {"usual": usual, "unit": self.unit, "t_s": round(self.t_s, 3)}


@dataclass(frozen=True)
class Now:
    """What is heard at t_s. silence_s: since the last speech, None where nobody spoke yet. run_s:
    of speech since the last pause. rates, levels, movements (SD of pitch in semitones): by the
    seconds of speech that they are of."""

    t_s: float
    silence_s: float | None = None
    run_s: float = 0.0
    rates: Mapping[float, float] = field(default_factory=dict)
    levels: Mapping[float, float] = field(default_factory=dict)
    movements: Mapping[float, float] = field(default_factory=dict)


class Nudger:
    """Ask `hear` again and again, in the order of time. A kind that was told waits until the voice
    came back, and for the cooldown."""

    def __init__(self, coach: Coach) -> None:
        self._coach = coach
        self._told: set[Kind] = set()  # and not yet back
        self._last: dict[Kind, float] = {}  # when each was told

    def hear(self, now: Now, usual: Baseline | None) -> list[Nudge]:
        """At most one nudge; usual None: only what needs no baseline is judged."""
        for kind in list(self._told):
            if self._is_back(kind, now, usual):
                self._told.discard(kind)
        coach = self._coach
        last = max(self._last.values(), default=-math.inf)
        if now.t_s - last < coach.gap_s:
            return []
        for kind in KINDS:
            since = now.t_s - self._last.get(kind, -math.inf)
            if kind in self._told or since < coach.cooldown_s:
                continue
            if (found := self._beyond(kind, now, usual)) is not None:
                self._told.add(kind)
                self._last[kind] = now.t_s
                return [found]
        return []

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
        if usual is None:
            return None
        if kind == "flat":
            return self._flat(now, usual)
        return self._soft(now, usual) if kind == "too_soft" else self._rate(kind, now, usual)

    def _flat(self, now: Now, usual: Baseline) -> Nudge | None:
        was = usual.pitch_sd_semitones
        for seconds, sd in now.movements.items():
            sure = self._coach.sureness * FLAT_SPREAD / math.sqrt(seconds)
            if sd < self._coach.flat_ratio * was * math.exp(-sure):
                return Nudge("flat", "pitch_sd_semitones", sd, was, "semitones", now.t_s)
        return None

    def _soft(self, now: Now, usual: Baseline) -> Nudge | None:
        if not self._coach.soft_db:
            return None
        for seconds, level in now.levels.items():
            sure = self._coach.sureness * LEVEL_SPREAD_DB / math.sqrt(seconds)
            if level < usual.level_dbfs - self._coach.soft_db - sure:
                return Nudge("too_soft", "level_dbfs", level, usual.level_dbfs, "dBFS", now.t_s)
        return None

    def _rate(self, kind: Kind, now: Now, usual: Baseline) -> Nudge | None:
        sign, ratio, spread = self._bound(kind)
        if not ratio:
            return None
        for seconds, rate in now.rates.items():
            sure = self._coach.sureness * spread / math.sqrt(seconds)
            bound = usual.rate_syllables_per_s * ratio * math.exp(sign * sure)
            if sign * (rate - bound) > 0:
                name = "rate_syllables_per_s"
                was = usual.rate_syllables_per_s
                return Nudge(kind, name, rate, was, "syllables/s", now.t_s)
        return None

    def _bound(self, kind: Kind) -> tuple[int, float, float]:
        """Which way, the ratio, and the spread."""
        if kind == "too_fast":
            return 1, self._coach.fast_ratio, FAST_SPREAD
        return -1, self._coach.slow_ratio, SLOW_SPREAD

    def _is_back(self, kind: Kind, now: Now, usual: Baseline | None) -> bool:
        part = 1 - self._coach.back
        if kind == "long_silence":
            return now.silence_s is not None and now.silence_s < min(1.0, self._coach.silence_s)
        if kind == "no_pause":
            return now.run_s < self._coach.breath_s / 2
        if usual is None:
            return True
        if kind == "flat":
            sd = now.movements.get(BACK_FLAT_S)
            limit = usual.pitch_sd_semitones * self._coach.flat_ratio**part
            return sd is not None and sd > limit
        if kind == "too_soft":
            level = now.levels.get(BACK_LEVEL_S)
            return level is not None and level > usual.level_dbfs - part * self._coach.soft_db
        rate = now.rates.get(BACK_RATE_S)
        sign, ratio, _ = self._bound(kind)
        bound = usual.rate_syllables_per_s * ratio**part
        return rate is not None and sign * (rate - bound) < 0

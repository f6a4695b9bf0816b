"""Hear how somebody speaks, by a small network, and decide when a nudge is due.

Three convolutions read a step of 20 ms and the second before it (bench/coach_net.py of commit
db8cd9ff trained them). Loudness is the level over the one that such a sound usually has in such a
place, so it varies less than the level. Tempo and melody are octaves by which a reading was
changed. The network sees no gain: bands are relative to their frame's level, levels and F0 to
earlier ones.

For tempo, level and melody, the log-likelihood of a change against none is summed and never goes
under 0 (Page's test, 1954). Of all tests with as few false alarms none detects that change sooner
(Moustakides, 1986); a change of under half of it is never told. A nudge also waits until the
measure that it names is beyond the usual one: two ways of measuring then agree.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from streamer.core.measures.frames import FRAMES_PER_S, NUM_MELS, Flags, Floats
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.extras.coach.options import Baseline, Coach
from streamer.stages.events import CoachEvent

WEIGHTS = Path(__file__).with_name("network.npz")
STEP_FRAMES = 2
STEPS_PER_S = FRAMES_PER_S // STEP_FRAMES
NUM_BANDS = 32
LEVEL, SEMITONES, VOICED = range(NUM_BANDS, NUM_BANDS + 3)  # columns of a step
NUM_OUTPUTS = 4  # loudness, tempo, melody, and the log of the loudness's precision
MOST_LOG = 3.0  # bound of the log of a precision
# Neighbouring steps err alike where a voice trails off. Their shared variance is this much, in
# units of a usual step's own.
SHARED = 3.3
LOUDNESS_DB = 10.0  # unit of the first output
SPANS = ((3, 1), (4, 2), (4, 4))  # of each convolution: number of steps, and their distance
REACH = sum((num - 1) * apart for num, apart in SPANS)  # steps before the one that is judged
LEVEL_LAGS = (1, 2, 4, 7, 11, 16, 22, 30)  # steps
F0_LAGS = (1, 2, 3, 4, 6, 8, 11, 15, 20, 26)
LONGEST = max(LEVEL_LAGS + F0_LAGS)
NUM_INPUTS = NUM_BANDS + len(LEVEL_LAGS) + 1 + 3 * len(F0_LAGS)
UNDER_DB, OVER_DB = -30.0, 20.0  # bounds of a band over its frame's level
MOST_DB, MOST_SEMITONES = 20.0, 6.0
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


def steps_of(bands: Floats, level_db: Floats, f0: Floats) -> Floats:
    """Steps of 20 ms from an even number of frames [n, NUM_BANDS + 3]: bands and level in dB, F0 in
    semitones, and 1 where it is voiced. bands as `in_bands` makes them, f0 in Hz or 0."""
    pairs = f0.reshape(-1, STEP_FRAMES)
    semitones = 12 * np.log2(np.maximum(pairs, np.float32(50))).mean(1)
    mean_bands = bands.reshape(-1, STEP_FRAMES, NUM_BANDS).mean(1)
    mean_db = level_db.reshape(-1, STEP_FRAMES).mean(1)
    return np.column_stack([mean_bands, mean_db, semitones, np.all(pairs > 0, axis=1)])


def inputs_of(steps: Floats) -> Floats:
    """Inputs of the network [n - LONGEST, NUM_INPUTS]; the first steps are only past."""
    level, semitones, voiced = steps[:, LEVEL], steps[:, SEMITONES], steps[:, VOICED] > 0
    here = slice(LONGEST, None)
    now = np.arange(LONGEST, len(level))[:, np.newaxis]
    fallen = level[here, np.newaxis] - level[now - LEVEL_LAGS]
    before = now - F0_LAGS
    both = voiced[here, np.newaxis] & voiced[before]
    moved = np.where(both, semitones[here, np.newaxis] - semitones[before], 0)
    moved = np.clip(moved, -MOST_SEMITONES, MOST_SEMITONES) / 2
    parts = [
        np.clip(steps[here, :NUM_BANDS] - level[here, np.newaxis], UNDER_DB, OVER_DB) / 10,
        np.clip(fallen, -MOST_DB, MOST_DB) / 10,
        voiced[here, np.newaxis],
        np.stack([both, np.abs(moved), moved], 2).reshape(len(moved), -1),
    ]
    return np.concatenate(parts, 1, dtype=np.float32)


class Heard(NamedTuple):
    """The network's output for new steps: loudness [n] in dB and tempo [n] in octaves of steps of
    speech, melody [m] in octaves of voiced ones, and trust [n]: how much each loudness counts among
    its neighbours, 0 to 1. Its precision is 1 on the mean of people."""

    loudness: Floats
    tempo: Floats
    melody: Floats
    trust: Floats


class Voice:
    """The network on one session; it holds LONGEST + REACH steps."""

    def __init__(self) -> None:
        self._past: Floats | None = None
        self._seen = np.zeros((REACH, NUM_INPUTS), np.float32)

    def push(self, steps: Floats, speech: Flags) -> Heard:
        """Judge the next steps, of `steps_of`. speech [n]: where somebody speaks."""
        if not len(speech):
            return Heard(*np.zeros((NUM_OUTPUTS, 0), np.float32))
        if self._past is None:  # before the session: its first level, unvoiced
            self._past = np.repeat(steps[:1], LONGEST, 0)
            self._past[:, VOICED] = 0
        held = np.concatenate([self._past, steps])
        self._past = held[-LONGEST:]
        seen = np.concatenate([self._seen, inputs_of(held)])
        self._seen = seen[-REACH:].copy()
        said = _outputs(seen)
        loudness = steps[:, LEVEL] - np.float32(LOUDNESS_DB) * said[:, 0]
        melody = said[speech & (steps[:, VOICED] > 0), 2]
        log_precision = np.float32(MOST_LOG) * np.tanh(said[speech, 3] / np.float32(MOST_LOG))
        counted = np.float32(SHARED) * np.exp(log_precision)
        return Heard(loudness[speech], said[speech, 1], melody, counted / (1 + counted))


def in_bands(raw: Floats) -> Floats:
    """Log10 mel power [n, 128] in NUM_BANDS bands of dB [n, NUM_BANDS]."""
    near = raw.astype(np.float32).reshape(-1, NUM_BANDS, NUM_MELS // NUM_BANDS)
    return np.add.reduce(near, 2) * np.float32(10 * NUM_BANDS / NUM_MELS)


def _outputs(seen: Floats) -> Floats:
    """Outputs [n, 4] for inputs [REACH + n, NUM_INPUTS]."""
    hidden = seen
    for (num, apart), (bias, kernel) in zip(SPANS, learnt(), strict=True):
        above = np.maximum(hidden, np.float32(0)) if hidden is not seen else seen
        out = len(above) - (num - 1) * apart
        near = np.concatenate([above[j * apart : j * apart + out] for j in range(num)], 1)
        hidden = near @ kernel + bias
    return hidden


@functools.cache
def learnt() -> list[tuple[Floats, Floats]]:
    """Bias [outputs] and kernel [num x inputs, outputs] of each convolution that ships. Raises
    OSError if their file is missing."""
    with np.load(WEIGHTS) as held:  # biases come before kernels, by name
        arrays = [held[name].astype(np.float32) for name in sorted(held.files)]
    num = len(arrays) // 2
    return list(zip(arrays[:num], arrays[num:], strict=True))


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

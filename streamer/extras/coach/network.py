"""Loudness, tempo and melody of each step of 20 ms of speech, by a small network.

Three convolutions read a step and the second before it (bench/coach_net.py of commit db8cd9ff
trained them). Loudness is the level over the one that such a sound usually has in such a place, so
it varies less than the level. Tempo and melody are octaves by which a reading was changed. The
network sees no gain: bands are relative to their frame's level, levels and F0 to earlier ones.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.frames import FRAMES_PER_S, NUM_MELS, Flags, Floats

WEIGHTS = Path(__file__).with_name("network.npz")
STEP_FRAMES = 2
STEPS_PER_S = FRAMES_PER_S // STEP_FRAMES
NUM_BANDS = 32
FORM = 5  # version of what a baseline is learnt with: raise it here and in the page's coach.js
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


class Steps(NamedTuple):
    """Steps of 20 ms: bands [n, NUM_BANDS] and level [n] in dB, F0 [n] in semitones, voiced [n]."""

    bands: Floats
    level_db: Floats
    semitones: Floats
    voiced: Flags

    @classmethod
    def of(cls, bands: Floats, level_db: Floats, f0: Floats) -> Steps:
        """From an even number of frames; bands as `in_bands` makes them, f0 in Hz or 0."""
        pairs = f0.reshape(-1, STEP_FRAMES)
        return cls(
            bands.reshape(-1, STEP_FRAMES, NUM_BANDS).mean(1),
            level_db.reshape(-1, STEP_FRAMES).mean(1),
            12 * np.log2(np.maximum(pairs, np.float32(50))).mean(1),
            np.all(pairs > 0, axis=1),
        )

    def then(self, later: Steps) -> Steps:
        both: Any = map(np.concatenate, zip(self, later, strict=True))
        return Steps(*both)

    def at(self, which: slice | NDArray[np.int64]) -> Steps:
        some: Any = (values[which] for values in self)
        return Steps(*some)

    def inputs(self) -> Floats:
        """Inputs of the network [n - LONGEST, NUM_INPUTS]; the first steps are only past."""
        bands, level, semitones, voiced = self
        here = slice(LONGEST, None)
        now = np.arange(LONGEST, len(level))[:, np.newaxis]
        fallen = level[here, np.newaxis] - level[now - LEVEL_LAGS]
        before = now - F0_LAGS
        both = voiced[here, np.newaxis] & voiced[before]
        moved = np.where(both, semitones[here, np.newaxis] - semitones[before], 0)
        moved = np.clip(moved, -MOST_SEMITONES, MOST_SEMITONES) / 2
        parts = [
            np.clip(bands - level[:, np.newaxis], UNDER_DB, OVER_DB)[here] / 10,
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
        self._past: Steps | None = None
        self._seen = np.zeros((REACH, NUM_INPUTS), np.float32)

    def push(self, steps: Steps, speech: Flags) -> Heard:
        """Judge the next steps. speech [n]: where somebody speaks."""
        if not len(speech):
            return Heard(*np.zeros((NUM_OUTPUTS, 0), np.float32))
        if self._past is None:  # before the session: its first level, unvoiced
            first = steps.at(np.zeros(LONGEST, np.int64))
            self._past = first._replace(voiced=np.zeros(LONGEST, bool))
        held = self._past.then(steps)
        self._past = held.at(slice(-LONGEST, None))
        seen = np.concatenate([self._seen, held.inputs()])
        self._seen = seen[-REACH:].copy()
        said = _outputs(seen)
        loudness = steps.level_db - np.float32(LOUDNESS_DB) * said[:, 0]
        melody = said[speech & steps.voiced, 2]
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

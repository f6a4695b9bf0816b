"""Loudness, tempo and melody of each step of 20 ms of speech, by a small network.

Three convolutions read a step and the second before it (bench/coach_net.py of commit db8cd9ff
trained them). Loudness is the level over the one that such a sound usually has in such a place, so
it varies less than the level. Tempo and melody are octaves by which a reading was changed. The
network sees no gain: bands are relative to their frame's level, levels and F0 to earlier ones.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamer.core.measures.frames import FRAMES_PER_S, NUM_MELS, Flags, Floats

WEIGHTS = Path(__file__).with_name("network.npz")
STEP_FRAMES = 2
STEPS_PER_S = FRAMES_PER_S // STEP_FRAMES
NUM_BANDS = 32
LEVEL, SEMITONES, VOICED = range(NUM_BANDS, NUM_BANDS + 3)  # columns of a step
FORM = 5  # version of what a baseline is learnt with
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

"""In: log-mel of frames of 10 ms. Out: how many syllables each frame holds.

A network of three convolutions says it, for steps of 20 ms. Its sum over frames of speech is their
number of syllables. It was learnt from recordings of training's people whose text is known: of each
it was told the rate alone (`python -m bench.rate`, which writes density.npz).

What it sees are NUM_BANDS bands, each over its own mean of the 0.6 s around. So neither gain nor a
microphone's colour matters.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.frames import NUM_MELS
from streamer.core.measures.growing import Growing

Floats = NDArray[np.float32]

WEIGHTS = Path(__file__).with_name("density.npz")
STEP_FRAMES = 2
NUM_BANDS = 32
FLOOR = -7.0  # log10 mel power: less counts as so much
MOST = 2.0  # so far from its mean, in log10 power, a band says no more
AROUND = 15  # steps to both sides that a mean is of
SPANS = ((5, 1), (5, 2), (3, 1))  # of each convolution: how many steps it sees, how far apart
REACH = sum((num - 1) * apart for num, apart in SPANS) // 2  # steps to both sides
SEEN = AROUND + REACH
BLOCK = 8  # steps worked out at once: the sums of a product have one order for each shape


class Weights(NamedTuple):
    """Of each convolution: [outputs] and [num x inputs, outputs], float32."""

    biases: tuple[Floats, ...]
    kernels: tuple[Floats, ...]


class Density:
    """One turn's syllables, as log-mel comes. A step is final when SEEN steps behind its block are
    known; what is asked for before is as if the turn ended."""

    def __init__(self) -> None:
        self._final = Growing()  # per frame
        self._odd = np.zeros((0, NUM_BANDS), np.float32)  # a frame whose step is not whole
        self._held = np.zeros((SEEN, NUM_BANDS + 1), np.float32)  # from SEEN before the next block

    def add(self, raw: Floats) -> None:
        """[n, 128] log10 mel power, of frames of 10 ms."""
        frames = np.concatenate([self._odd, in_bands(raw)])
        whole = len(frames) // STEP_FRAMES * STEP_FRAMES
        self._odd = frames[whole:]
        self._held = np.concatenate([self._held, in_steps(frames[:whole])])
        num = (len(self._held) - 2 * SEEN) // BLOCK
        if num > 0:
            self._final.append(_per_frame(self._held[: num * BLOCK + 2 * SEEN]))
            self._held = self._held[num * BLOCK :].copy()

    def drop(self, num: int) -> None:
        """Forget the first `num` frames, which must be final: frames count from behind them."""
        self._final.drop(num)

    def so_far(self) -> Floats:
        """Syllables in each frame that was added [n]."""
        steps = np.concatenate([self._held, in_steps(self._odd)])
        num = len(steps) - SEEN
        behind = np.zeros((SEEN + -num % BLOCK, NUM_BANDS + 1), np.float32)
        rest = _per_frame(np.concatenate([steps, behind])) if num else self._final.values[:0]
        known = STEP_FRAMES * (len(self._held) - SEEN) + len(self._odd)
        return np.concatenate([self._final.values, rest[:known]])


def in_bands(raw: Floats) -> Floats:
    """[n, 128] log10 mel power in NUM_BANDS bands [n, NUM_BANDS]."""
    near = raw.astype(np.float32).reshape(-1, NUM_BANDS, NUM_MELS // NUM_BANDS)
    found: Floats = np.maximum(np.add.reduce(near, 2) / near.shape[2], np.float32(FLOOR))
    return found


def in_steps(bands: Floats) -> Floats:
    """[n, NUM_BANDS] of frames, in steps [m, NUM_BANDS + 1]: the last value is 1, and 0 where there
    is no step. One of a single frame is that frame."""
    bands = np.concatenate([bands, bands[len(bands) - len(bands) % STEP_FRAMES :]])
    steps = np.ones((len(bands) // STEP_FRAMES, NUM_BANDS + 1), np.float32)
    steps[:, :-1] = np.add.reduce(bands.reshape(-1, STEP_FRAMES, NUM_BANDS), 1) / STEP_FRAMES
    return steps


def over_their_means(steps: Floats) -> Floats:
    """[blocks, n, NUM_BANDS + 1] `in_steps`: each band over its mean, of the steps that have AROUND
    to both sides [blocks, n - 2 AROUND, NUM_BANDS]. 0 where there is no step."""
    sums = _bell(steps.shape[1]) @ steps
    here = steps[:, AROUND : steps.shape[1] - AROUND]
    means = sums[..., :-1] / np.maximum(sums[..., -1:], np.float32(1e-6))
    off = np.minimum(np.maximum(here[..., :-1] - means, -MOST), MOST)
    return off * here[..., -1:]


@functools.cache
def learnt() -> Weights:
    """What ships. Raises OSError where the file is not there."""
    return read_weights(WEIGHTS)


def read_weights(path: Path) -> Weights:
    """Of an .npz whose biases come before its kernels, by name. Raises OSError."""
    with np.load(path) as held:
        arrays = [held[name].astype(np.float32) for name in sorted(held.files)]
    num = len(arrays) // 2
    return Weights(tuple(arrays[:num]), tuple(arrays[num:]))


def _per_frame(steps: Floats) -> Floats:
    """Of steps with SEEN more to both sides, whole blocks of them: syllables in each frame."""
    begins = range(0, len(steps) - 2 * SEEN, BLOCK)
    hidden = over_their_means(np.stack([steps[i : i + BLOCK + 2 * SEEN] for i in begins]))
    weights = learnt()
    last = len(SPANS) - 1
    for i, (num, apart) in enumerate(SPANS):
        out = hidden.shape[1] - (num - 1) * apart
        near = np.concatenate([hidden[:, j * apart : j * apart + out] for j in range(num)], 2)
        hidden = near @ weights.kernels[i] + weights.biases[i]
        hidden = np.maximum(hidden, 0) if i < last else np.logaddexp(np.float32(0), hidden)
    return np.repeat(hidden.ravel() / np.float32(STEP_FRAMES), STEP_FRAMES)


@functools.cache
def _bell(num: int) -> Floats:
    """What weighs the steps around each [num - 2 AROUND, num]: a Hann window."""
    window = np.hanning(2 * AROUND + 3)[1:-1].astype(np.float32)
    found = np.zeros((num - 2 * AROUND, num), np.float32)
    for i, row in enumerate(found):
        row[i : i + len(window)] = window
    return found

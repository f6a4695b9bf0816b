"""Syllables in each frame of log-mel, counted by a small convolutional network.

Mel frames of 10 ms become steps of 30 ms: three frames of NUM_BANDS bands, each band over its own
mean of the second before and 0.12 s after, so that neither gain nor a microphone's colour matters.
Seven convolutions of three steps follow, all but the first with a residual connection. Two heads
count: a density of syllables, and the nuclei expected to begin in a step by posteriors of broad
phone classes. The result is a fixed mixture of both; its sum over frames of speech is the number
of syllables. `python -m pipelines.embedded.rate_fit` trains the network and writes density.npz.

The network looks REACH steps (0.48 s) ahead. Values are worked out in blocks of BLOCK steps whose
products always have the same shape, so pieces of a turn give the same bits as the whole.
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.frames import NUM_MELS, Floats, Growing

WEIGHTS = Path(__file__).with_name("density.npz")
STEP_FRAMES = 3
NUM_BANDS = 64
FLOOR = -7.0  # log10 mel power
MOST = 2.5  # log10 power: a band's largest distance from its mean
PAST_STEPS, AHEAD_STEPS = 32, 4  # of a band's mean
SPANS = (1, 1, 1, 2, 2, 4, 1)  # distance between the three steps that each convolution sees
REACH = AHEAD_STEPS + sum(SPANS)
# Steps. Of larger products OpenBLAS shares each among threads, which wait for each other: on a busy
# machine that took 20 times as long (2026-11), and on an idle one it saved nothing.
BLOCK = 4
NUM_NUCLEI = 8  # classes 1..NUM_NUCLEI of the phone head are syllable nuclei


# Sums the steps around each of a block [BLOCK, BLOCK + PAST_STEPS + AHEAD_STEPS].
_APART = np.arange(BLOCK + PAST_STEPS + AHEAD_STEPS) - np.arange(BLOCK)[:, None]
_WINDOW = ((_APART >= 0) & (_APART <= PAST_STEPS + AHEAD_STEPS)).astype(np.float32)


class Density(Growing):
    """Syllables per frame of one turn, while its log-mel arrives.

    A frame is final, and one of `values`, once REACH steps after its block are known. Until then
    its value is what it would be if the turn ended now. Append zeros for frames that nothing shall
    hear, before any is added.
    """

    def __init__(self) -> None:
        super().__init__()  # the final values, per frame
        held = PAST_STEPS + AHEAD_STEPS
        self._rest = np.zeros((0, NUM_BANDS), np.float32)  # frames of an incomplete block
        self._num = 0  # steps fed until now
        # Inputs that later blocks still need: of the means, with 1 where a step exists; of each
        # convolution; and the nuclei's posteriors of the last step.
        self._steps = np.zeros((held, STEP_FRAMES * NUM_BANDS), np.float32)
        self._here = np.zeros(held, np.float32)
        self._layers = [
            np.zeros((2 * apart, len(learnt()[f"kernel{i}"]) // 3), np.float32)
            for i, apart in enumerate(SPANS)
        ]
        self._nuclei = np.zeros((1, NUM_NUCLEI), np.float32)

    def add(self, raw: Floats) -> None:
        """[n, 128] log10 mel power of frames of 10 ms."""
        frames = np.concatenate([self._rest, in_bands(raw)])
        whole = len(frames) // (BLOCK * STEP_FRAMES) * BLOCK * STEP_FRAMES
        self._rest = frames[whole:].copy()
        if whole:
            self.append(self._feed(_in_steps(frames[:whole])))

    def so_far(self) -> Floats:
        """Syllables in each frame that was added [n]."""
        steps = _in_steps(self._rest)
        room = -(-(len(steps) + REACH) // BLOCK) * BLOCK
        padded = np.zeros((room, steps.shape[1]), np.float32)
        padded[: len(steps)] = steps
        ended = copy.copy(self)
        ended._layers = self._layers.copy()
        values = ended._feed(padded, self._num + len(steps))
        known = (min(self._num, REACH) + len(steps)) * STEP_FRAMES
        known -= -len(self._rest) % STEP_FRAMES
        return np.concatenate([self.values, values[:known]])

    def _feed(self, steps: Floats, total: int | None = None) -> Floats:
        """Feed whole blocks of steps; returns the syllables in each frame of the steps that are
        complete with them, REACH steps back. total: number of the turn's steps, where blocks reach
        past its end."""
        rows = np.arange(self._num, self._num + len(steps))
        steps = np.concatenate([self._steps, steps])
        here = np.concatenate([self._here, _exist(rows, total)[:, 0]])
        rows -= AHEAD_STEPS
        hidden = _over_their_means(steps, here) * _exist(rows, total)
        for i, apart in enumerate(SPANS):
            rows = rows - apart
            inputs = np.concatenate([self._layers[i], hidden])
            self._layers[i] = inputs[len(rows) :].copy()
            hidden = _convolved(i, inputs, apart) * _exist(rows, total)
        values, nuclei = _counted(hidden, self._nuclei, _exist(rows, total))
        self._num += len(rows)
        self._steps, self._here = steps[len(rows) :].copy(), here[len(rows) :].copy()
        self._nuclei = nuclei.copy()
        values = values[np.searchsorted(rows, 0) :]
        return np.repeat(values / np.float32(STEP_FRAMES), STEP_FRAMES)


def in_bands(raw: Floats) -> Floats:
    """[n, 128] log10 mel power to the means of neighbouring bands [n, NUM_BANDS]."""
    near = raw.astype(np.float32).reshape(-1, NUM_BANDS, NUM_MELS // NUM_BANDS)
    means: Floats = np.add.reduce(near, 2) / np.float32(near.shape[2])
    return np.maximum(means, np.float32(FLOOR))


@functools.cache
def learnt() -> dict[str, Floats]:
    """The network that ships: `kernel0` [3 * inputs, outputs] and `bias0` of the first convolution,
    and so on; `head` [channels, classes + 1] and `head_bias`; `mixture`: weights of begun nuclei
    and of density. Raises OSError if its file is missing."""
    with np.load(WEIGHTS) as held:
        return {name: held[name].astype(np.float32) for name in held.files}


def _in_steps(frames: Floats) -> Floats:
    """[n, NUM_BANDS] to [ceil(n / 3), 3 * NUM_BANDS]; the last frame fills an incomplete step."""
    frames = np.pad(frames, ((0, -len(frames) % STEP_FRAMES), (0, 0)), mode="edge")
    return frames.reshape(-1, STEP_FRAMES * NUM_BANDS)


def _exist(rows: NDArray[np.int64], total: int | None) -> Floats:
    """1 for rows of the turn [n, 1], 0 before its begin and after its end."""
    inside = (rows >= 0) & (rows < (rows[-1] + 1 if total is None else total))
    return inside.astype(np.float32)[:, None]


def _over_their_means(steps: Floats, here: Floats) -> Floats:
    """All rows but PAST_STEPS at the begin and AHEAD_STEPS at the end, each band over its mean."""
    size = PAST_STEPS + AHEAD_STEPS
    bands = steps.reshape(len(steps), STEP_FRAMES, NUM_BANDS)
    means = np.ones((len(steps), NUM_BANDS + 1), np.float32)
    means[:, :-1] = np.add.reduce(bands, 1) / np.float32(STEP_FRAMES)
    means *= here[:, None]
    begins = range(0, len(steps) - size, BLOCK)
    sums = _WINDOW @ np.stack([means[i : i + BLOCK + size] for i in begins])
    middle = (sums[..., :-1] / np.maximum(sums[..., -1:], 1)).reshape(-1, 1, NUM_BANDS)
    off = bands[PAST_STEPS : len(steps) - AHEAD_STEPS] - middle
    return np.minimum(np.maximum(off, -MOST), MOST).reshape(len(off), -1)


def _convolved(index: int, inputs: Floats, apart: int) -> Floats:
    """Outputs of one layer [n, channels] for inputs [n + 2 apart, ...]."""
    num = len(inputs) - 2 * apart
    near = np.concatenate([inputs[i * apart : i * apart + num] for i in range(3)], 1)
    blocks = near.reshape(-1, BLOCK, near.shape[1]) @ learnt()[f"kernel{index}"]
    hidden: Floats = np.maximum(blocks.reshape(num, -1) + learnt()[f"bias{index}"], 0)
    if index:
        hidden += inputs[apart : apart + num]
    return hidden


def _counted(hidden: Floats, before: Floats, exist: Floats) -> tuple[Floats, Floats]:
    """Syllables in each step [n], and the nuclei's posteriors of the last step."""
    network = learnt()
    blocks = hidden.reshape(-1, BLOCK, hidden.shape[1]) @ network["head"]
    said = blocks.reshape(len(hidden), -1) + network["head_bias"]
    phones, density = said[:, :-1], np.logaddexp(np.float32(0), said[:, -1])
    odds = np.exp(phones - phones.max(1, keepdims=True))
    nuclei = odds[:, 1 : NUM_NUCLEI + 1] / odds.sum(1, keepdims=True) * exist
    earlier = np.concatenate([before, nuclei[:-1]])
    begun = (nuclei * (1 - earlier)).sum(1)
    mixture = network["mixture"]
    return mixture[0] * begun + mixture[1] * density, nuclei[-1:]

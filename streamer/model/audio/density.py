"""Syllables in frames of log-mel, counted by a small convolutional network, and filled pauses.

Mel frames of 10 ms become steps of 30 ms: three frames of NUM_BANDS bands, each band less its own
mean of the second before and 0.12 s after, so that neither gain nor a microphone's colour matters.
Seven convolutions of three steps follow, all but the first with a residual connection. Two heads
count: a density of syllables, and the nuclei expected to begin in a step by posteriors of broad
phone classes. The result is a fixed mixture of both; its sum over frames of speech is the number
of syllables. `python -m pipelines.embedded.rate_fit` trains the network and writes density.npz.

The network looks REACH steps (0.48 s) ahead. A row's products are the same bits beside any others,
so pieces of a turn give the same bits as the whole.
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures import levels
from streamer.core.measures.frames import NUM_MELS, Floats, Frames, Growing, runs, without_gaps
from streamer.model.kernels.library import Matrix

WEIGHTS = Path(levels.__file__).with_name("density.npz")  # beside the measures' errors
STEP_FRAMES = 3
NUM_BANDS = 64
FLOOR = -7.0  # log10 mel power
MOST = 2.5  # log10 power: a band's largest distance from its mean
PAST_STEPS, AHEAD_STEPS = 32, 4  # of a band's mean
SPANS = (1, 1, 1, 2, 2, 4, 1)  # distance between the three steps that each convolution sees
REACH = AHEAD_STEPS + sum(SPANS)
BLOCK = 4  # steps whose means are worked out together
NUM_NUCLEI = 8  # classes 1..NUM_NUCLEI of the phone head are syllable nuclei
# Sums the steps around each of a block [BLOCK, BLOCK + PAST_STEPS + AHEAD_STEPS].
_APART = np.arange(BLOCK + PAST_STEPS + AHEAD_STEPS) - np.arange(BLOCK)[:, None]
_WINDOW = ((_APART >= 0) & (_APART <= PAST_STEPS + AHEAD_STEPS)).astype(np.float32)


class Density(Growing):
    """Syllables per frame of one turn, while its log-mel arrives.

    A frame is final, and one of `values`, once REACH steps after its block are known. Until then
    its value is as if the turn ended now. Append zeros for unheard frames, before any is added.
    """

    def __init__(self) -> None:
        super().__init__()  # the final values, per frame
        self._rest = np.zeros((0, NUM_BANDS), np.float32)  # frames of an incomplete block
        self._num = 0  # steps fed until now
        # Inputs that later blocks still need: of the means, with 1 where a step exists; of each
        # convolution; and the nuclei's posteriors of the last step.
        shapes = [(PAST_STEPS + AHEAD_STEPS, STEP_FRAMES * NUM_BANDS + 1)]
        layers = zip(SPANS, network().layers, strict=True)
        shapes += [(2 * apart, layer.depth // 3) for apart, layer in layers]
        self._held = [np.zeros(shape, np.float32) for shape in (*shapes, (1, NUM_NUCLEI))]

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
        padded = np.pad(steps, ((0, room - len(steps)), (0, 0)))
        ended = copy.copy(self)
        ended._held = self._held.copy()
        values = ended._feed(padded, self._num + len(steps))
        known = (min(self._num, REACH) + len(steps)) * STEP_FRAMES
        known -= -len(self._rest) % STEP_FRAMES
        return np.concatenate([self.values, values[:known]])

    def _feed(self, steps: Floats, total: int | None = None) -> Floats:
        """Feed whole blocks of steps; returns the syllables in each frame of the steps that are
        complete with them, REACH steps back. total: of the turn's steps, if blocks pass its end."""
        net = network()
        rows = np.arange(self._num, self._num + len(steps))
        self._num += len(rows)
        hidden = _over_their_means(self._after(0, np.hstack([steps, _exist(rows, total)])))
        rows -= AHEAD_STEPS
        hidden *= _exist(rows, total)
        for i, apart in enumerate(SPANS):
            inputs = self._after(i + 1, hidden)
            near = [inputs[j * apart : j * apart + len(rows)] for j in range(3)]
            hidden = np.maximum(net.layers[i](np.concatenate(near, 1)), 0)
            if i:
                hidden += near[1]
            rows -= apart
            hidden *= _exist(rows, total)
        said = net.head(hidden)
        phones, density = said[:, :-1], np.logaddexp(np.float32(0), said[:, -1])
        odds = np.exp(phones - phones.max(1, keepdims=True))
        nuclei = odds[:, 1 : NUM_NUCLEI + 1] / odds.sum(1, keepdims=True) * _exist(rows, total)
        begun = (nuclei * (1 - self._after(-1, nuclei)[:-1])).sum(1)
        values = net.mixture[0] * begun + net.mixture[1] * density
        values = values[np.searchsorted(rows, 0) :]
        return np.repeat(values / np.float32(STEP_FRAMES), STEP_FRAMES)

    def _after(self, index: int, inputs: Floats) -> Floats:
        """`inputs` after those that are held; the last ones of both are held from now on."""
        both = np.concatenate([self._held[index], inputs])
        self._held[index] = both[len(inputs) :].copy()
        return both


def in_bands(raw: Floats) -> Floats:
    """[n, 128] log10 mel power to the means of neighbouring bands [n, NUM_BANDS]."""
    near = raw.astype(np.float32).reshape(-1, NUM_BANDS, NUM_MELS // NUM_BANDS)
    return np.maximum(np.add.reduce(near, 2) / np.float32(near.shape[2]), np.float32(FLOOR))


def learnt() -> dict[str, Floats]:
    """The network that ships: `kernel0` [3 * inputs, outputs] and `bias0` of the first convolution,
    and so on; `head` [channels, classes + 1] and `head_bias`; `mixture`: weights of begun nuclei
    and of density. Raises OSError if its file is missing."""
    with np.load(WEIGHTS) as held:
        return {name: held[name].astype(np.float32) for name in held.files}


class Network(NamedTuple):
    layers: tuple[Matrix, ...]
    head: Matrix
    mixture: Floats


@functools.cache
def network() -> Network:
    """The shipped weights, as matrices."""
    held = learnt()
    layers = (Matrix(held[f"kernel{i}"], held[f"bias{i}"]) for i in range(len(SPANS)))
    return Network(tuple(layers), Matrix(held["head"], held["head_bias"]), held["mixture"])


def _in_steps(frames: Floats) -> Floats:
    """[n, NUM_BANDS] to [ceil(n / 3), 3 * NUM_BANDS]; the last frame fills an incomplete step."""
    frames = np.pad(frames, ((0, -len(frames) % STEP_FRAMES), (0, 0)), mode="edge")
    return frames.reshape(-1, STEP_FRAMES * NUM_BANDS)


def _exist(rows: NDArray[np.int64], total: int | None) -> Floats:
    """1 for rows of the turn [n, 1], 0 before its begin and after its end."""
    inside = (rows >= 0) & (rows < (rows[-1] + 1 if total is None else total))
    return inside.astype(np.float32)[:, None]


def _over_their_means(steps: Floats) -> Floats:
    """All rows but PAST_STEPS at the begin and AHEAD_STEPS at the end, each band over its mean. The
    last column: whether a step exists."""
    size = PAST_STEPS + AHEAD_STEPS
    bands = steps[:, :-1].reshape(len(steps), STEP_FRAMES, NUM_BANDS)
    here = steps[:, -1:]
    means = np.hstack([np.add.reduce(bands, 1) / np.float32(STEP_FRAMES) * here, here])
    begins = range(0, len(steps) - size, BLOCK)
    sums = _WINDOW @ np.stack([means[i : i + BLOCK + size] for i in begins])
    middle = (sums[..., :-1] / np.maximum(sums[..., -1:], 1)).reshape(-1, 1, NUM_BANDS)
    off = bands[PAST_STEPS : len(steps) - AHEAD_STEPS] - middle
    return np.minimum(np.maximum(off, -MOST), MOST).reshape(len(off), -1)


# Filled pauses ("um", "嗯"): a steady, low voice between two silences. No words are recognised, so
# some are missed and some long vowels taken for one; docs/measures.md states how many. Chosen on
# read speech of 60 people in English and Mandarin, with filled pauses inserted; the fall of the
# pitch after a look at the recall of bench/fillers.py, whose other languages were not used for
# false alarms (2026-11).
LAG = 4  # frames between two that are compared
MOST_CHANGE = 0.3  # log10 power of a band, mean over the bands
MOST_SLOPE = 0.5  # semitones within LAG
MOST_RANGE = 1.0  # semitones, 5th to 95th percentile, around a line: the pitch of "um" falls
MOST_FALL = 3.0  # semitones, of that line
MOST_RISE = 1.0
MOST_ABOVE = 1.0  # semitones over the speaker's median
MIN_FRAMES = 26
MAX_GAP = 10  # frames between two steady parts, such as "u" and "m"
MIN_STEADY = 0.6  # share of its frames
MAX_EDGE = 12  # frames of other sound between it and silence
MAX_SYLLABLES = 1.8
SILENT_DB = 22.0  # under the loud speech
VOICED_DB = 20.0
DEPTH = 3.0  # log10 power under a frame's loudest band, below which bands are alike


class Changes(Growing):
    """Change of each frame's spectrum in shape over LAG frames: log10 power, mean of bands [n]."""

    def __init__(self) -> None:
        super().__init__()
        self._shapes = np.full((LAG, NUM_BANDS), 99.0, np.float32)

    def add(self, raw: Floats) -> None:
        """[n, 128] log10 mel power."""
        bands = in_bands(raw)
        bands = np.maximum(bands, bands.max(1, keepdims=True, initial=-99) - DEPTH)
        both = np.concatenate([self._shapes, bands - bands.mean(1, keepdims=True)])
        self.append(np.abs(both[LAG:] - both[:-LAG]).mean(1))
        self._shapes = both[-LAG:]


def filled_pauses(frames: Frames, change: Floats) -> list[tuple[int, int]]:
    """(first frame, end) of each. change: of `Changes`, for the same frames, or more."""
    is_voiced = frames.f0 > 0
    if not (is_voiced.any() and frames.speech.any()):
        return []
    semitones = 12 * np.log2(np.maximum(frames.f0, 1))
    usual = float(np.median(semitones[is_voiced]))
    loud_db = float(np.percentile(frames.level_db[frames.speech], 90))
    is_silent = (frames.level_db < loud_db - SILENT_DB) | ~frames.speech
    steady = is_voiced & frames.speech & (frames.level_db > loud_db - VOICED_DB)
    steady &= change[: len(steady)] < MOST_CHANGE
    # the pitch is near that of LAG frames before
    steady[:LAG] = False
    is_near = np.abs(semitones[LAG:] - semitones[:-LAG]) < MOST_SLOPE
    steady[LAG:] &= is_near & is_voiced[:-LAG]
    found = []
    for first, end in runs(without_gaps(steady, MAX_GAP + 1)):
        begin = first - LAG
        if end - begin < MIN_FRAMES or steady[first:end].mean() < MIN_STEADY:
            continue
        at = np.flatnonzero(is_voiced[begin:end])
        pitch = semitones[begin + at]
        is_low = np.median(pitch) <= usual + MOST_ABOVE
        is_short = frames.density[max(0, begin - 6) : end + 6].sum() <= MAX_SYLLABLES
        if is_low and is_short and _is_apart(is_silent, begin, end) and _is_even(at, pitch):
            found.append((begin, end))
    return found


def _is_apart(is_silent: NDArray[np.bool_], begin: int, end: int) -> bool:
    """Whether silence, or the recording's edge, lies near on both sides."""
    before = is_silent[max(0, begin - MAX_EDGE - 1) : begin]
    after = is_silent[end : end + MAX_EDGE + 1]
    is_begun = begin <= MAX_EDGE or bool(before.any())
    return is_begun and (len(after) <= MAX_EDGE or bool(after.any()))


def _is_even(at: NDArray[np.int64], pitch: Floats) -> bool:
    """Whether the pitch moves along a line that falls gently. at: frames; pitch: in semitones."""
    slope, start = np.polyfit(at, pitch, 1)
    low, high = np.percentile(pitch - (start + slope * at), (5, 95))
    change = slope * (at[-1] - at[0])
    return bool(high - low <= MOST_RANGE and -MOST_FALL <= change <= MOST_RISE)

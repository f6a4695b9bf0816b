"""What a voice says, step by step of 20 ms, of how loud, how fast and how lively it is.

In: mel bands, level and F0 of frames of 10 ms. Out: three numbers for each step, and how much the
first counts. Their mean over any stretch of speech, however short, is compared with the speaker's
own.

A network of three convolutions says them (bench/coach_net.py of the tag 0.1.0). Of loudness it
tells how loud such a sound is in such a place: what is left over varies less than the level itself,
and a gain moves both alike. Where a voice trails off, or breathes, that tells little. Of tempo and
of melody it tells how many octaves a reading was changed by. It sees no gain: bands are over their
frame's level, levels and F0 over earlier ones.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.frames import FRAMES_PER_S, NUM_MELS

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]

WEIGHTS = Path(__file__).with_name("voice.npz")
STEP_FRAMES = 2
STEPS_PER_S = FRAMES_PER_S // STEP_FRAMES
NUM_BANDS = 32
FORM = 5  # of what is learnt of a voice: raised where it changes, here and in the page
# How loud a step would usually be, tempo and melody in octaves, and how much the first counts.
NUM_OUTPUTS = 4
MOST_LOG = 3.0  # of a loudness: the logarithm of its precision lies between minus this and this
# Where a voice trails off, steps beside one another err alike: what they share adds this much to
# each one's variance, in that of a usual step.
SHARED = 3.3
LOUDNESS_DB = 10.0  # the first is in units of so many dB
SPANS = ((3, 1), (4, 2), (4, 4))  # of each convolution: how many steps it sees, how far apart
REACH = sum((num - 1) * apart for num, apart in SPANS)  # steps that lie before the one that is told
LEVEL_LAGS = (1, 2, 4, 7, 11, 16, 22, 30)  # steps
F0_LAGS = (1, 2, 3, 4, 6, 8, 11, 15, 20, 26)
LONGEST = max(LEVEL_LAGS + F0_LAGS)
NUM_INPUTS = NUM_BANDS + len(LEVEL_LAGS) + 1 + 3 * len(F0_LAGS)
UNDER_DB, OVER_DB = -30.0, 20.0  # bands, over their frame's level
MOST_DB, MOST_SEMITONES = 20.0, 6.0


class Weights(NamedTuple):
    """Biases [outputs] and kernels [num x inputs, outputs] of each convolution, float32."""

    biases: tuple[Floats, ...]
    kernels: tuple[Floats, ...]


@dataclass(frozen=True)
class Steps:
    """Steps of 20 ms: bands [n, NUM_BANDS] and level [n] in dB, F0 [n] in semitones, and whether
    they are voiced."""

    bands: Floats
    level_db: Floats
    semitones: Floats
    voiced: Flags

    @classmethod
    def of(cls, bands: Floats, level_db: Floats, f0: Floats) -> Steps:
        """Of an even number of frames; bands as `in_bands` makes them, f0 in Hz or 0."""
        pairs = f0.reshape(-1, STEP_FRAMES)
        semitones = 12 * np.log2(np.maximum(pairs, np.float32(50))).mean(1)
        level = level_db.reshape(-1, STEP_FRAMES).mean(1)
        mean = bands.reshape(-1, STEP_FRAMES, NUM_BANDS).mean(1)
        voiced: Flags = np.all(pairs > 0, axis=1)
        return cls(mean, level, semitones, voiced)

    def then(self, later: Steps) -> Steps:
        """These, and `later` behind them."""
        return Steps(
            np.concatenate([self.bands, later.bands]),
            np.concatenate([self.level_db, later.level_db]),
            np.concatenate([self.semitones, later.semitones]),
            np.concatenate([self.voiced, later.voiced]),
        )

    def at(self, which: slice | NDArray[np.int64]) -> Steps:
        """Those of them alone."""
        return Steps(
            self.bands[which], self.level_db[which], self.semitones[which], self.voiced[which]
        )

    def inputs(self) -> Floats:
        """What the network sees [n - LONGEST, NUM_INPUTS]: the first ones are what is past."""
        here = slice(LONGEST, None)
        level, voiced = self.level_db, self.voiced
        shape = np.clip(self.bands - level[:, np.newaxis], UNDER_DB, OVER_DB)[here] / 10
        fallen = level[here, np.newaxis] - level[_before(len(level), LEVEL_LAGS)]
        before = _before(len(level), F0_LAGS)
        both = voiced[here, np.newaxis] & voiced[before]
        moved = np.where(both, self.semitones[here, np.newaxis] - self.semitones[before], 0)
        moved = np.clip(moved, -MOST_SEMITONES, MOST_SEMITONES) / 2
        parts = [
            shape,
            np.clip(fallen, -MOST_DB, MOST_DB) / 10,
            voiced[here, np.newaxis],
            np.stack([both, np.abs(moved), moved], 2).reshape(len(moved), -1),
        ]
        return np.concatenate(parts, 1, dtype=np.float32)


@dataclass(frozen=True)
class Heard:
    """What steps of 20 ms say, of those that count: loudness [n] in dB and tempo [n] in octaves, of
    speech; melody [m] in octaves, of what is voiced. trust [n]: how much each loudness counts, 0 to
    1."""

    loudness: Floats
    tempo: Floats
    melody: Floats
    trust: Floats


class Voice:
    """One session's. It holds what is past of LONGEST + REACH steps."""

    def __init__(self) -> None:
        self._past: Steps | None = None
        self._seen = np.zeros((REACH, NUM_INPUTS), np.float32)

    def push(self, steps: Steps, speech: Flags) -> Heard:
        """The next steps; speech [n]: where somebody speaks."""
        if not len(speech):
            return Heard(*np.zeros((NUM_OUTPUTS, 0), np.float32))
        if self._past is None:
            self._past = silence_before(steps)
        held = self._past.then(steps)
        self._past = held.at(slice(-LONGEST, None))
        seen = np.concatenate([self._seen, held.inputs()])
        self._seen = seen[-REACH:].copy()
        return heard_of(told(seen, learnt()), steps, speech)


def silence_before(steps: Steps) -> Steps:
    """What is taken to be past where nothing is: the first level, unvoiced."""
    first = steps.at(np.zeros(LONGEST, np.int64))
    return replace(first, voiced=np.zeros(LONGEST, bool))


def heard_of(said: Floats, steps: Steps, speech: Flags) -> Heard:
    """said [n, 4]: what the network says of the steps."""
    loudness = steps.level_db - np.float32(LOUDNESS_DB) * said[:, 0]
    trust = trust_of(said[speech, 3])
    return Heard(loudness[speech], said[speech, 1], said[speech & steps.voiced, 2], trust)


def precision_of(said: Floats) -> Floats:
    """Of a loudness by itself, of what the network says [n]; 1 in the mean of people."""
    most = np.float32(MOST_LOG)
    found: Floats = np.exp(most * np.tanh(said / most))
    return found


def trust_of(said: Floats) -> Floats:
    """How much a loudness counts among its neighbours, of what the network says [n]: 0 to 1."""
    counted = np.float32(SHARED) * precision_of(said)
    found: Floats = counted / (1 + counted)
    return found


def told(seen: Floats, weights: Weights) -> Floats:
    """What the network says [n, 4] of inputs [REACH + n, NUM_INPUTS]."""
    hidden = seen
    for i, (num, apart) in enumerate(SPANS):
        out = len(hidden) - (num - 1) * apart
        near = np.concatenate([hidden[j * apart : j * apart + out] for j in range(num)], 1)
        hidden = near @ weights.kernels[i] + weights.biases[i]
        if i < len(SPANS) - 1:
            hidden = np.maximum(hidden, np.float32(0))
    return hidden


def in_bands(raw: Floats) -> Floats:
    """[n, 128] log10 mel power in NUM_BANDS bands of dB [n, NUM_BANDS]."""
    near = raw.astype(np.float32).reshape(-1, NUM_BANDS, NUM_MELS // NUM_BANDS)
    found: Floats = np.add.reduce(near, 2) * np.float32(10 * NUM_BANDS / NUM_MELS)
    return found


@functools.cache
def learnt() -> Weights:
    """The network that ships. Raises OSError if its file is missing."""
    with np.load(WEIGHTS) as held:  # biases come before kernels, by name
        arrays = [held[name].astype(np.float32) for name in sorted(held.files)]
    num = len(arrays) // 2
    return Weights(tuple(arrays[:num]), tuple(arrays[num:]))


def _before(num: int, lags: tuple[int, ...]) -> NDArray[np.int64]:
    """Of all steps but the first LONGEST, which ones lie so many before [num - LONGEST, lags]."""
    return np.arange(LONGEST, num)[:, np.newaxis] - np.array(lags)

"""In: samples, and an F0 that a tracker gives. Out: how far the sound repeats itself with it.

Praat calls a frame voiced by this strength (Boersma, 1993): the autocorrelation of a windowed
stretch at a lag of one period, over its energy, both over those of the window alone. Here the
stretch is read at POINTS places in each period of the F0 that is given. So one lag is a period in
every frame, and frames of all voices are worked out at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ

Floats = NDArray[np.float32]

POINTS = 32
LAGS = (31, 32, 33)  # F0 may be 3 % off: what counts is that the sound repeats
NUM = 146  # 4.6 periods: Praat reads three of the lowest F0 that a voice may have
LEAST_ENERGY = np.float32(1e-9)
_BELL = np.hanning(NUM + 2)[1:-1].astype(np.float32)
_OF_BELL = [float((_BELL[:-lag] * _BELL[lag:]).sum() / (_BELL * _BELL).sum()) for lag in LAGS]
_PERIODS = ((np.arange(NUM) - (NUM - 1) / 2) / POINTS).astype(np.float32)  # of each point


def strengths(samples: Floats, at: NDArray[np.int64], f0_hz: Floats) -> Floats:
    """About 1 where the sound repeats itself with `f0_hz` [n] at the samples `at` [n], about 0
    where it is noise: [n]. samples: [m] at 16 kHz; beyond its ends is silence."""
    if not len(at):
        return np.zeros(0, np.float32)
    periods = np.float32(SAMPLE_RATE_HZ) / f0_hz
    reach = int(periods.max() * -_PERIODS[0]) + 2
    offsets = np.rint(periods[:, np.newaxis] * _PERIODS).astype(np.int64)
    near = np.pad(samples, reach)[offsets + (at + reach)[:, np.newaxis]]
    near -= np.add.reduce(near, 1)[:, np.newaxis] / np.float32(NUM)
    near *= _BELL
    energy = np.add.reduce(near * near, 1) + LEAST_ENERGY
    found = [
        np.add.reduce(near[:, :-lag] * near[:, lag:], 1) / np.float32(of_bell)
        for lag, of_bell in zip(LAGS, _OF_BELL, strict=True)
    ]
    strongest: Floats = np.maximum.reduce(found) / energy
    return strongest

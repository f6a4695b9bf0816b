"""In: samples, and about what F0 they have, as a tracker says. Out: F0, and how far the sound
repeats itself with it.

Praat takes both from one curve (Boersma, 1993): the autocorrelation of a windowed stretch, over its
energy, both over those of the window alone. Its highest peak lies at the period, and its height is
the strength that makes a frame voiced. Here the tracker says where to look, and the stretch is read
at POINTS places in each of its periods. So the same few lags lie about the period in every frame,
and frames of all voices are worked out at once.

How often it repeats is read from means between these places, since noise above the voice would move
the peak. How much of it does is read from single samples: there noise is to count.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ

Floats = NDArray[np.float32]

POINTS = 32
LAGS = range(
    26, 39
)  # the peak is looked for between the outer ones: F0 may be 15 % less, 20 % more
NUM = 146  # 4.6 periods: Praat reads three of the lowest F0 that a voice may have
LEAST_ENERGY = np.float32(1e-9)
_BELL = np.hanning(NUM + 2)[1:-1].astype(np.float32)
_OF_BELL = [float((_BELL[:-lag] * _BELL[lag:]).sum() / (_BELL * _BELL).sum()) for lag in LAGS]
_PERIODS = ((np.arange(NUM) - (NUM - 1) / 2) / POINTS).astype(np.float32)  # of each point


def tuned(samples: Floats, at: NDArray[np.int64], near_hz: Floats) -> tuple[Floats, Floats]:
    """F0 in Hz, and the strength: about 1 where the sound repeats itself, 0 where it is noise;
    [n] and [n], at the samples `at` [n]. near_hz [n]: about what F0 is; it stays where no peak is
    near. samples: [m] at 16 kHz; beyond its ends is silence."""
    if not len(at):
        return np.zeros(0, np.float32), np.zeros(0, np.float32)
    lags, _ = _peaks(_curve(_stretches(samples, at, near_hz, is_smooth=True)))
    _, strength = _peaks(_curve(_stretches(samples, at, near_hz, is_smooth=False)))
    return near_hz * (np.float32(POINTS) / lags), strength


def _peaks(curve: Floats) -> tuple[Floats, Floats]:
    """The highest of each frame's curve, [lags, n]: at which lag, and how high; POINTS where there
    is none."""
    before, inner, behind = curve[:-2], curve[1:-1], curve[2:]
    is_peak = (inner >= before) & (inner >= behind) & (inner > np.minimum(before, behind))
    places = np.where(is_peak, inner, -np.inf).argmax(0)
    frames = np.arange(curve.shape[1])
    low, high, next_ = before[places, frames], inner[places, frames], behind[places, frames]
    has_peak = is_peak[places, frames]
    bend = np.where(has_peak, low - 2 * high + next_, -1)  # of the parabola through the three
    off = (low - next_) / (2 * bend)
    lags = np.float32(LAGS[1]) + places.astype(np.float32) + off
    top = high - (low - next_) * off / 4
    none = curve[LAGS.index(POINTS)]
    return np.where(has_peak, lags, np.float32(POINTS)), np.where(has_peak, top, none)


def _stretches(samples: Floats, at: NDArray[np.int64], near_hz: Floats, is_smooth: bool) -> Floats:
    """[n, NUM]: POINTS of each period, under a bell. is_smooth: each is the mean from half a point
    before it to half a point behind it."""
    periods = np.float32(SAMPLE_RATE_HZ) / near_hz
    reach = int(periods.max() * -_PERIODS[0]) + int(periods.max() / POINTS) + 3
    offsets = periods[:, np.newaxis] * _PERIODS
    padded = np.pad(samples, reach)
    if is_smooth:
        middles = offsets.astype(np.float64) + (at + reach + 0.5)[:, np.newaxis]
        half = (np.maximum(periods / POINTS, 1) / 2).astype(np.float64)[:, np.newaxis]
        sums = np.concatenate([np.zeros(1), np.cumsum(padded, dtype=np.float64)])
        between = _between(sums, middles + half) - _between(sums, middles - half)
        near = (between / (2 * half)).astype(np.float32)
    else:
        near = padded[np.rint(offsets).astype(np.int64) + (at + reach)[:, np.newaxis]]
    near -= np.add.reduce(near, 1)[:, np.newaxis] / np.float32(NUM)
    near *= _BELL
    return near


def _between(sums: NDArray[np.float64], places: NDArray[np.float64]) -> NDArray[np.float64]:
    """`sums` at places between two of them."""
    whole = places.astype(np.int64)
    below: NDArray[np.float64] = sums[whole]
    return below + (places - whole) * (sums[whole + 1] - below)


def _curve(near: Floats) -> Floats:
    """The autocorrelation at LAGS [lags, n] of stretches [n, NUM]."""
    energy = np.add.reduce(near * near, 1) + LEAST_ENERGY
    found = [
        np.add.reduce(near[:, :-lag] * near[:, lag:], 1) / np.float32(of_bell)
        for lag, of_bell in zip(LAGS, _OF_BELL, strict=True)
    ]
    curve: Floats = np.stack(found) / energy
    return curve

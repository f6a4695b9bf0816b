"""In: samples at 16 kHz that came at 8, as from a telephone. Out: the same, with noise where that
rate cut the voice off, as loud as the rest of it lets guess.

The models and measures hear up to 8 kHz. Where that is empty they hear a darker and faster voice:
so it is the missing part that changes words on a telephone, not its code. The guess is a sum over a
frame's levels in dB and their squares, and does not depend on how loud the source is. The same bits
for every cut.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import Samples

Floats = NDArray[np.float32]
# The rate that a guess is made for. At 11 and 12 kHz it changes as many levels (2026-11).
TELEPHONE_HZ = 8_000
HOP_SAMPLES = 160
FRAME_SAMPLES = 2 * HOP_SAMPLES
FIRST_BIN, BAND_BINS, NUM_BANDS = 2, 8, 9  # what is known: 100 to 3,700 Hz in bands of 400
# What is guessed: from 3,700 Hz on, where the resampler's slope begins.
HIGH_BINS = [74, 82, 98, 114, 130, 146, 161]
SQUARE_DB = np.float32(10)  # unit of the squares, dB
KEPT = 0.99  # of a frame's weight, one frame later: what is past counts for a second
# The mean of dB lies under the dB of the mean. So much more changes the fewest levels of training's
# people.
MORE_DB = np.float32(6.0)
# Further under what is past a frame counts as no softer: after speech the guess would swell.
LEAST_SINCE_DB = np.float32(-15.0)
LEAST_POWER = np.float32(1e-9)
# Of a bin's mean power, where white noise at full scale has 22: under -107 dBFS there is nothing to
# go on.
SILENT_DB = -85.0
BLOCK_FRAMES = 200  # at once: a recording of an hour takes no more memory than two seconds
NUM_PATTERNS = 256  # of noise, one a frame, again and again


class HighBand:
    """One clip's; holds under 30 ms of samples."""

    def __init__(self) -> None:
        self._held = np.zeros(HOP_SAMPLES, np.float32)  # from the next frame's first sample on
        self._rest = np.zeros(HOP_SAMPLES, np.float32)  # of the last frame's noise
        self._num = 0  # frames so far
        self._known = Known()
        self._has_start = False  # the first half of the first frame lies before the clip

    def push(self, samples: Samples) -> Samples:
        """Take samples [n]; return those that are known now."""
        held = np.concatenate([self._held, samples])
        num = max(0, len(held) // HOP_SAMPLES - 1)
        self._held = held[num * HOP_SAMPLES :].copy()
        if not num:
            return np.zeros(0, np.float32)
        found: Samples = held[: num * HOP_SAMPLES].copy()
        frames = np.lib.stride_tricks.sliding_window_view(held, FRAME_SAMPLES)[::HOP_SAMPLES]
        for first in range(0, num, BLOCK_FRAMES):
            noise = self._noise(frames[first : min(first + BLOCK_FRAMES, num)])
            firsts, seconds = noise[:, :HOP_SAMPLES], noise[:, HOP_SAMPLES:]
            before = np.concatenate([self._rest[np.newaxis], seconds[:-1]])
            self._rest = seconds[-1].copy()
            at = first * HOP_SAMPLES
            found[at : at + firsts.size] += (before + firsts).reshape(-1)
        if not self._has_start:
            self._has_start, found = True, found[HOP_SAMPLES:]
        return found

    def finish(self) -> Samples:
        """The clip's last samples."""
        left = len(self._held) - (0 if self._has_start else HOP_SAMPLES)
        return self.push(np.zeros(FRAME_SAMPLES, np.float32))[:left]

    def _noise(self, frames: Floats) -> Floats:
        """The noise to add, in frames [n, FRAME_SAMPLES]."""
        spectrum = np.fft.rfft(frames * window())
        power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32, copy=False)
        levels = self._guess(*self._known.of(power))
        turns = _patterns()[(self._num + np.arange(len(frames))) % NUM_PATTERNS]
        self._num += len(frames)
        high = np.zeros_like(spectrum)
        high[:, HIGH_BINS[0] :] = turns * np.repeat(10 ** (levels / 20), np.diff(HIGH_BINS), 1)
        return np.fft.irfft(high, FRAME_SAMPLES).astype(np.float32, copy=False) * window()

    def _guess(self, level: Floats, known: Floats) -> Floats:
        """dB of each guessed band [n, 6]; -inf where there is silence."""
        constant, factors = _learnt()
        found = level + (constant + MORE_DB)
        # no matrix product: the order of its sums may depend on the number of frames
        for i, weights in enumerate(factors):
            found = found + known[:, i : i + 1] * weights
        return np.where(level > SILENT_DB, found, np.float32(-np.inf))


class Known:
    """The inputs of the guess, frame by frame of one clip."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0

    def of(self, power: Floats) -> tuple[Floats, Floats]:
        """Of the next frames' power in each bin [n, 161]: the mean of the known bands in dB [n, 1],
        and [n, 2 * NUM_BANDS + 1]: each band over it, the squares of that, and how far it lies over
        what is past."""
        known = power[:, FIRST_BIN : FIRST_BIN + NUM_BANDS * BAND_BINS]
        bands = known[:, ::BAND_BINS]
        for i in range(1, BAND_BINS):
            bands = bands + known[:, i::BAND_BINS]
        bands = bands / np.float32(BAND_BINS) + LEAST_POWER
        mean = bands[:, :1]
        for i in range(1, NUM_BANDS):
            mean = mean + bands[:, i : i + 1]
        mean = mean / np.float32(NUM_BANDS)
        level = 10 * np.log10(mean)
        over = 10 * np.log10(bands) - level
        past = 10 * np.log10(np.array([[self._past(each)] for each in mean[:, 0].tolist()]))
        since = np.maximum(level - past.astype(np.float32), LEAST_SINCE_DB)
        return level, np.concatenate([over, over * over / SQUARE_DB, since], axis=1)

    def _past(self, power: float) -> float:
        """The mean so far, this frame's with it."""
        self._sum = KEPT * self._sum + power
        self._weight = KEPT * self._weight + 1
        return self._sum / self._weight


@functools.cache
def window() -> Floats:
    """Its square, in steps of half of it, adds up to one."""
    return np.sin(np.pi * np.arange(FRAME_SAMPLES) / FRAME_SAMPLES).astype(np.float32)


@functools.cache
def _patterns() -> NDArray[np.complex64]:
    """Noise of level one [NUM_PATTERNS, bins from HIGH_BINS on]."""
    size = NUM_PATTERNS, HIGH_BINS[-1] - HIGH_BINS[0]
    turns = np.random.default_rng(0).random(size)
    return np.exp(2j * np.pi * turns).astype(np.complex64)


@functools.cache
def _learnt() -> tuple[Floats, Floats]:
    """A constant for each guessed band, dB over the mean of the known ones [6], and factors of the
    known bands, their squares, and a frame's level over that of the past [2 * NUM_BANDS + 1, 6].
    Raises OSError where the file is missing."""
    held = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    return np.array(held["constant"], np.float32), np.array(held["weights"], np.float32)

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
        self._num = 0  # frames heard
        self._sum = self._weight = 0.0  # of the mean power of the frames heard
        self._has_start = False  # the first half of the first frame lies before the clip

    def push(self, samples: Samples, is_last: bool = False) -> Samples:
        """Take samples [n]; return those that are known now. is_last: the clip ends here."""
        num_open = len(self._held) + len(samples) - (0 if self._has_start else HOP_SAMPLES)
        silence = np.zeros(FRAME_SAMPLES if is_last else 0, np.float32)
        held = np.concatenate([self._held, samples, silence])
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
        return found[:num_open]

    def _noise(self, frames: Floats) -> Floats:
        """The noise to add, in frames [n, FRAME_SAMPLES]."""
        window, patterns, _, _ = _tables()
        spectrum = np.fft.rfft(frames * window)
        power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32, copy=False)
        gains = 10 ** (self._guess(power) / 20)
        turns = patterns[(self._num + np.arange(len(frames))) % NUM_PATTERNS]
        self._num += len(frames)
        high = np.zeros_like(spectrum)
        high[:, HIGH_BINS[0] :] = turns * np.repeat(gains, np.diff(HIGH_BINS), 1)
        return np.fft.irfft(high, FRAME_SAMPLES).astype(np.float32, copy=False) * window

    def _guess(self, power: Floats) -> Floats:
        """dB of each guessed band [n, 6], of the next frames' power in each bin [n, 161]; -inf
        where there is silence."""
        known = power[:, FIRST_BIN : FIRST_BIN + NUM_BANDS * BAND_BINS]
        # no sums by numpy, nor a matrix product: their order may depend on the number of frames
        bands = functools.reduce(np.add, (known[:, i::BAND_BINS] for i in range(BAND_BINS)))
        bands = bands / np.float32(BAND_BINS) + LEAST_POWER
        mean = functools.reduce(np.add, np.split(bands, NUM_BANDS, axis=1)) / np.float32(NUM_BANDS)
        level = 10 * np.log10(mean)
        over = 10 * np.log10(bands) - level
        past = []
        for each in mean[:, 0].tolist():
            self._sum = KEPT * self._sum + each
            self._weight = KEPT * self._weight + 1
            past.append([self._sum / self._weight])
        past_db = (10 * np.log10(np.array(past))).astype(np.float32)
        since = np.maximum(level - past_db, LEAST_SINCE_DB)
        _, _, constant, factors = _tables()
        found = level + (constant + MORE_DB)
        inputs = np.concatenate([over, over * over / SQUARE_DB, since], axis=1)
        for i, weights in enumerate(factors):
            found = found + inputs[:, i : i + 1] * weights
        return np.where(level > SILENT_DB, found, np.float32(-np.inf))


@functools.cache
def _tables() -> tuple[Floats, NDArray[np.complex64], Floats, Floats]:
    """A window whose square, in steps of half of it, adds up to one; noise of level one
    [NUM_PATTERNS, bins from HIGH_BINS on]; a constant for each guessed band, dB over the mean of
    the known ones [6]; and factors of the known bands over it, their squares, and a frame's level
    over that of the past [2 * NUM_BANDS + 1, 6]. Raises OSError where the file is missing."""
    window = np.sin(np.pi * np.arange(FRAME_SAMPLES) / FRAME_SAMPLES).astype(np.float32)
    turns = np.random.default_rng(0).random((NUM_PATTERNS, HIGH_BINS[-1] - HIGH_BINS[0]))
    patterns = np.exp(2j * np.pi * turns).astype(np.complex64)
    learnt = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    constant, factors = (np.array(learnt[name], np.float32) for name in ("constant", "weights"))
    return window, patterns, constant, factors

"""Audio's numbers for all rooms: rates, lengths and scales; PCM16 and G.711 as floats.

Inside streamer audio is float32 mono at SAMPLE_RATE_HZ with full scale 1.0.
"""

from __future__ import annotations

import functools
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]

SAMPLE_RATE_HZ = 16_000
SAMPLES_PER_MS = SAMPLE_RATE_HZ // 1_000
LIVE_SAMPLES = SAMPLE_RATE_HZ // 10  # 100 ms: what a live source sends at a time
WINDOW_SAMPLES = 2 * SAMPLE_RATE_HZ  # what the audio tower encodes at a time
BEHIND_SAMPLES = 40  # a window's log-mel is complete this many samples after its boundary

# Bounds of the input.
MIN_RATE_HZ = 1_000
MAX_RATE_HZ = 384_000
MAX_CHANNELS = 1024
# A float WAV that holds integers as they are reaches 2**31. Above that there is no audio, and
# from 1e17 on the power spectrum overflows float32 into NaN features.
MAX_MAGNITUDE = 2.0**31

PCM16_SCALE = np.float32(32_768)

QUIET_DBFS = -35.0  # speech of -50 dBFS stays under it


def from_pcm16(data: bytes | memoryview) -> Samples:
    """Little-endian int16 as samples [n]; `data` must hold whole ones."""
    return np.frombuffer(data, dtype="<i2").astype(np.float32) / PCM16_SCALE


def on_grid(samples: Samples) -> Samples:
    """Rounded to multiples of 1 / 32768 (-101 dB): so PCM16 on a link loses no bit."""
    rounded: Samples = np.rint(samples * PCM16_SCALE) / PCM16_SCALE
    return rounded


Law = Literal["pcmu", "pcma"]  # mu-law, A-law
Encoding = Literal["pcm16", "pcmu", "pcma"]  # of live audio
G711_RATE_HZ = 8_000


@functools.cache
def _levels_of(law: Law) -> Samples:
    """The sample of each of the 256 codes. A code has a sign, 3 bits of segment and 4 of step; a
    step's middle is meant.

    mu-law: bits inverted; segments begin at 33 << segment, less 33, in units of 14 bit PCM. A-law:
    even bits inverted; the first two segments have the same steps, in units of 13 bit PCM.
    """
    code = np.arange(256) ^ (0xFF if law == "pcmu" else 0x55)
    segment, step = code >> 4 & 7, 2 * (code & 0xF)
    if law == "pcmu":
        size = (((step + 33) << segment) - 33) << 2
    else:
        size = np.where(segment == 0, step + 1, (step + 33) << np.maximum(segment - 1, 0)) << 3
    is_negative = (code >= 0x80) == (law == "pcmu")
    return np.where(is_negative, -size, size).astype(np.float32) / PCM16_SCALE


def from_g711(data: bytes, law: Law) -> Samples:
    """Samples [n] of n bytes, at the rate they came with, 8 kHz as a rule."""
    samples: Samples = _levels_of(law)[np.frombuffer(data, np.uint8)]
    return samples


MEAN_SAMPLES = 4096  # 256 ms: the lowest voice, 60 Hz, changes by 2 % at most
SILENT_SAMPLES = 16  # zeros in a row: digital silence, not a waveform that crosses 0


class OffsetFilter:
    """Subtract from each sample the mean of the last 256 ms, or of the shorter sound so far.

    Digital silence stays silent and counts in no mean, so it changes nothing beside it. Sums are of
    whole steps of PCM16, so they are exact. The result is rounded to such steps.
    """

    def __init__(self) -> None:
        self._past = np.zeros(0, np.int64)  # at most MEAN_SAMPLES
        self._num_zeros = SILENT_SAMPLES  # in a row, before the next sample

    def push(self, samples: Samples) -> Samples:
        """Take samples [n], full scale 1.0; return as many, multiples of 1 / 32768."""
        whole = np.rint(samples * PCM16_SCALE).astype(np.int64)
        at = np.arange(1, len(whole) + 1)
        zeros = at - np.maximum.accumulate(np.where(whole != 0, at, -self._num_zeros))
        self._num_zeros = min(int(zeros[-1]), SILENT_SAMPLES) if len(zeros) else self._num_zeros
        is_sound = zeros < SILENT_SAMPLES
        found = np.zeros(len(whole), np.float32)
        sound = whole[is_sound]
        known = np.concatenate([self._past, sound])
        self._past, num_past = known[-MEAN_SAMPLES:], len(self._past)
        sums = np.cumsum(known)
        sums[MEAN_SAMPLES:] -= sums[:-MEAN_SAMPLES]
        sums = sums[num_past:]
        counts = np.minimum(np.arange(num_past + 1, len(known) + 1), MEAN_SAMPLES)
        means = (2 * sums + counts) // (2 * counts)
        found[is_sound] = (sound - means).astype(np.float32) / PCM16_SCALE
        return found

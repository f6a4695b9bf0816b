"""Audio's numbers, for all rooms. In: nothing. Out: rates, lengths and scales, and PCM16 as floats.

Inside streamer audio is float32 mono at SAMPLE_RATE_HZ with full scale 1.0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]

SAMPLE_RATE_HZ = 16_000
SAMPLES_PER_MS = SAMPLE_RATE_HZ // 1_000
LIVE_SAMPLES = SAMPLE_RATE_HZ // 10  # 100 ms: what a live source sends at a time
WINDOW_SAMPLES = 2 * SAMPLE_RATE_HZ  # what the audio tower encodes at a time
BEHIND_SAMPLES = 40  # a window's log-mel is complete so many samples behind its boundary

# What may come in.
MIN_RATE_HZ = 1_000
MAX_RATE_HZ = 384_000
MAX_CHANNELS = 1024
# A float WAV that holds integers as they are reaches 2**31. Above that there is no audio, and
# from 1e17 on the power spectrum overflows float32 into NaN features.
MAX_MAGNITUDE = 2.0**31

PCM16_SCALE = np.float32(32_768)


def from_pcm16(data: bytes | memoryview) -> Samples:
    """Little-endian int16 as samples [n]; `data` must hold whole ones."""
    return np.frombuffer(data, dtype="<i2").astype(np.float32) / PCM16_SCALE


def on_grid(samples: Samples) -> Samples:
    """Rounded to multiples of 1 / 32768 (-101 dB): so PCM16 on a link loses no bit."""
    rounded: Samples = np.rint(samples * PCM16_SCALE) / PCM16_SCALE
    return rounded

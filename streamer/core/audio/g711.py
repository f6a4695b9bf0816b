"""Telephone speech. In: a byte per sample, mu-law or A-law (ITU-T G.711). Out: float32 samples.

Each byte stands for one of 256 levels, so decoding is a look into a table.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import PCM16_SCALE, Samples

Law = Literal["pcmu", "pcma"]  # mu-law, A-law
Encoding = Literal["pcm16", "pcmu", "pcma"]  # of live audio
RATE_HZ = 8_000
_CODES = np.arange(256)


def _mu_law() -> NDArray[np.int32]:
    """Bits inverted; sign, 3 bits of segment, 4 of step. The segments begin at 33 << segment, less
    33, in units of 14 bit PCM; a step's middle is meant."""
    code = ~_CODES & 0xFF
    size = ((2 * (code & 0xF) + 33) << (code >> 4 & 7)) - 33
    return np.where(code & 0x80, -size, size).astype(np.int32) << 2


def _a_law() -> NDArray[np.int32]:
    """Even bits inverted; sign, segment, step as above. The first two segments have the same
    steps, in units of 13 bit PCM."""
    code = _CODES ^ 0x55
    segment = code >> 4 & 7
    step = 2 * (code & 0xF) + 1
    size = np.where(segment == 0, step, (step + 32) << np.maximum(segment - 1, 0))
    return np.where(code & 0x80, size, -size).astype(np.int32) << 3


_TABLES: dict[Law, Samples] = {
    "pcmu": _mu_law().astype(np.float32) / PCM16_SCALE,
    "pcma": _a_law().astype(np.float32) / PCM16_SCALE,
}


def from_g711(data: bytes, law: Law) -> Samples:
    """Samples [n] of n bytes, at the rate they came with, 8 kHz as a rule."""
    samples: Samples = _TABLES[law][np.frombuffer(data, np.uint8)]
    return samples

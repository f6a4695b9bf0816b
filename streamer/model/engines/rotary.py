"""Positions as numbers, for every engine. In: lengths and widths. Out: float32 tables."""

from __future__ import annotations

import math

import numpy as np

from streamer.model.engines.engine import Floats


def rotary(length: int, head_dim: int, theta: float) -> tuple[Floats, Floats]:
    """cos and sin [length, head_dim / 2] of every position's angles (arXiv 2104.09864).

    The angles are rounded to float32 where transformers rounds them: at position 1,500 a rounder
    one would be another angle.
    """
    exponents = (np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)).astype(float)
    inverse = np.float32(1.0) / (theta**exponents).astype(np.float32)
    angle = np.arange(length, dtype=np.float32)[:, None] * inverse
    cos = np.cos(angle, dtype=np.float64)
    sin = np.sin(angle, dtype=np.float64)
    return cos.astype(np.float32), sin.astype(np.float32)


def sinusoids(length: int, channels: int, max_timescale: float = 10_000.0) -> Floats:
    """[length, channels]: sines, then cosines, as in whisper's encoder; no checkpoint has them."""
    step = math.log(max_timescale) / (channels // 2 - 1)
    angle = np.arange(length)[:, None] * np.exp(-step * np.arange(channels // 2))
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)

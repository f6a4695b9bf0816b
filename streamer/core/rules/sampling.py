"""Chance that can be repeated. In: seed, answer index, ids. Out: Gumbel noise, everywhere the same.

`argmax(logits / T + gumbel)` draws from softmax(logits / T): Gumbel-max (Maddison et al., arXiv
1411.0030). The noise is a hash of (seed, index, id), so edge and cloud share it without a word on
the wire, and a rollback or another batch does not change it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Sampling:
    """How an id is chosen. temperature 0: greedy; top_p: within the smallest set of that share."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """ValueError unless temperature is 0 or 1e-6 .. 1e6, 0 < top_p <= 1, 0 <= seed < 2**64."""
        # below, logits / T overflow
        if self.temperature != 0.0 and not 1e-6 <= self.temperature <= 1e6:
            raise ValueError(
                f"temperature must be 0 (greedy) or 0.000001 to 1000000, not {self.temperature}"
            )
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if not 0 <= self.seed <= _MASK:
            raise ValueError(f"seed must be 0 to 2**64 - 1, not {self.seed}")


def gumbel(seed: int, index: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise, float64 of the shape of `ids`, for the answer's id number `index`.

    An id's value does not depend on which other ids are asked for. Values lie within -3.6 .. 36.8.
    """
    key, place = np.array([[seed], [index]], dtype=np.uint64)
    stream = _mix(_mix(key) + place * _GOLDEN)
    bits = _mix(stream ^ _mix((ids.astype(np.uint64) + np.uint64(1)) * _GOLDEN))
    # 52 bits and a half: strictly between 0 and 1, and exact in float64
    uniform = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's increment and finaliser (Steele, Lea, Flood 2014); uint64 arithmetic wraps."""
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))

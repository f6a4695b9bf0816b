"""What this machine can do at best, on one thread, measured. In: bytes or multiplications. Out: per second."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch


@functools.cache
def rate() -> float:
    """Floating-point operations per second of a large matrix product."""
    a = torch.randn(1024, 1024)
    return 2 * 1024**3 / best(lambda: a @ a)


@functools.cache
def bandwidth(size: int) -> float:
    """Bytes per second of reading an array of `size` again and again: cached where it fits, as weights would be."""
    a = torch.ones(size // 4)
    return size / best(lambda: a.sum())


def best(work: Callable[[], object]) -> float:
    """Seconds of the fastest of ten runs."""
    work()
    times = []
    for _ in range(10):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)

"""What this machine can do at best, on so many threads, measured. In: bytes or multiplications.
Out: per second."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch


@functools.cache
def rate(threads: int = 1) -> float:
    """Floating-point operations per second of a large matrix product."""
    a = torch.randn(1024, 1024)
    return 2 * 1024**3 / best(lambda: a @ a, threads)


@functools.cache
def bandwidth(size: int, threads: int = 1) -> float:
    """Bytes per second of reading an array of `size` again and again: cached where it fits, as
    weights would be."""
    a = torch.ones(size // 4)
    return size / best(lambda: a.sum(), threads)


def best(work: Callable[[], object], threads: int) -> float:
    """Seconds of the fastest of ten runs."""
    before = torch.get_num_threads()
    times = []
    torch.set_num_threads(threads)
    work()
    for _ in range(10):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    torch.set_num_threads(before)
    return min(times)

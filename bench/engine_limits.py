"""How fast could this machine do a step at best? In: rows, ids, threads. Out: milliseconds, by the
bandwidth and the products measured here."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable

import torch

from streamer.model.checkpoint.layout import text_layout
from streamer.model.engines.engine import Engine
from streamer.model.kernels.text import FastText

Arm = Callable[[], object]
PROMPT = 6


def limit_ms(engine: Engine, rows: int, q: int, context: int, threads: int) -> float:
    """What the machine would need for the same bytes and multiplications, on one thread or on so
    many."""
    text = engine.text
    s = engine.text.shape
    assert isinstance(text, FastText)
    weights = sum(math.prod(size) for name, size in text_layout(s) if "embed" not in name)
    weights += s.vocab * s.hidden * s.tied
    size = (
        weights * (2 if text.is_half else 4)
        + rows * 2 * s.layers * s.kv_heads * s.head_dim * context * 4
    )
    products = rows * q * (weights + 2 * s.layers * s.heads * s.head_dim * context)
    return 1000 * min(max(size / bandwidth(size, n), 2 * products / rate(n)) for n in {1, threads})


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


def best(work: Arm, threads: int) -> float:
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

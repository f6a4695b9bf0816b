"""Products with weights of 8 or 4 bits, compiled. In: rows of 16-bit integers. Out: float32.

y[r, c] = sum over groups g of scale[c, g] * (sum over k in g of x[r, k] * q[c, k]): the inner sums
are of integers and exact, the outer one runs over g from 0 upwards, in 8 lanes that are added at
the end. So a row's bits depend on that row alone. Weights are read where they lie, once for three
rows; they may be a file's pages.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.model.kernels.arithmetic import compiled, part
from streamer.model.kernels.few_bits_tile import BYTES, COLUMNS, make_tile, unpack
from streamer.model.kernels.threads import num_cores, num_kernel_threads

SHARES = 4  # per thread: one that comes late takes fewer
WORTH = 1_000_000  # multiplications of one row that are worth a thread: 0.1 ms of it
# Rows from which on 4 bits are unpacked once: 50 take 0.75 of the time, eight as long (2026-11).
MANY = 16

_T1, _T2, _T3 = (make_tile(rows) for rows in (1, 2, 3))


@part
def _panel(x, w, w_at, scales, s_at, y, c, rows, depth, width, groups, units):
    """y[:, c : c + COLUMNS] of the panel at `w_at`."""
    r = 0
    while r < rows:
        x_at, y_at = r * depth, r * width + c
        left = rows - r
        if left >= 3 and left != 4:
            _T3(x, x_at, depth, w, w_at, scales, s_at, y, y_at, width, groups, units)
            r += 3
        elif left >= 2:
            _T2(x, x_at, depth, w, w_at, scales, s_at, y, y_at, width, groups, units)
            r += 2
        else:
            _T1(x, x_at, depth, w, w_at, scales, s_at, y, y_at, width, groups, units)
            r += 1


@compiled
def _multiply(x, w, scales, y, rows, depth, width, groups, units, first, last):
    """Panels `first` to `last` of y [rows, width], x [rows, depth]."""
    size = w.size // (width // COLUMNS)
    for p in range(first, last):
        c, s_at = p * COLUMNS, p * groups * COLUMNS
        _panel(x, w, p * size, scales, s_at, y, c, rows, depth, width, groups, units)


@compiled
def _multiply_unpacked(x, w, scales, y, rows, depth, width, groups, units, first, last):
    """The same of weights of 4 bits, each panel unpacked once for all rows."""
    size = w.size // (width // COLUMNS)
    wide = np.empty(2 * size, np.int8)
    for p in range(first, last):
        c, s_at = p * COLUMNS, p * groups * COLUMNS
        unpack(w, p * size, wide, size // (COLUMNS * BYTES))
        _panel(x, wide, 0, scales, s_at, y, c, rows, depth, width, groups, units)


def multiply(
    x: NDArray[np.int16], data: NDArray[Any], scales: NDArray[np.float32]
) -> NDArray[np.float32]:
    """[rows, panels * COLUMNS] of x [rows, k].

    data [panels, groups, units, COLUMNS, BYTES]: int8, or uint8 whose byte j holds weight j of 32
    in its low half and weight 16 + j in its high one; scales [panels, groups, COLUMNS].
    """
    panels, groups, units = data.shape[:3]
    rows, depth = x.shape
    y = np.empty((rows, panels * COLUMNS), np.float32)
    flat = [array.reshape(-1) for array in (x, data, scales, y)]
    is_packed = data.dtype == np.uint8
    sizes = rows, depth, y.shape[1], groups, units * (2 if is_packed else 1)
    run = _multiply_unpacked if is_packed and rows >= MANY else _multiply

    def work(first: int, last: int) -> None:
        run(*flat, *sizes, first, last)

    threads = min(num_threads(), rows * depth * y.shape[1] // WORTH)
    if threads < 2:
        work(0, panels)
    else:
        _shared(work, panels, threads)
    return y


@cache
def num_threads() -> int:
    """Threads of a product: the cores; OMP_NUM_THREADS in the environment bounds them."""
    return num_kernel_threads(num_cores())


@cache
def _others() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, num_threads() - 1), "few-bits")


def _shared(work: Callable[[int, int], None], total: int, threads: int) -> None:
    """`work` on parts of 0 to `total`. Nobody waits for a thread that has not begun."""
    num = threads * SHARES
    turns = itertools.count()

    def take_turns() -> None:
        while (i := next(turns)) < num:
            work(total * i // num, total * (i + 1) // num)

    helping = [_others().submit(take_turns) for _ in range(threads - 1)]
    take_turns()
    for each in helping:
        if not each.cancel():
            each.result()

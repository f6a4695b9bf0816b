"""Products with weights of 8 or 4 bits, compiled. In: float32 rows. Out: float32.

x is rounded to 8 bits, in steps of its group's largest over 127. Then
y[r, c] = sum over groups g of step[r, g] * scale[c, g] * (sum over k in g of x[r, k] * q[c, k]):
the inner sums are of integers and exact, the outer one runs over g from 0 upwards. So a row's bits
depend on that row alone. Weights are read where they lie, once for as many rows as a
tile has; they may be a file's pages.
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
from streamer.model.kernels.few_bits_fours import COLUMNS, LINE, MOST_ROWS
from streamer.model.kernels.few_bits_tile import tile
from streamer.model.kernels.threads import num_cores, num_kernel_threads

SHARES = 4  # per thread: one that comes late takes fewer
WORTH = 1_000_000  # multiplications of one row that are worth a thread: 0.1 ms of it
SPARE = 64  # of a row, so that rows do not lie in the same places of the processor's cache

f4 = np.float32
STEPS = f4(127)
_LEAST = f4(1e-30)
_SHIFT = f4(12582912.0)  # 1.5 * 2**23: what is added to it is rounded to an integer
_ZERO = f4(0)
_NO_SIGN = np.int32(0x7FFFFFFF)


@part
def _largest(bits):
    """Of floats, by their bits: as integers they vectorise; NaN is the largest."""
    top = np.int32(0)
    for i in range(len(bits)):
        top = max(top, bits[i] & _NO_SIGN)
    return top


@part
def _rounded(x, inverse, q):
    """x in 8 bits, into q; their sum."""
    total = np.int32(0)
    for i in range(len(q)):
        whole = np.int32((x[i] * inverse + _SHIFT) - _SHIFT)
        q[i] = whole
        total += whole
    return total


@compiled
def _round(x, rows, inner, q, q_step, steps, starts, groups, group, middle):
    """q [rows, q_step] and steps [rows, groups] of x [rows, inner]; starts: -middle times a group's
    sum."""
    bits, top_bits = x.view(np.int32), steps.view(np.int32)
    for r in range(rows):
        for g in range(groups):
            # slices begin at 0, so that the loop over one vectorises
            first, to, at = r * inner + g * group, r * q_step + g * group, r * groups + g
            count = min(group, inner - g * group)
            top_bits[at] = _largest(bits[first : first + count])
            largest = _LEAST if steps[at] < _LEAST else steps[at]
            steps[at] = largest / STEPS
            total = _rounded(x[first : first + count], STEPS / largest, q[to : to + count])
            q[to + count : to + group] = 0
            starts[at] = -middle * total


@part
def _write(sums, bias, y, rows, width, p):
    """A panel's columns of y [rows, width], as far as there are so many."""
    first = p * COLUMNS
    for r in range(rows):
        for i in range(min(COLUMNS, width - first)):
            shift = bias[first + i] if bias.size else _ZERO
            y[r * width + first + i] = sums[r * COLUMNS + i] + shift


@compiled
def _multiply(
    x, x_step, starts, steps, w, scales, bias, y, rows, width, groups, lines, first, last
):
    """Panels `first` to `last` of y [rows, width]; x [rows, x_step], `starts` and `steps` as
    `_round` gives them."""
    sums = np.empty(rows * COLUMNS, np.float32)
    for p in range(first, last):
        w_at, s_at, r = p * groups * lines * LINE, p * groups * COLUMNS, 0
        while r < rows:
            left = rows - r
            tiles = (left + MOST_ROWS - 1) // MOST_ROWS
            some = (left + tiles - 1) // tiles
            at, g_at, y_at = r * x_step, r * groups, r * COLUMNS
            of_rows = x, at, x_step, starts, steps, g_at
            tile(some, *of_rows, w, w_at, scales, s_at, sums, y_at, groups, lines)
            r += some
        _write(sums, bias, y, rows, width, p)


def multiply(
    x: NDArray[np.float32],
    data: NDArray[Any],
    scales: NDArray[np.float32],
    width: int,
    bias: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """[rows, width] of x [rows, k], with `bias` [width].

    data [panels, groups, lines, LINE]: int8, a line holds 4 weights of each column, as [COLUMNS,
    4]; or uint8, the same of bytes of two weights of 4 bits, plus 8: the first four are in the low
    bits, the next in the high ones. scales [panels, groups, COLUMNS].
    """
    panels, groups, lines = data.shape[:3]
    rows, inner = x.shape
    packed = data.dtype == np.uint8
    group = lines * LINE // COLUMNS * (2 if packed else 1)
    x_step = groups * group + SPARE
    q, steps = np.empty(rows * x_step, np.int8), np.empty(rows * groups, np.float32)
    starts = np.empty(rows * groups, np.int32)
    middle = np.int32(8 if packed else 128)
    _round(x.reshape(-1), rows, inner, q, x_step, steps, starts, groups, group, middle)
    y = np.empty((rows, width), np.float32)
    shift = np.empty(0, np.float32) if bias is None else bias
    flat = q, x_step, starts, steps, data.reshape(-1), scales.reshape(-1), shift, y.reshape(-1)
    sizes = rows, width, groups, lines

    def work(first: int, last: int) -> None:
        _multiply(*flat, *sizes, first, last)

    shared(work, panels, min(num_threads(), rows * inner * width // WORTH))
    return y


@cache
def num_threads() -> int:
    """Threads of a product: the cores; OMP_NUM_THREADS in the environment bounds them."""
    return num_kernel_threads(num_cores())


@cache
def _others() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, num_threads() - 1), "few-bits")


def shared(work: Callable[[int, int], None], total: int, threads: int) -> None:
    """`work` on parts of 0 to `total`. Nobody waits for a thread that has not begun."""
    if threads < 2:
        work(0, total)
        return
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

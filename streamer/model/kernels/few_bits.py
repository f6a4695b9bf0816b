"""Products with weights of 8 or 4 bits, compiled. In: float32 rows. Out: float32.

x is rounded to 16 bits, in steps of its row's largest over 32,767. Then
y[r, c] = step[r] * sum over groups g of scale[c, g] * (sum over k in g of x[r, k] * q[c, k]): the
inner sums are of integers and exact, the outer one runs over g from 0 upwards. So a row's bits
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
from streamer.model.kernels.few_bits_tile import COLUMNS, LINE, MANY, MOST_ROWS, tile, unpack
from streamer.model.kernels.threads import num_cores, num_kernel_threads

SHARES = 4  # per thread: one that comes late takes fewer
WORTH = 1_000_000  # multiplications of one row that are worth a thread: 0.1 ms of it
BLOCK = 512  # weights of a column that are unpacked at once: 16 KB of a panel, half of what is near
SPARE = 32  # of a row, so that rows do not lie in the same places of the processor's cache

f4 = np.float32
STEPS = f4(32_767)
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
    """x in 16 bits, into q; their sum."""
    total = np.int32(0)
    for i in range(len(q)):
        whole = np.int32((x[i] * inverse + _SHIFT) - _SHIFT)
        q[i] = whole
        total += whole
    return total


@compiled
def _round(x, rows, inner, q, q_step, steps, starts, groups, group):
    """q [rows, q_step] and steps of x [rows, inner]; starts: -8 times a group's sum."""
    bits, top_bits = x.view(np.int32), steps.view(np.int32)
    for r in range(rows):
        at = r * inner
        top_bits[r] = _largest(bits[at : at + inner])
        largest = _LEAST if steps[r] < _LEAST else steps[r]
        steps[r] = largest / STEPS
        inverse = STEPS / largest
        for g in range(groups):
            # slices begin at 0, so that the loop over one vectorises
            first = at + g * group
            to = r * q_step + g * group
            count = min(group, inner - g * group)
            total = _rounded(x[first : first + count], inverse, q[to : to + count])
            q[to + count : to + group] = 0
            starts[r * groups + g] = np.int32(-8) * total


@part
def _rows(x, x_at, x_step, starts, groups_of_row, w, w_at, scales, s_at, y, rows, groups, lines):
    """y[rows, COLUMNS] += x times the panel at `w_at`, so many groups of it."""
    r = 0
    while r < rows:
        left = rows - r
        tiles = (left + MOST_ROWS - 1) // MOST_ROWS
        some = (left + tiles - 1) // tiles
        at, t_at, step = x_at + r * x_step, r * groups_of_row, groups_of_row
        y_at = r * COLUMNS
        tile(some, x, at, x_step, starts, t_at, step, w, w_at, scales, s_at, y, y_at, groups, lines)
        r += some


@part
def _write(sums, steps, bias, y, rows, width, p):
    """A panel's columns of y [rows, width], as far as there are so many."""
    first = p * COLUMNS
    for r in range(rows):
        for i in range(min(COLUMNS, width - first)):
            shift = bias[first + i] if bias.size else _ZERO
            y[r * width + first + i] = sums[r * COLUMNS + i] * steps[r] + shift


@compiled
def _multiply(
    x, step, starts, w, scales, steps, bias, y, rows, width, groups, lines, group, first, last
):
    """Panels `first` to `last` of y [rows, width]; x [rows, step] and `starts` as `_round` gives
    them."""
    size = groups * lines * LINE
    sums = np.empty(rows * COLUMNS, np.float32)
    for p in range(first, last):
        sums[:] = _ZERO
        s_at = p * groups * COLUMNS
        _rows(x, 0, step, starts, groups, w, p * size, scales, s_at, sums, rows, groups, lines)
        _write(sums, steps, bias, y, rows, width, p)


@compiled
def _multiply_many(
    x, step, starts, w, scales, steps, bias, y, rows, width, groups, lines, group, first, last
):
    """The same; a panel is unpacked once for all rows, by parts that stay near."""
    at_once = max(1, BLOCK // group)
    wide = np.empty(at_once * group * COLUMNS, np.int16)
    sums = np.empty(rows * COLUMNS, np.float32)
    for p in range(first, last):
        sums[:] = _ZERO
        for g in range(0, groups, at_once):
            num, before = min(at_once, groups - g), p * groups + g
            unpack(w, before * lines * LINE, wide, num * lines)
            x_at, s_at, pairs = g * group, before * COLUMNS, group // 2
            _rows(x, x_at, step, starts, 0, wide, 0, scales, s_at, sums, rows, num, pairs)
        _write(sums, steps, bias, y, rows, width, p)


def multiply(
    x: NDArray[np.float32],
    data: NDArray[Any],
    scales: NDArray[np.float32],
    width: int,
    bias: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """[rows, width] of x [rows, k], with `bias` [width].

    data [panels, groups, lines, LINE]: int8, a line holds 4 weights of each column, as [2 pairs,
    COLUMNS, 2]; or uint8, 8 weights of 4 bits, plus 8: matrix.py has their order. scales [panels,
    groups, COLUMNS].
    """
    panels, groups, lines = data.shape[:3]
    rows, inner = x.shape
    group = lines * LINE // COLUMNS * (2 if data.dtype == np.uint8 else 1)
    step = groups * group + SPARE
    q, steps = np.empty(rows * step, np.int16), np.empty(rows, np.float32)
    starts = np.empty(rows * groups, np.int32)
    _round(x.reshape(-1), rows, inner, q, step, steps, starts, groups, group)
    y = np.empty((rows, width), np.float32)
    shift = np.empty(0, np.float32) if bias is None else bias
    flat = q, step, starts, data.reshape(-1), scales.reshape(-1), steps, shift, y.reshape(-1)
    sizes = rows, width, groups, lines, group
    run = _multiply_many if rows >= MANY else _multiply

    def work(first: int, last: int) -> None:
        run(*flat, *sizes, first, last)

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

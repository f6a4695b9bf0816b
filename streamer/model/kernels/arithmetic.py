"""The arithmetic of the kernels: products and e^x.

One thread, no allocation. Every row goes through the same operations in the same order, whatever
rows stand beside it and however many ids it is fed: its logits are the same bits. Padding up to
PANEL holds zeros throughout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from streamer.model.kernels.library import PANEL
from streamer.model.kernels.simd import MAX_ROWS, MOST_ROWS, fma, keep_apart, make_tile, two_to

f4 = np.float32
# Tiles by their rows: as many as fit in registers, half of them, and fewer.
_TM, _TN, _T2, _T1 = (make_tile(rows, 1) for rows in (MOST_ROWS, MAX_ROWS, 2, 1))
_T12 = make_tile(1, 2)
_LEAST = f4(-80.0)
_MOST = f4(87.0)
_LOG2_E = f4(1.44269504)
_SHIFT = f4(12582912.0)
_LN2_HIGH = f4(0.693359375)
_LN2_LOW = f4(-2.12194440e-4)
# e^r for |r| <= ln 2 / 2, relative error 2e-8: the coefficients of Cephes' expf.
_E0 = f4(1.9875691500e-4)
_E1 = f4(1.3981999507e-3)
_E2 = f4(8.3334519073e-3)
_E3 = f4(4.1665795894e-2)
_E4 = f4(1.6666665459e-1)
_E5 = f4(5.0000001201e-1)
_ONE = f4(1.0)
_ZERO = f4(0.0)


def compiled(function: Any) -> Any:
    """A function that other kernels call. It has no door to Python and counts no references, which
    halves the time to compile it."""
    options = {"_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return njit(nogil=True, error_model="numpy", **options)(function)


def part(function: Any) -> Any:
    """A part of one large kernel: its code is copied into its callers."""
    return njit(nogil=True, error_model="numpy", inline="always")(function)


@compiled
def exp(x):
    """e^x within 1e-7, 0 below e^-80, e^87 above; without a branch, so that loops vectorise."""
    given = x
    x = x if x > _LEAST else _LEAST
    x = x if x < _MOST else _MOST
    shifted = fma(x, _LOG2_E, _SHIFT)
    n = shifted - _SHIFT
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))
    p = fma(fma(fma(fma(fma(_E0, r, _E1), r, _E2), r, _E3), r, _E4), r, _E5)
    power = fma(p, r * r, r + _ONE) * two_to(shifted)
    # products of smaller numbers would be denormal, a hundred times as slow
    return power if given > _LEAST else _ZERO


@compiled
def padded_to_panels(width):
    return (width + PANEL - 1) // PANEL * PANEL


@compiled
def fill(x, count, value):
    """x[:count] = value."""
    keep_apart()
    for i in range(count):
        x[i] = value


@compiled
def multiply(x, x_step, w, w_at, w_step, w_next, y, y_step, rows, depth, panels):
    """y[rows, panels * PANEL] += x[rows, depth] @ w, each panel for all rows while it is near."""
    keep_apart()
    p = 0
    while rows == 1 and p + 2 <= panels:  # two panels at once: eight sums hide the latency of one
        _T12(x, 0, x_step, w, w_at + p * w_next, w_step, w_next, y, p * PANEL, y_step, depth)
        p += 2
    while p < panels:
        w_p = w_at + p * w_next
        y_p = p * PANEL
        m = 0
        while rows - m >= MOST_ROWS:
            _TM(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + y_p, y_step, depth)
            m += MOST_ROWS
        while rows - m >= MAX_ROWS:
            _TN(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + y_p, y_step, depth)
            m += MAX_ROWS
        while rows - m >= 2:
            _T2(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + y_p, y_step, depth)
            m += 2
        if rows - m == 1:
            _T1(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + y_p, y_step, depth)
        p += 1


@part
def product(x, x_step, weights, at, y, rows, depth, columns):
    """y [rows, columns] += x [rows, depth] @ the matrix at `at`; where the next one begins."""
    panel = np.int64(PANEL)  # a constant would be another type, and `multiply` compiled again
    multiply(
        x, x_step, weights, at, panel, depth * panel, y, columns, rows, depth, columns // panel
    )
    return at + depth * columns


@compiled
def spread(vector, out, rows, width):
    """Every row of out [rows, width] becomes `vector`."""
    keep_apart()
    for m in range(rows):
        to = out[m * width : (m + 1) * width]
        for i in range(width):
            to[i] = vector[i]


@part
def filter_rows(x, w, sizes, y):
    """y [rows, columns] += x [rows, depth] @ w, a matrix in panels. sizes: rows, depth, columns."""
    product(x, sizes[1], w, sizes[0] - sizes[0], y, sizes[0], sizes[1], sizes[2])

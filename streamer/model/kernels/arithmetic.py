"""What every kernel is made of, compiled by numba for this processor: products of matrices, e^x.
In: flat float32 arrays. Out: written into them.

One thread, no allocation, no GIL. Every row goes through the same operations in the same order
whatever rows stand beside it and however many ids it is fed: its logits are the same bits. Padding
up to PANEL holds zeros throughout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from streamer.model.kernels.cache import keep
from streamer.model.kernels.simd import (
    MAX_ROWS,
    MOST_ROWS,
    PANEL,
    fma,
    keep_apart,
    make_tile,
    two_to,
)

f4 = np.float32
_T11, _T12, _T2, _T22, _T3, _T4, _T5, _TN, _TM = (
    make_tile(*size)
    for size in (
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
        (3, 1),
        (4, 1),
        (5, 1),
        (MAX_ROWS, 1),
        (MOST_ROWS, 1),
    )
)
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
    """njit, kept on disk where a safe directory is found: compiling takes seconds, once per machine
    and version of the sources."""
    return keep(njit(nogil=True, error_model="numpy")(function))


def part(function: Any) -> Any:
    """njit for a part of one large kernel: its code is in its callers, compiled once."""
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
    # products of what is left would be denormal, a hundred times as slow
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
    if rows == 1:  # two panels at once: eight sums hide the latency of one
        while p + 2 <= panels:
            _T12(x, 0, x_step, w, w_at + p * w_next, w_step, w_next, y, p * PANEL, y_step, depth)
            p += 2
    if rows == 2:
        while p + 2 <= panels:
            _T22(x, 0, x_step, w, w_at + p * w_next, w_step, w_next, y, p * PANEL, y_step, depth)
            p += 2
    while p < panels:
        w_p = w_at + p * w_next
        m = 0
        while rows - m >= MOST_ROWS:
            _TM(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + p * PANEL, y_step, depth)
            m += MOST_ROWS
        while rows - m >= MAX_ROWS:
            _TN(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + p * PANEL, y_step, depth)
            m += MAX_ROWS
        if rows - m == 5:
            _T5(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + p * PANEL, y_step, depth)
        elif rows - m == 4:
            _T4(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + p * PANEL, y_step, depth)
        elif rows - m == 3:
            _T3(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + p * PANEL, y_step, depth)
        elif rows - m == 2:
            _T2(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + p * PANEL, y_step, depth)
        elif rows - m == 1:
            _T11(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + p * PANEL, y_step, depth)
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

"""Products with weights of 8 or 4 bits, and attention beside them: some panels, some rows.

x is rounded to 8 bits, in steps of its group's largest over 127. Then
y[r, c] = sum over groups g of step[r, g] * scale[c, g] * (sum over k in g of x[r, k] * q[c, k]):
the inner sums are of integers and exact, the outer one runs over g from 0 upwards. So a row's bits
depend on that row alone. Weights are read where they lie, once for as many rows as a tile has; they
may be a file's pages. Arrays are flat, and results are written into them.
"""

from __future__ import annotations

import numpy as np

from streamer.extras.large.tile import COLUMNS, LINE, MOST_ROWS, compiled, tile
from streamer.model.kernels.arithmetic import part
from streamer.model.kernels.attention import COUNT, FIRST, SLOT, START, attend_head, store
from streamer.model.kernels.layers import rotate
from streamer.model.kernels.library import BLOCK, PANEL, QUERIES

SPARE = 64  # of a row, so that rows do not lie in the same places of the processor's cache

f4 = np.float32
STEPS = f4(127)
_LEAST = f4(1e-30)
_SHIFT = f4(12582912.0)  # 1.5 * 2**23: what is added to it is rounded to an integer
_ZERO = f4(0)
_NO_SIGN = np.int32(0x7FFFFFFF)


@part
def _largest(bits):
    """The largest of floats by their bits: as integers they vectorise; NaN is the largest."""
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
def to_bytes(x, first, last, inner, q, q_step, steps, starts, group, middle):
    """Rows `first` to `last` of q [rows, q_step] and steps [rows, groups] of x [rows, inner];
    starts: -middle times a group's sum."""
    groups = (inner + group - 1) // group
    bits, top_bits = x.view(np.int32), steps.view(np.int32)
    for r in range(first, last):
        for g in range(groups):
            # slices begin at 0, so that the loop over one vectorises
            begin, to, at = r * inner + g * group, r * q_step + g * group, r * groups + g
            count = min(group, inner - g * group)
            top_bits[at] = _largest(bits[begin : begin + count])
            largest = _LEAST if steps[at] < _LEAST else steps[at]
            steps[at] = largest / STEPS
            total = _rounded(x[begin : begin + count], STEPS / largest, q[to : to + count])
            q[to + count : to + group] = 0
            starts[at] = -middle * total


@part
def _write(sums, bias, y, rows, width, p):
    """A panel's columns of y [rows, width], up to the width."""
    first = p * COLUMNS
    for r in range(rows):
        for i in range(min(COLUMNS, width - first)):
            shift = bias[first + i] if bias.size else _ZERO
            y[r * width + first + i] = sums[r * COLUMNS + i] + shift


@compiled
def multiply_panels(
    x, x_step, starts, steps, w, scales, bias, y, rows, width, groups, lines, first, last
):
    """Panels `first` to `last` of y [rows, width]; x [rows, x_step], `starts` and `steps` as
    `to_bytes` gives them."""
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


@compiled
def keep(qkv, spans, heads, kv_heads, dim, length, cos, sin, keys, values):
    """Rotate queries and keys in place, and keep keys and values in their slots."""
    step = (heads + 2 * kv_heads) * dim
    rotate(qkv, step, spans, heads + kv_heads, dim, cos, sin)
    store(qkv, step, spans, heads, kv_heads, dim, length, keys, values)


@compiled
def attend_parts(qkv, spans, rows, first, last, heads, kv_heads, dim, length, keys, values, out):
    """Parts `first` to `last` of rows * kv_heads: part h * rows + m is packed row m's of key head
    h. So one row alone has work for as many threads as there are key heads."""
    step, group = (heads + 2 * kv_heads) * dim, heads // kv_heads
    most = min(last - first, rows, QUERIES) * group
    room = (
        np.empty(most * BLOCK, np.float32),
        np.empty(most * dim, np.float32),
        np.empty(most * ((dim + PANEL - 1) // PANEL * PANEL), np.float32),
        np.empty(most, np.float32),
        np.empty(most, np.float32),
    )
    for h in range(first // rows, (last - 1) // rows + 1):
        for r in range(len(spans)):
            begins, n = spans[r, FIRST], spans[r, COUNT]
            a = max(first - h * rows, begins)
            b = min(last - h * rows, begins + n)
            if a < b:
                mine = (a, spans[r, START] + a - begins, b - a)
                at = spans[r, SLOT] * kv_heads + h
                sizes, cache = (group, dim, length), (keys, values)
                step_out = heads * dim
                attend_head(
                    qkv, step, mine, a - a, at, h * group, sizes, cache, out, step_out, room
                )

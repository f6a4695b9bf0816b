"""Products with weights of 8 or 4 bits and the layers made of them, by as many threads as come.

x is rounded to 8 bits, in steps of its group's largest over 127. Then
y[r, c] = sum over groups g of step[r, g] * scale[c, g] * (sum over k in g of x[r, k] * q[c, k]):
the inner sums are of integers and exact, the outer one runs over g from 0 upwards. So a row's bits
depend on that row alone. Weights are read where they lie, once for as many rows as a tile has; they
may be a file's pages. Arrays are flat, and results are written into them.

Every thread runs the same function over the same arrays. The work is cut into phases, and each
phase into shares. A thread takes the next share from a counter, and goes on when all shares of the
phase are done. A thread that comes late finds no share left, and no thread waits for it. So a step
of hundreds of products of 0.1 ms wakes its threads once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit, types
from numba.extending import intrinsic

from streamer.extras.large.tile import COLUMNS, LINE, MOST_ROWS, compiled, tile
from streamer.model.kernels.arithmetic import at_address, begin_of, f4
from streamer.model.kernels.layers import (
    COUNT,
    FIRST,
    SLOT,
    START,
    add,
    attend_head,
    gated,
    normalise,
    rotate,
    store,
    work_numbers,
)
from streamer.model.kernels.library import QUERIES

SPARE = 64  # of a row, so that rows do not lie in the same places of the processor's cache
APART = 8  # counters of a phase have a cache line of their own: the next share, and those done
SHARES_EACH = 4  # per thread: one that comes late takes fewer
PHASES = 10  # of a layer
PLAIN, NORMED, GATED = range(3)  # what happens to rows before a product
give_way = types.ExternalFunction("sched_yield", types.intc())  # another thread gets this core
_SHIFT = f4(12582912.0)  # 1.5 * 2**23: what is added to it is rounded to an integer


@intrinsic
def add_to(_context: Any, cells: Any, _index: Any, _value: Any) -> Any:
    """cells[index] += value, atomically; what it was before."""

    def codegen(context: Any, b: Any, signature: Any, values: Any) -> Any:
        cell = begin_of(context, b, signature.args[0], values[0], values[1])
        return b.atomic_rmw("add", cell, values[2], "seq_cst")

    return types.int64(cells, types.intp, types.int64), codegen


@njit(nogil=True)  # not `compiled`: numba reads back an incomplete generator
def shares(cells, phase, threads, count):
    """(first, last) of the parts of `count` things that this thread does, one after the other; it
    ends when all are done."""
    num = min(count, SHARES_EACH * threads)
    turn = add_to(cells, phase * APART, 1)
    while turn < num:
        yield count * turn // num, count * (turn + 1) // num
        add_to(cells, phase * APART + 1, 1)
        turn = add_to(cells, phase * APART, 1)
    while add_to(cells, phase * APART + 1, 0) < num:
        give_way()


@compiled
def to_bytes(x, first, last, inner, room, form):
    """Rows `first` to `last` of x [rows, inner] as `room`: in 8 bits, a group's step, and -middle
    times a group's sum. form: weights of a group, its lines, and the number that stands for 0."""
    group, _, middle = form
    q, steps, starts = room
    groups = (inner + group - 1) // group
    for r in range(first, last):
        for g in range(groups):
            # slices begin at 0, so that the loops over them vectorise
            begin = r * inner + g * group
            to = r * (groups * group + SPARE) + g * group
            at = r * groups + g
            own = x[begin : begin + min(group, inner - g * group)]
            whole = q[to : to + group]
            # as integers, their bits without the sign vectorise; NaN is the largest
            bits, top = own.view(np.int32), np.int32(0)
            for i in range(len(bits)):
                top = max(top, bits[i] & np.int32(0x7FFFFFFF))
            steps.view(np.int32)[at] = top
            largest = f4(1e-30) if steps[at] < f4(1e-30) else steps[at]
            steps[at] = largest / f4(127)
            inverse, total = f4(127) / largest, np.int32(0)
            whole[len(own) :] = 0
            for i in range(len(own)):
                number = np.int32((own[i] * inverse + _SHIFT) - _SHIFT)
                whole[i] = number
                total += number
            starts[at] = -middle * total


@compiled
def prepare(
    cells, phase, threads, what, x, change, norm, wide, given, rows, hidden, inner, eps, room, form
):
    """Rows [rows, inner] of `given` in 8 bits, into `room`. NORMED: they are x + change, which x
    becomes, normalised; GATED: silu(gate) * up of `wide`; PLAIN: they are there."""
    for first, last in shares(cells, phase, threads, rows):
        to = given[first * inner : last * inner]
        if what == NORMED:
            own = x[first * hidden : last * hidden]
            add(own, change[first * hidden : last * hidden], 1, len(own))
            normalise(own, norm, to, last - first, hidden, hidden, eps)
        elif what == GATED:
            gated(wide[first * 2 * inner :], 2 * inner, to, last - first, inner)
        to_bytes(given, first, last, inner, room, form)


@compiled
def product(cells, phase, threads, room, own, of, y, rows, width, inner, form):
    """y [rows, width]: the rows in `room` times the matrix at the addresses `own`: weights of the
    type of `of`, scales, and bias or 0."""
    group, lines, _ = form
    x, steps, starts = room
    groups = (inner + group - 1) // group
    x_step = groups * group + SPARE
    panels = (width + COLUMNS - 1) // COLUMNS
    w = carray(at_address(own[0]), panels * groups * lines * LINE, of.dtype)
    scales = carray(at_address(own[1]), panels * groups * COLUMNS, np.float32)
    bias = carray(at_address(own[2]), width if own[2] else 0, np.float32)
    sums = np.empty(rows * COLUMNS, np.float32)
    for first, last in shares(cells, phase, threads, panels):
        for p in range(first, last):
            w_at, s_at, r = p * groups * lines * LINE, p * groups * COLUMNS, 0
            while r < rows:
                left = rows - r
                tiles = (left + MOST_ROWS - 1) // MOST_ROWS
                some = (left + tiles - 1) // tiles
                of_rows = x, r * x_step, x_step, starts, steps, r * groups
                tile(some, *of_rows, w, w_at, scales, s_at, sums, r * COLUMNS, groups, lines)
                r += some
            for r in range(rows):
                for i in range(p * COLUMNS, min((p + 1) * COLUMNS, width)):
                    shift = bias[i] if bias.size else f4(0)
                    y[r * width + i] = sums[r * COLUMNS + i - p * COLUMNS] + shift


@compiled
def times(cells, threads, x, rows, inner, own, of, y, width, room, form):
    """y [rows, width] = x [rows, inner] times a matrix."""
    prepare(cells, 0, threads, PLAIN, x, x, x, x, x, rows, inner, inner, f4(0), room, form)
    product(cells, 1, threads, room, own, of, y, rows, width, inner, form)


@compiled
def _attend(cells, phase, threads, qkv, step, spans, rows, sizes, cache, out):
    """A share is of rows * kv_heads: part h * rows + m is packed row m's of key head h. So one row
    alone has work for as many threads as there are key heads."""
    heads, kv_heads, dim, _ = sizes
    group, wide = heads // kv_heads, heads * dim
    for first, last in shares(cells, phase, threads, rows * kv_heads):
        most = max(group, min(last - first, rows, QUERIES))
        work = np.empty(most * work_numbers(dim), np.float32)
        for h in range(first // rows, (last - 1) // rows + 1):
            for r in range(len(spans)):
                begins = spans[r, FIRST]
                a = max(first - h * rows, begins)
                n = min(last - h * rows, begins + spans[r, COUNT]) - a
                if n > 0:
                    start, at = spans[r, START] + a - begins, spans[r, SLOT] * kv_heads + h
                    head = h * group * dim
                    own, to = qkv[a * step + head :], out[a * wide + head :]
                    attend_head(own, step, start, n, a - a, at, sizes, cache, to, wide, work)


@compiled
def feed(cells, threads, x, spans, sizes, eps, table, of, angles, slots, rooms, form):
    """All layers' work on x [rows, hidden]; `change` must be added to it afterwards.

    table [layers, 14]: addresses of a layer's two norms, and of weights, scales and bias of qkv,
    out, gate_up and down. of: an array of the weights' type. slots: keys and values, [layers, ...].
    rooms: what a product takes, its wide result, what x gets (zeros at first), and for `prepare`.
    """
    heads, kv_heads, dim, hidden, ffn, length = sizes
    given, wide, change, room = rooms
    rows, inner, both = len(x) // hidden, heads * dim, (heads + 2 * kv_heads) * dim
    few = heads, kv_heads, dim, length
    for i in range(len(table)):
        own, at, cache = table[i], i * PHASES, (slots[0][i], slots[1][i])
        norm_in = carray(at_address(own[0]), hidden, np.float32)
        norm_mlp = carray(at_address(own[1]), hidden, np.float32)
        rest = wide, given, rows, hidden
        prepare(cells, at, threads, NORMED, x, change, norm_in, *rest, hidden, eps, room, form)
        product(cells, at + 1, threads, room, own[2:5], of, wide, rows, both, hidden, form)
        for _ in shares(cells, at + 2, threads, 1):  # one thread does it
            rotate(wide, both, spans, heads + kv_heads, dim, angles)
            store(wide, both, spans, few, cache)
        _attend(cells, at + 3, threads, wide, both, spans, rows, few, cache, given)
        prepare(cells, at + 4, threads, PLAIN, x, change, norm_in, *rest, inner, eps, room, form)
        product(cells, at + 5, threads, room, own[5:8], of, change, rows, hidden, inner, form)
        prepare(cells, at + 6, threads, NORMED, x, change, norm_mlp, *rest, hidden, eps, room, form)
        product(cells, at + 7, threads, room, own[8:11], of, wide, rows, 2 * ffn, hidden, form)
        prepare(cells, at + 8, threads, GATED, x, change, norm_in, *rest, ffn, eps, room, form)
        product(cells, at + 9, threads, room, own[11:14], of, change, rows, hidden, ffn, form)

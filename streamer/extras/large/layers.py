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
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from streamer.extras.large.tile import COLUMNS, LINE, MOST_ROWS, compiled, tile
from streamer.model.kernels.arithmetic import f4, part
from streamer.model.kernels.attention import (
    COUNT,
    FIRST,
    SLOT,
    START,
    attend_head,
    attention_room,
    store,
)
from streamer.model.kernels.layers import add, gated, normalise, rotate
from streamer.model.kernels.library import BLOCK, PANEL, QUERIES
from streamer.model.kernels.simd import at_address

SPARE = 64  # of a row, so that rows do not lie in the same places of the processor's cache
APART = 8  # counters of a phase have a cache line of their own: the next share, and those done
SHARES_EACH = 4  # per thread: one that comes late takes fewer
PHASES = 10  # of a layer
PLAIN, NORMED, GATED = range(3)  # what happens to rows before a product

STEPS = f4(127)
_LEAST = f4(1e-30)
_SHIFT = f4(12582912.0)  # 1.5 * 2**23: what is added to it is rounded to an integer
_ZERO = f4(0)
_NO_SIGN = np.int32(0x7FFFFFFF)


@intrinsic
def add_to(_context: Any, cells: Any, _index: Any, _value: Any) -> Any:
    """cells[index] += value, atomically; what it was before."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, b, values[0])
        return b.atomic_rmw("add", b.gep(array.data, [values[1]]), values[2], "seq_cst")

    return types.int64(cells, types.intp, types.int64), codegen


@intrinsic
def give_way(_context: Any) -> Any:
    """Let another thread have this core, if one wants it."""

    def codegen(context: Any, b: ir.IRBuilder, _signature: Any, _values: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [])
        b.call(cgutils.get_or_insert_function(b.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), codegen


@compiled
def next_share(cells, phase, threads, count):
    """(first, last) of `count` things that this thread does next; empty where none is left, when
    all are done."""
    shares = min(count, SHARES_EACH * threads)
    turn = add_to(cells, phase * APART, 1)
    if turn < shares:
        return count * turn // shares, count * (turn + 1) // shares
    while add_to(cells, phase * APART + 1, 0) < shares:
        give_way()
    return 0, 0


@compiled
def end_share(cells, phase):
    add_to(cells, phase * APART + 1, 1)


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
def to_bytes(x, first, last, inner, room, form):
    """Rows `first` to `last` of x [rows, inner] as `room`: in 8 bits, a group's step, and -middle
    times a group's sum. form: weights of a group, its lines, and the number that stands for 0."""
    group, _, middle = form
    q, steps, starts = room
    groups = (inner + group - 1) // group
    q_step = groups * group + SPARE
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
def prepare(
    cells, phase, threads, what, x, change, norm, wide, given, rows, hidden, inner, eps, room, form
):
    """Rows [rows, inner] of `given` in 8 bits, into `room`. NORMED: they are x + change, which x
    becomes, normalised; GATED: silu(gate) * up of `wide`; PLAIN: they are there."""
    while True:
        first, last = next_share(cells, phase, threads, rows)
        if first == last:
            break
        to = given[first * inner : last * inner]
        if what == NORMED:
            own = x[first * hidden : last * hidden]
            add(own, change[first * hidden : last * hidden], 1, len(own))
            normalise(own, norm, to, last - first, hidden, hidden, eps)
        elif what == GATED:
            gated(wide[first * 2 * inner :], 2 * inner, to, last - first, inner)
        to_bytes(given, first, last, inner, room, form)
        end_share(cells, phase)


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
    while True:
        first, last = next_share(cells, phase, threads, panels)
        if first == last:
            break
        for p in range(first, last):
            w_at, s_at, r = p * groups * lines * LINE, p * groups * COLUMNS, 0
            while r < rows:
                left = rows - r
                tiles = (left + MOST_ROWS - 1) // MOST_ROWS
                some = (left + tiles - 1) // tiles
                of_rows = x, r * x_step, x_step, starts, steps, r * groups
                tile(some, *of_rows, w, w_at, scales, s_at, sums, r * COLUMNS, groups, lines)
                r += some
            _write(sums, bias, y, rows, width, p)
        end_share(cells, phase)


@compiled
def times(cells, threads, x, rows, inner, own, of, y, width, room, form):
    """y [rows, width] = x [rows, inner] times a matrix."""
    eps = f4(0)
    prepare(cells, 0, threads, PLAIN, x, x, x, x, x, rows, inner, inner, eps, room, form)
    product(cells, 1, threads, room, own, of, y, rows, width, inner, form)


@compiled
def _keep(cells, phase, qkv, spans, sizes, angles, keys, values):
    """Rotate queries and keys in place, and keep keys and values in their slots."""
    heads, kv_heads, dim, length = sizes
    step = (heads + 2 * kv_heads) * dim
    first, last = next_share(cells, phase, 1, 1)
    if first < last:
        rotate(qkv, step, spans, heads + kv_heads, dim, angles[0], angles[1])
        store(qkv, step, spans, heads, kv_heads, dim, length, keys, values)
        end_share(cells, phase)
        next_share(cells, phase, 1, 1)


@compiled
def _attend(cells, phase, threads, qkv, spans, rows, sizes, keys, values, out):
    """A share is of rows * kv_heads: part h * rows + m is packed row m's of key head h. So one row
    alone has work for as many threads as there are key heads."""
    heads, kv_heads, dim, length = sizes
    step, group = (heads + 2 * kv_heads) * dim, heads // kv_heads
    while True:
        first, last = next_share(cells, phase, threads, rows * kv_heads)
        if first == last:
            break
        most = min(last - first, rows, QUERIES) * group
        wide = (dim + PANEL - 1) // PANEL * PANEL
        work = np.empty(most * (BLOCK + dim + wide + 2), np.float32)
        room = attention_room(work, most, dim)
        for h in range(first // rows, (last - 1) // rows + 1):
            for r in range(len(spans)):
                begins, n = spans[r, FIRST], spans[r, COUNT]
                a = max(first - h * rows, begins)
                b = min(last - h * rows, begins + n)
                if a < b:
                    mine = (a, spans[r, START] + a - begins, b - a)
                    at = spans[r, SLOT] * kv_heads + h
                    few, cache = (group, dim, length), (keys, values)
                    attend_head(
                        qkv, step, mine, a - a, at, h * group, few, cache, out, heads * dim, room
                    )
        end_share(cells, phase)


@compiled
def feed(cells, threads, x, spans, sizes, eps, table, of, angles, slots, rooms, form):
    """All layers' work on x [rows, hidden]; `change` must be added to it afterwards.

    table [layers, 14]: addresses of a layer's two norms, and of weights, scales and bias of qkv,
    out, gate_up and down. of: an array of the weights' type. slots: keys and values of all layers.
    rooms: what a product takes, its wide result, what x gets (zeros at first), and for `prepare`.
    """
    heads, kv_heads, dim, hidden, ffn, length = sizes
    given, wide, change, room = rooms
    layers, rows, inner = len(table), len(x) // hidden, heads * dim
    of_keys, of_values = len(slots[0]) // layers, len(slots[1]) // layers
    for i in range(layers):
        own, at = table[i], i * PHASES
        keys = slots[0][i * of_keys : (i + 1) * of_keys]
        values = slots[1][i * of_values : (i + 1) * of_values]
        norm_in = carray(at_address(own[0]), hidden, np.float32)
        norm_mlp = carray(at_address(own[1]), hidden, np.float32)
        rest = x, change, norm_in, wide, given, rows, hidden
        prepare(cells, at, threads, NORMED, *rest, hidden, eps, room, form)
        both = inner + 2 * kv_heads * dim
        product(cells, at + 1, threads, room, own[2:5], of, wide, rows, both, hidden, form)
        few = heads, kv_heads, dim, length
        _keep(cells, at + 2, wide, spans, few, angles, keys, values)
        _attend(cells, at + 3, threads, wide, spans, rows, few, keys, values, given)
        prepare(cells, at + 4, threads, PLAIN, *rest, inner, eps, room, form)
        product(cells, at + 5, threads, room, own[5:8], of, change, rows, hidden, inner, form)
        rest = x, change, norm_mlp, wide, given, rows, hidden
        prepare(cells, at + 6, threads, NORMED, *rest, hidden, eps, room, form)
        product(cells, at + 7, threads, room, own[8:11], of, wide, rows, 2 * ffn, hidden, form)
        prepare(cells, at + 8, threads, GATED, *rest, ffn, eps, room, form)
        product(cells, at + 9, threads, room, own[11:14], of, change, rows, hidden, ffn, form)

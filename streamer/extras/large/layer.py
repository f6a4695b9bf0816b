"""Products in few bits and the layers made of them, by as many threads as come.

Every thread runs the same function over the same arrays. The work is cut into phases, and each
phase into shares. A thread takes the next share from a counter, and goes on when all shares of the
phase are done. A thread that comes late finds no share left, and no thread waits for it. So a step
of hundreds of products of 0.1 ms wakes its threads once. Arrays are flat, and results are written
into them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from streamer.extras.large.panels import SPARE, attend_parts, keep, multiply_panels, to_bytes
from streamer.extras.large.tile import COLUMNS, LINE, compiled
from streamer.model.kernels.arithmetic import f4
from streamer.model.kernels.layers import gated
from streamer.model.kernels.library import PANEL
from streamer.model.kernels.simd import keep_apart, make_fold

APART = 8  # counters of a phase have a cache line of their own: the next share, and those done
SHARES_EACH = 4  # per thread: one that comes late takes fewer
PHASES = 10  # of a layer
PLAIN, NORMED, GATED = range(3)  # what happens to rows before a product


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


@intrinsic
def at_address(_context: Any, _address: Any) -> Any:
    """A pointer for numba.carray, from the address of an array's first number."""

    def codegen(_: Any, b: ir.IRBuilder, _signature: Any, values: Any) -> Any:
        return b.inttoptr(values[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


@compiled
def next_share(cells, phase, shares):
    """The share that this thread does next; -1 where none is left."""
    turn = add_to(cells, phase * APART, 1)
    return turn if turn < shares else -1


@compiled
def end_share(cells, phase):
    add_to(cells, phase * APART + 1, 1)


@compiled
def await_shares(cells, phase, shares):
    while add_to(cells, phase * APART + 1, 0) < shares:
        give_way()


@compiled
def prepare(
    cells, phase, threads, what, x, change, norm, wide, given, rows, hidden, inner, eps, room, form
):
    """Rows [rows, inner] of `given` in 8 bits, into `room`. NORMED: they are x + change, which x
    becomes, normalised; GATED: silu(gate) * up of `wide`; PLAIN: they are there."""
    group, _, middle = form
    q, steps, starts = room
    groups = (inner + group - 1) // group
    shares = min(rows, SHARES_EACH * threads)
    while True:
        turn = next_share(cells, phase, shares)
        if turn < 0:
            break
        first, last = rows * turn // shares, rows * (turn + 1) // shares
        to = given[first * inner : last * inner]
        if what == NORMED:
            own = x[first * hidden : last * hidden]
            _add(own, change[first * hidden : last * hidden], len(own))
            _normalise(own, norm, to, last - first, hidden, eps)
        elif what == GATED:
            gated(wide[first * 2 * inner :], 2 * inner, to, last - first, inner)
        to_bytes(given, first, last, inner, q, groups * group + SPARE, steps, starts, group, middle)
        end_share(cells, phase)
    await_shares(cells, phase, shares)


@compiled
def product(cells, phase, threads, room, w, scales, bias, y, rows, width, inner, form):
    """y [rows, width]: the rows in `room` times a matrix, plus its bias, if it has one."""
    group, lines, _ = form
    q, steps, starts = room
    groups = (inner + group - 1) // group
    panels = (width + COLUMNS - 1) // COLUMNS
    shares = min(panels, SHARES_EACH * threads)
    of_rows = q, groups * group + SPARE, starts, steps
    while True:
        turn = next_share(cells, phase, shares)
        if turn < 0:
            break
        first, last = panels * turn // shares, panels * (turn + 1) // shares
        multiply_panels(*of_rows, w, scales, bias, y, rows, width, groups, lines, first, last)
        end_share(cells, phase)
    await_shares(cells, phase, shares)


@compiled
def times(cells, threads, x, rows, inner, w, scales, bias, y, width, room, form):
    """y [rows, width] = x [rows, inner] times a matrix. form: weights of a group, its lines, and
    the number that stands for 0."""
    eps = f4(0)
    prepare(cells, 0, threads, PLAIN, x, x, x, x, x, rows, inner, inner, eps, room, form)
    product(cells, 1, threads, room, w, scales, bias, y, rows, width, inner, form)


@compiled
def _times(cells, phase, threads, room, own, of, y, rows, width, inner, form):
    """`product` with the matrix at the addresses `own`: weights, scales, bias or 0."""
    group, lines, _ = form
    groups = (inner + group - 1) // group
    panels = (width + COLUMNS - 1) // COLUMNS
    w = carray(at_address(own[0]), panels * groups * lines * LINE, of.dtype)
    scales = carray(at_address(own[1]), panels * groups * COLUMNS, np.float32)
    bias = carray(at_address(own[2]), width if own[2] else 0, np.float32)
    product(cells, phase, threads, room, w, scales, bias, y, rows, width, inner, form)


@compiled
def _attend(cells, phase, threads, qkv, spans, rows, sizes, keys, values, out):
    heads, kv_heads, dim, length = sizes
    parts = rows * kv_heads
    shares = min(parts, SHARES_EACH * threads)
    while True:
        turn = next_share(cells, phase, shares)
        if turn < 0:
            break
        first, last = parts * turn // shares, parts * (turn + 1) // shares
        of_slots = heads, kv_heads, dim, length, keys, values
        attend_parts(qkv, spans, rows, first, last, *of_slots, out)
        end_share(cells, phase)
    await_shares(cells, phase, shares)


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
        _times(cells, at + 1, threads, room, own[2:5], of, wide, rows, both, hidden, form)
        if next_share(cells, at + 2, 1) == 0:
            keep(wide, spans, heads, kv_heads, dim, length, angles[0], angles[1], keys, values)
            end_share(cells, at + 2)
        await_shares(cells, at + 2, 1)
        few = heads, kv_heads, dim, length
        _attend(cells, at + 3, threads, wide, spans, rows, few, keys, values, given)
        prepare(cells, at + 4, threads, PLAIN, *rest, inner, eps, room, form)
        _times(cells, at + 5, threads, room, own[5:8], of, change, rows, hidden, inner, form)
        rest = x, change, norm_mlp, wide, given, rows, hidden
        prepare(cells, at + 6, threads, NORMED, *rest, hidden, eps, room, form)
        _times(cells, at + 7, threads, room, own[8:11], of, wide, rows, 2 * ffn, hidden, form)
        prepare(cells, at + 8, threads, GATED, *rest, ffn, eps, room, form)
        _times(cells, at + 9, threads, room, own[11:14], of, change, rows, hidden, ffn, form)


_squares = make_fold("squares")
_ONE = f4(1.0)


@compiled
def _normalise(x, weight, out, rows, width, eps):
    """out = weight * x / rms(x), rows of `width` numbers. A row's sum has one order."""
    keep_apart()
    even = width // PANEL * PANEL
    for m in range(rows):
        row = x[m * width : (m + 1) * width]
        to = out[m * width : (m + 1) * width]
        total = _squares(row, 0, even)
        for i in range(even, width):
            total += row[i] * row[i]
        scale = _ONE / np.sqrt(total / f4(width) + eps)
        for i in range(width):
            to[i] = weight[i] * (row[i] * scale)


@compiled
def _add(x, y, count):
    keep_apart()
    for i in range(count):
        x[i] += y[i]

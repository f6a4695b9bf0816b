"""Parts of the products in few bits: what stays in registers. Used inside kernels."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from streamer.model.kernels.few_bits_fours import (
    CHAINED,
    COLUMNS,
    FLOATS,
    FOURS,
    I8,
    I32,
    LANES,
    LINE,
    MOST_ROWS,
    PARTS,
    SUMS,
    begins_at_starts,
    fetch,
    weights_of,
    with_fours,
)
from streamer.model.kernels.simd import fma_function, splat

Values = list[ir.Value]


@intrinsic
def tile(
    _context: Any,
    rows: Any,
    x: Any,
    x_at: Any,
    x_step: Any,
    starts: Any,
    steps: Any,
    g_at: Any,
    w: Any,
    w_at: Any,
    scales: Any,
    s_at: Any,
    y: Any,
    y_at: Any,
    groups: Any,
    lines: Any,
) -> Any:
    """y[rows, COLUMNS] = x [rows, k] int8 times one panel, group by group; rows: 1 to MOST_ROWS.

    Flat arrays, where to begin, elements of x from one row to the next; lines of a group. w is
    int8, or uint8 that holds two of 4 bits, from 0 to 15. A group's sum begins at `starts` [rows,
    groups] int32, where its weights are taken from 0 on, and counts `steps` [rows, groups] *
    scales. The compiler must not know `lines`: it would unroll, and run out of registers.
    """
    n = types.intp

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, values: Any) -> Any:
        def begin(i: int, at: int) -> ir.Value:
            array = context.make_array(signature.args[i])(context, b, values[i])
            return b.gep(array.data, [values[at]])

        def rows_of(first: ir.Value, step: ir.Value, count: int) -> Values:
            return [b.gep(first, [b.mul(step, step.type(r))]) for r in range(count)]

        done = b.append_basic_block()
        choice = b.switch(values[0], done)
        for count in range(1, MOST_ROWS + 1):
            here = b.append_basic_block()
            choice.add_case(values[0].type(count), here)
            b.position_at_end(here)
            kind, groups = signature.args[7].dtype, values[13]
            panel = _Panel(begin(7, 8), begin(9, 10), kind, groups, values[14])
            starts, steps = (rows_of(begin(i, 6), groups, count) for i in (4, 5))
            rows = _Rows(rows_of(begin(1, 2), values[3], count), starts, steps)
            _emit(b, rows, panel, begin(11, 12))
            b.branch(done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return types.void(n, x, n, n, starts, steps, n, w, n, scales, n, y, n, n, n), codegen


class _Panel(NamedTuple):
    w: ir.Value
    scales: ir.Value
    kind: Any
    groups: ir.Value
    lines: ir.Value  # of a group


class _Rows(NamedTuple):
    x: Values
    starts: Values
    steps: Values


def _emit(b: ir.IRBuilder, rows: _Rows, panel: _Panel, y: ir.Value) -> None:
    number = panel.groups.type
    few = len(rows.x) * len(PARTS) <= CHAINED
    chains = FOURS[panel.kind] if few else 1
    # LLVM keeps all these in registers, as far as there are so many
    cells = [(r, part) for r in range(len(rows.x)) for part in PARTS]
    totals = {at: cgutils.alloca_once(b, FLOATS) for at in cells}
    sums = {(*at, i): cgutils.alloca_once(b, SUMS) for at in totals for i in range(chains)}
    for total in totals.values():
        b.store(ir.Constant(FLOATS, [0.0] * LANES), total)
    with cgutils.for_range(b, panel.groups, intp=number) as group:
        for (r, _, chain), total in sums.items():
            first: ir.Value = ir.Constant(SUMS, [0] * LANES)
            if begins_at_starts(panel.kind) and not chain:
                first = splat(b, b.load(b.gep(rows.starts[r], [group.index])), SUMS)
            b.store(first, total)
        with cgutils.for_range(b, panel.lines, intp=number) as line:
            k = b.add(b.mul(group.index, panel.lines), line.index)
            _add_line(b, rows.x, panel, k, sums)
        for part in PARTS:
            scale = _scale(b, panel, group.index, part)
            for r, steps in enumerate(rows.steps):
                parts = [b.load(sums[r, part, i]) for i in range(chains)]
                step = splat(b, b.load(b.gep(steps, [group.index])), FLOATS)
                _add_scaled(b, reduce(b.add, parts), b.fmul(scale, step), totals[r, part])
    for (r, part), total in totals.items():
        at = number(COLUMNS * r + LANES * part)
        b.store(b.load(total), b.bitcast(b.gep(y, [at]), FLOATS.as_pointer()), align=4)


def _scale(b: ir.IRBuilder, panel: _Panel, group: ir.Value, part: int) -> ir.Value:
    number = group.type
    at = b.add(b.mul(group, number(COLUMNS)), number(LANES * part))
    return b.load(b.bitcast(b.gep(panel.scales, [at]), FLOATS.as_pointer()), align=4)


def _add_scaled(b: ir.IRBuilder, count: ir.Value, scale: ir.Value, total: ir.Value) -> None:
    whole = b.sitofp(count, FLOATS)
    b.store(b.call(fma_function(b, FLOATS), [whole, scale, b.load(total)]), total)


def _add_line(b: ir.IRBuilder, xs: Values, panel: _Panel, k: ir.Value, sums: Any) -> None:
    """A line's weights, times the rows."""
    number = k.type
    line = b.gep(b.bitcast(panel.w, I8.as_pointer()), [b.mul(k, number(LINE))])
    fetch(b, line)
    for part in PARTS:
        for i, weights in enumerate(weights_of(b, line, part, panel.kind)):
            at = b.add(b.mul(k, number(4 * FOURS[panel.kind])), number(4 * i))
            for r, row in enumerate(xs):
                four = b.load(b.bitcast(b.gep(row, [at]), I32.as_pointer()), align=4)
                total = sums.get((r, part, i), sums[r, part, 0])
                x = splat(b, four, SUMS)
                b.store(with_fours(b, b.load(total), x, weights, panel.kind), total)

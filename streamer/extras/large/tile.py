"""The innermost loop of a product in few bits: what stays in registers.

LLVM code for this processor: four weights of each column times four numbers of a row at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import numba
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from streamer.model.kernels.arithmetic import begin_of, fma_function, function, lanes_of, splat
from streamer.model.kernels.library import kernel_directory

COLUMNS = 16  # of a panel
LINE = 64  # bytes of a panel that lie together: 4 weights of each column, or 8 of 4 bits
# Bytes that are fetched ahead: memory takes longer to answer than a line takes. Five rows of 8
# bits read 13 GB/s with none, 19 with 2,048, and 31 with this (2026-11, AVX-512). Four times as
# many win nothing more, and a row of x should stay in the first cache, too.
AHEAD = 8192

_FEATURES = get_host_cpu_features()
_HAS_AVX2 = bool(_FEATURES.get("avx2"))
_HAS_WIDE = bool(_FEATURES.get("avx512bw") and _FEATURES.get("avx512vnni"))
_HAS_VNNI = bool(_FEATURES.get("avxvnni") or _FEATURES.get("avx512vnni"))
# Columns of a vector, and rows of a tile. Its sums stay in registers: AVX-512 has 32, so twelve
# rows' sums as integers and as floats are there (ten rows: 6 % slower at 48, 2026-11). With 16
# registers there is room for ten sums, beside weights, their lengths, ones, a row and a product.
LANES, MOST_ROWS = (16, 12) if _HAS_WIDE else (8, 5)
# Sums of a tile up to which each is kept apart for each four of a line: one waits for its last.
CHAINED = 8 if _HAS_WIDE else 4

FOURS = {types.int8: 1, types.uint8: 2}  # weights of a column in a line, in fours
I8, I16, I32, F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.FloatType()
PARTS = range(COLUMNS // LANES)  # vectors of a panel's columns
_BYTES = ir.VectorType(I8, 4 * LANES)  # four weights of each column, neighbours in its row
_PAIRS = ir.VectorType(I16, 2 * LANES)
SUMS = ir.VectorType(I32, LANES)
FLOATS = ir.VectorType(F32, LANES)


def compiled(function: Any) -> Any:
    """njit, kept on disk where the kernels of small models lie: only this user can write there."""
    numba.config.CACHE_DIR = str(kernel_directory()[0])
    return numba.njit(nogil=True, error_model="numpy", cache=True)(function)


def weights_of(b: ir.IRBuilder, line: ir.Value, part: int, kind: Any) -> Iterator[ir.Value]:
    """A line's of a part of the columns: four of each column, a byte each; then the next four."""
    at = b.gep(line, [I32(4 * LANES * part)])
    both = b.load(b.bitcast(at, _BYTES.as_pointer()), align=1)
    if kind == types.uint8:
        yield b.and_(both, _BYTES([15] * _BYTES.count))
        yield b.lshr(both, _BYTES([4] * _BYTES.count))
    elif _HAS_VNNI:  # which takes them from 0 on
        yield b.xor(both, _BYTES([-128] * _BYTES.count))
    else:
        yield both


def with_fours(b: ir.IRBuilder, total: ir.Value, x: ir.Value, w: ir.Value, kind: Any) -> ir.Value:
    """total + x * w, four neighbours added, int32."""
    if _HAS_VNNI:
        # as LLVM before 22 has it; newer ones take it, too
        name = f"llvm.x86.avx512.vpdpbusd.{32 * LANES}"
        return b.call(function(b, name, SUMS, [SUMS] * 3), [total, b.bitcast(w, SUMS), x])
    if _HAS_AVX2:
        # two products fit in 16 bits: x is 127 at most, and 2 * 127 * 128 is 32,512
        lengths, x = w, b.bitcast(x, _BYTES)
        if kind == types.int8:  # one side must have no sign: w gives its own to x
            abs_of = function(b, f"llvm.abs.v{_BYTES.count}i8", _BYTES, [_BYTES, ir.IntType(1)])
            lengths = b.call(abs_of, [w, ir.IntType(1)(0)])
            x = b.call(function(b, "llvm.x86.avx2.psign.b", _BYTES, [_BYTES] * 2), [x, w])
        products = function(b, "llvm.x86.avx2.pmadd.ub.sw", _PAIRS, [_BYTES] * 2)
        pairs = [b.call(products, [lengths, x]), _PAIRS([1] * _PAIRS.count)]
        fours = function(b, "llvm.x86.avx2.pmadd.wd", SUMS, [_PAIRS] * 2)
        return b.add(total, b.call(fours, pairs))
    wide = ir.VectorType(I32, _BYTES.count)
    widen = b.zext if kind == types.uint8 else b.sext
    product = b.mul(b.sext(b.bitcast(x, _BYTES), wide), widen(w, wide))
    return reduce(
        b.add, (lanes_of(b, product, [*range(at, wide.count, 4)]) for at in range(4)), total
    )


@intrinsic
def tile(
    _, rows, x, x_at, x_step, starts, steps, g_at, w, w_at, scales, s_at, y, y_at, groups, lines
):
    """y[rows, COLUMNS] = x [rows, k] int8 times one panel, group by group; rows: 1 to MOST_ROWS.

    Flat arrays, where to begin, elements of x from one row to the next; lines of a group. w is
    int8, or uint8 that holds two of 4 bits, from 0 to 15. A group's sum begins at `starts` [rows,
    groups] int32, where its weights are taken from 0 on, and counts `steps` [rows, groups] *
    scales. The compiler must not know `lines`: it would unroll, and run out of registers.
    """
    n = types.intp

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, values: Any) -> Any:
        def begin(i: int, at: int) -> ir.Value:
            return begin_of(context, b, signature.args[i], values[i], values[at])

        def rows_of(first: ir.Value, step: ir.Value, count: int) -> list[ir.Value]:
            return [b.gep(first, [b.mul(step, step.type(r))]) for r in range(count)]

        groups, lines, done = values[13], values[14], b.append_basic_block()
        choice = b.switch(values[0], done)
        for count in range(1, MOST_ROWS + 1):
            here = b.append_basic_block()
            choice.add_case(values[0].type(count), here)
            b.position_at_end(here)
            of_groups = [rows_of(begin(i, 6), groups, count) for i in (4, 5)]
            of_rows = rows_of(begin(1, 2), values[3], count), *of_groups
            panel = begin(7, 8), begin(9, 10), signature.args[7].dtype
            _emit(b, of_rows, panel, groups, lines, begin(11, 12))
            b.branch(done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return types.void(n, x, n, n, starts, steps, n, w, n, scales, n, y, n, n, n), codegen


def _emit(
    b: ir.IRBuilder, rows: Any, panel: Any, groups: ir.Value, lines: ir.Value, y: ir.Value
) -> None:
    """rows: where the x, starts and steps of each begin; panel: weights, scales, and their kind."""
    xs, starts, steps = rows
    w, scales, kind = panel
    number = groups.type
    chains = FOURS[kind] if len(xs) * len(PARTS) <= CHAINED else 1
    # LLVM keeps all these in registers, as far as they suffice
    cells = [(r, part) for r in range(len(xs)) for part in PARTS]
    totals = {at: cgutils.alloca_once_value(b, FLOATS([0.0] * LANES)) for at in cells}
    sums = {(*at, i): cgutils.alloca_once(b, SUMS) for at in cells for i in range(chains)}
    with cgutils.for_range(b, groups, intp=number) as group:
        for (r, _, chain), total in sums.items():
            first: ir.Value = SUMS([0] * LANES)
            # 8-bit weights are signed; only VNNI needs them unsigned
            if (kind == types.uint8 or _HAS_VNNI) and not chain:
                first = splat(b, b.load(b.gep(starts[r], [group.index])), SUMS)
            b.store(first, total)
        with cgutils.for_range(b, lines, intp=number) as line:
            _add_line(b, xs, w, kind, b.add(b.mul(group.index, lines), line.index), sums)
        for part in PARTS:
            at = b.add(b.mul(group.index, number(COLUMNS)), number(LANES * part))
            scale = b.load(b.bitcast(b.gep(scales, [at]), FLOATS.as_pointer()), align=4)
            for r, of_row in enumerate(steps):
                parts = [b.load(sums[r, part, i]) for i in range(chains)]
                step = splat(b, b.load(b.gep(of_row, [group.index])), FLOATS)
                count, total = b.sitofp(reduce(b.add, parts), FLOATS), totals[r, part]
                fused = [count, b.fmul(scale, step), b.load(total)]
                b.store(b.call(fma_function(b, FLOATS), fused), total)
    for (r, part), total in totals.items():
        at = number(COLUMNS * r + LANES * part)
        b.store(b.load(total), b.bitcast(b.gep(y, [at]), FLOATS.as_pointer()), align=4)


def _add_line(b: ir.IRBuilder, xs: Any, w: ir.Value, kind: Any, k: ir.Value, sums: Any) -> None:
    """A line's weights, times the rows."""
    number = k.type
    line = b.gep(b.bitcast(w, I8.as_pointer()), [b.mul(k, number(LINE))])
    prefetch = function(b, "llvm.prefetch.p0i8", ir.VoidType(), [I8.as_pointer()] + [I32] * 3)
    b.call(prefetch, [b.gep(line, [I32(AHEAD)]), I32(0), I32(3), I32(1)])
    for part in PARTS:
        for i, weights in enumerate(weights_of(b, line, part, kind)):
            at = b.add(b.mul(k, number(4 * FOURS[kind])), number(4 * i))
            for r, row in enumerate(xs):
                four = b.load(b.bitcast(b.gep(row, [at]), I32.as_pointer()), align=4)
                total = sums.get((r, part, i), sums[r, part, 0])
                x = splat(b, four, SUMS)
                b.store(with_fours(b, b.load(total), x, weights, kind), total)

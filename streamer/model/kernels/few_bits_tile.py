"""Parts of the products in few bits: what stays in registers. Used inside kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from streamer.model.kernels.simd import fma_function, fold_lanes, function, lanes_of, splat

COLUMNS = 4  # of a panel: they lie side by side, 16 bytes of each in turn
BYTES = 16
# Bytes that are fetched ahead. Without it a core reads 7 GB/s here, with it 10 (2026-11, AVX2).
AHEAD = 2048

_I8, _I16, _I32, _F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.FloatType()
_WEIGHTS = ir.VectorType(_I16, BYTES)
_SUMS = ir.VectorType(_I32, BYTES // 2)
_FLOATS = ir.VectorType(_F32, BYTES // 2)
_HAS_AVX2 = bool(get_host_cpu_features().get("avx2"))


def make_tile(rows: int) -> Any:
    """A kernel part: y[rows, COLUMNS] of x [rows, k] int16 and one panel.

    tile(x, x_at, x_step, w, w_at, scales, s_at, y, y_at, y_step, groups, units): flat arrays, where
    to begin, elements from one row to the next, times BYTES weights of a column's group. w is int8,
    or uint8 that holds two of 4 bits. The compiler must not know `units`: it would unroll, and run
    out of registers.
    """

    @intrinsic
    def tile(
        _context: Any,
        x: Any,
        x_at: Any,
        x_step: Any,
        w: Any,
        w_at: Any,
        scales: Any,
        s_at: Any,
        y: Any,
        y_at: Any,
        y_step: Any,
        groups: Any,
        units: Any,
    ) -> Any:
        n = types.intp

        def codegen(context: Any, b: ir.IRBuilder, signature: Any, values: Any) -> Any:
            def begin(i: int) -> ir.Value:
                array = context.make_array(signature.args[i])(context, b, values[i])
                return b.gep(array.data, [values[i + 1]])

            steps = _Steps(values[2], values[9], values[10], values[11])
            bits = 4 if signature.args[3].dtype == types.uint8 else 8
            _emit(b, [begin(i) for i in (0, 3, 5, 7)], steps, rows, bits)
            return context.get_dummy_value()

        return types.void(x, n, n, w, n, scales, n, y, n, n, n, n), codegen

    return tile


@intrinsic
def unpack(_context: Any, w: Any, w_at: Any, wide: Any, lines: Any) -> Any:
    """Write so many lines of w, uint8 as in `make_tile`, into `wide`, int8: two lines of each."""
    n = types.intp

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, values: Any) -> Any:
        arrays = (context.make_array(signature.args[i])(context, b, values[i]) for i in (0, 2))
        source, target = (array.data for array in arrays)
        _unpack(b, b.gep(source, [values[1]]), target, values[3])
        return context.get_dummy_value()

    return types.void(w, n, wide, n), codegen


def _unpack(b: ir.IRBuilder, w: ir.Value, wide: ir.Value, lines: ir.Value) -> None:
    number, size = lines.type, COLUMNS * BYTES
    kind = ir.VectorType(_I8, size)
    half = ir.Constant(kind, [4] * size)
    with cgutils.for_range(b, lines, intp=number) as line:
        at = b.gep(w, [b.mul(line.index, number(size))])
        _fetch(b, at)
        both = b.load(b.bitcast(at, kind.as_pointer()), align=1)
        first = b.gep(wide, [b.mul(line.index, number(2 * size))])
        for i, part in enumerate((b.ashr(b.shl(both, half), half), b.ashr(both, half))):
            begin = b.gep(first, [number(size * i)])
            b.store(part, b.bitcast(begin, kind.as_pointer()), align=1)


class _Steps(NamedTuple):
    x: ir.Value
    y: ir.Value
    groups: ir.Value
    units: ir.Value


def _emit(b: ir.IRBuilder, begins: list[ir.Value], steps: _Steps, rows: int, bits: int) -> None:
    x, w, scales, y = begins
    number = steps.groups.type
    xs = [b.gep(x, [b.mul(steps.x, number(r))]) for r in range(rows)]
    cells = [(r, c) for r in range(rows) for c in range(COLUMNS)]
    totals = {at: cgutils.alloca_once_value(b, ir.Constant(_FLOATS, None)) for at in cells}
    sums = {at: cgutils.alloca_once(b, _SUMS) for at in cells}  # LLVM keeps them in registers
    fma = fma_function(b, _FLOATS)
    with cgutils.for_range(b, steps.groups, intp=number) as group:
        for at in cells:
            b.store(ir.Constant(_SUMS, None), sums[at])
        with cgutils.for_range(b, steps.units, intp=number) as unit:
            k = b.add(b.mul(group.index, steps.units), unit.index)
            _add_vector(b, xs, w, k, sums, bits)
        for c in range(COLUMNS):
            at = b.add(b.mul(group.index, number(COLUMNS)), number(c))
            scale = splat(b, b.load(b.gep(scales, [at])), _FLOATS)
            for r in range(rows):
                whole = b.sitofp(b.load(sums[r, c]), _FLOATS)
                b.store(b.call(fma, [whole, scale, b.load(totals[r, c])]), totals[r, c])
    for r, c in cells:
        cell = b.gep(y, [b.add(b.mul(steps.y, number(r)), number(c))])
        b.store(fold_lanes(b, b.load(totals[r, c]), b.fadd), cell)


def _add_vector(
    b: ir.IRBuilder, xs: list[ir.Value], w: ir.Value, k: ir.Value, sums: Any, bits: int
) -> None:
    """BYTES weights of each column, times the rows."""
    number = k.type
    line = b.gep(w, [b.mul(b.lshr(k, number(1)) if bits == 4 else k, number(COLUMNS * BYTES))])
    _fetch(b, line)
    raw = ir.VectorType(_I8, BYTES).as_pointer()
    given = []
    for row in xs:
        at = b.gep(row, [b.mul(k, number(BYTES))])
        given.append(b.load(b.bitcast(at, _WEIGHTS.as_pointer()), align=2))
    for c in range(COLUMNS):
        weights = b.load(b.bitcast(b.gep(line, [number(BYTES * c)]), raw), align=1)
        weights = b.sext(weights, _WEIGHTS)
        if bits == 4:  # the low halves of the bytes, then their high ones
            odd = b.trunc(b.and_(k, number(1)), _I16)
            up = splat(b, b.sub(_I16(12), b.mul(odd, _I16(4))), _WEIGHTS)
            weights = b.ashr(b.shl(weights, up), ir.Constant(_WEIGHTS, [12] * BYTES))
        for r, x in enumerate(given):
            b.store(b.add(b.load(sums[r, c]), _pairs(b, x, weights)), sums[r, c])


def _fetch(b: ir.IRBuilder, line: ir.Value) -> None:
    fetch = function(b, "llvm.prefetch.p0i8", ir.VoidType(), [_I8.as_pointer()] + [_I32] * 3)
    b.call(fetch, [b.gep(line, [ir.IntType(64)(AHEAD)]), _I32(0), _I32(3), _I32(1)])


def _pairs(b: ir.IRBuilder, x: ir.Value, w: ir.Value) -> ir.Value:
    """x * w, neighbours added, int32."""
    if _HAS_AVX2:
        return b.call(function(b, "llvm.x86.avx2.pmadd.wd", _SUMS, [_WEIGHTS] * 2), [x, w])
    wide = ir.VectorType(_I32, BYTES)
    product = b.mul(b.sext(x, wide), b.sext(w, wide))
    return b.add(*(lanes_of(b, product, list(range(odd, BYTES, 2))) for odd in (0, 1)))

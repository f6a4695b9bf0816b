"""Parts of the products in few bits: what stays in registers. Used inside kernels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any, NamedTuple

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features, initialize_native_asmparser
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from streamer.model.kernels.simd import fma_function, function, lanes_of, splat

COLUMNS = 16  # of a panel
LINE = 64  # bytes of a panel that lie together: 4 weights of each column, in 4 bits 8, in 16 two
# Bytes that are fetched ahead: memory takes longer to answer than a line takes. Five rows of 8
# bits read 13 GB/s with none, 19 with 2,048, and 31 with this (2026-11, AVX-512). Four times as
# many win nothing more, and a row of x should stay in the first cache, too.
AHEAD = 8192

_FEATURES = get_host_cpu_features()
_HAS_AVX2 = bool(_FEATURES.get("avx2"))
_HAS_VNNI = bool(_FEATURES.get("avxvnni") or _FEATURES.get("avx512vnni"))
_HAS_WIDE = bool(_FEATURES.get("avx512bw") and _FEATURES.get("avx512vnni"))
# Columns of a vector, and rows of a tile: ten sums either way. With 16 registers there is no room
# for more, beside two vectors of weights, one of a row and one product.
_LANES, MOST_ROWS = (16, 10) if _HAS_WIDE else (8, 5)
# Rows from which on weights are unpacked once for all. For ten at a time it never pays: 50 rows
# do 83 billion products per second so in 8 bits, and 100 billion without (2026-11-23, AVX-512).
MANY = 1 << 30 if _HAS_WIDE else 10
# Sums of a tile up to which each is kept twice: one waits for its last product.
_CHAINED = 8 if _HAS_WIDE else 4

_I8, _I16, _I32, _F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.FloatType()
_PARTS = range(COLUMNS // _LANES)  # vectors of a panel's columns
_BYTES = ir.VectorType(_I8, 2 * _LANES)
_WEIGHTS = ir.VectorType(_I16, 2 * _LANES)  # two of each column, neighbours in its row
_FOURS = ir.VectorType(_I16, COLUMNS)  # of four weights each
_SUMS = ir.VectorType(_I32, _LANES)
_FLOATS = ir.VectorType(_F32, _LANES)
_WIDE = types.int16  # how weights are unpacked

Values = list[ir.Value]


@intrinsic
def tile(
    _context: Any,
    rows: Any,
    x: Any,
    x_at: Any,
    x_step: Any,
    starts: Any,
    t_at: Any,
    t_step: Any,
    w: Any,
    w_at: Any,
    scales: Any,
    s_at: Any,
    y: Any,
    y_at: Any,
    groups: Any,
    lines: Any,
) -> Any:
    """y[rows, COLUMNS] += scales * (x [rows, k] int16 times one panel), group by group; rows: 1 to
    MOST_ROWS.

    Flat arrays, where to begin, elements from one row to the next; lines of a group. w is int8,
    int16, or uint8 that holds two of 4 bits, from 0 to 15, whose sums begin at `starts` [rows,
    groups] int32. The compiler must not know `lines`: it would unroll, and run out of registers.
    """
    n = types.intp

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, values: Any) -> Any:
        def begin(i: int) -> ir.Value:
            array = context.make_array(signature.args[i])(context, b, values[i])
            return b.gep(array.data, [values[i + 1]])

        def rows_of(i: int, count: int) -> Values:
            first, step = begin(i), values[i + 2]
            return [b.gep(first, [b.mul(step, step.type(r))]) for r in range(count)]

        done = b.append_basic_block()
        choice = b.switch(values[0], done)
        for count in range(1, MOST_ROWS + 1):
            here = b.append_basic_block()
            choice.add_case(values[0].type(count), here)
            b.position_at_end(here)
            panel = _Panel(begin(7), begin(9), signature.args[7].dtype, values[13], values[14])
            _emit(b, rows_of(1, count), rows_of(4, count), panel, begin(11))
            b.branch(done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return types.void(n, x, n, n, starts, n, n, w, n, scales, n, y, n, n, n), codegen


@intrinsic
def unpack(_context: Any, w: Any, w_at: Any, wide: Any, lines: Any) -> Any:
    """Write so many lines of w, as in `tile`, into `wide`, int16, from its beginning."""
    n = types.intp

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, values: Any) -> Any:
        arrays = (context.make_array(signature.args[i])(context, b, values[i]) for i in (0, 2))
        source, target = (array.data for array in arrays)
        _unpack(b, b.gep(source, [values[1]]), target, values[3], signature.args[0].dtype)
        return context.get_dummy_value()

    return types.void(w, n, wide, n), codegen


def _unpack(b: ir.IRBuilder, w: ir.Value, wide: ir.Value, lines: ir.Value, kind: Any) -> None:
    number = lines.type
    middle = ir.Constant(_WEIGHTS, [8 if kind == types.uint8 else 0] * _WEIGHTS.count)
    with cgutils.for_range(b, lines, intp=number) as line:
        vectors = [v for both in _weights(b, _line(b, w, line.index), kind) for v in both]
        size = len(vectors) * _WEIGHTS.count
        for i, vector in enumerate(vectors):
            to = b.add(b.mul(line.index, number(size)), number(i * _WEIGHTS.count))
            at = b.bitcast(b.gep(wide, [to]), _WEIGHTS.as_pointer())
            b.store(b.sub(vector, middle), at, align=2)


class _Panel(NamedTuple):
    w: ir.Value
    scales: ir.Value
    kind: Any
    groups: ir.Value
    lines: ir.Value  # of a group


def _emit(b: ir.IRBuilder, xs: Values, starts: Values, panel: _Panel, y: ir.Value) -> None:
    number = panel.groups.type
    chains = 2 if len(xs) * len(_PARTS) <= _CHAINED else 1
    cells = [(r, part, i) for r in range(len(xs)) for part in _PARTS for i in range(chains)]
    sums = {at: cgutils.alloca_once(b, _SUMS) for at in cells}  # LLVM keeps them in registers
    with cgutils.for_range(b, panel.groups, intp=number) as group:
        for r, part, chain in cells:
            first = ir.Constant(_SUMS, None)
            if panel.kind == types.uint8 and not chain:
                first = splat(b, b.load(b.gep(starts[r], [group.index])), _SUMS)
            b.store(first, sums[r, part, chain])
        with cgutils.for_range(b, panel.lines, intp=number) as line:
            k = b.add(b.mul(group.index, panel.lines), line.index)
            _add_line(b, xs, panel, k, sums)
        for part in _PARTS:
            whole = [
                reduce(b.add, (b.load(sums[r, part, i]) for i in range(chains)))
                for r in range(len(xs))
            ]
            _add_scaled(b, panel, group.index, part, whole, y)


def _add_scaled(
    b: ir.IRBuilder, panel: _Panel, group: ir.Value, part: int, sums: Values, y: ir.Value
) -> None:
    """A group's sums of a part of the columns, of all rows."""
    number, floats, fma = group.type, _FLOATS.as_pointer(), fma_function(b, _FLOATS)
    at = b.add(b.mul(group, number(COLUMNS)), number(_LANES * part))
    scale = b.load(b.bitcast(b.gep(panel.scales, [at]), floats), align=4)
    for r, total in enumerate(sums):
        cell = b.bitcast(b.gep(y, [number(COLUMNS * r + _LANES * part)]), floats)
        whole = b.sitofp(total, _FLOATS)
        b.store(b.call(fma, [whole, scale, b.load(cell, align=4)]), cell, align=4)


def _add_line(b: ir.IRBuilder, xs: Values, panel: _Panel, k: ir.Value, sums: Any) -> None:
    """A line's weights, times the rows."""
    number = k.type
    line = _line(b, panel.w, k)
    if panel.kind != _WIDE:
        _fetch(b, line)
    pairs = {_WIDE: 1, types.int8: 2, types.uint8: 4}[panel.kind]
    for i, weights in enumerate(_weights(b, line, panel.kind)):
        at = b.add(b.mul(k, number(2 * pairs)), number(2 * i))
        for r, row in enumerate(xs):
            two = b.load(b.bitcast(b.gep(row, [at]), _I32.as_pointer()), align=2)
            x = b.bitcast(splat(b, two, _SUMS), _WEIGHTS)
            for part in _PARTS:
                total = sums.get((r, part, i % 2), sums[r, part, 0])
                b.store(_with_pairs(b, b.load(total), x, weights[part]), total)


def _line(b: ir.IRBuilder, w: ir.Value, k: ir.Value) -> ir.Value:
    return b.gep(b.bitcast(w, _I8.as_pointer()), [b.mul(k, k.type(LINE))])


def _weights(b: ir.IRBuilder, line: ir.Value, kind: Any) -> Iterator[Values]:
    """A line's, in 16 bits: two of each column, a vector per part of the columns; the next."""

    def load(at: int, of: ir.VectorType) -> ir.Value:
        return b.load(b.bitcast(b.gep(line, [_I32(at)]), of.as_pointer()), align=1)

    if kind == _WIDE:
        yield [load(4 * _LANES * part, _WEIGHTS) for part in _PARTS]
    elif kind == types.int8:
        for at in (0, 32):
            yield [b.sext(load(at + 2 * _LANES * part, _BYTES), _WEIGHTS) for part in _PARTS]
    else:
        copies = _WEIGHTS.count // COLUMNS
        low = ir.Constant(_WEIGHTS, [15] * _WEIGHTS.count)
        for at in (0, 32):
            fours = lanes_of(b, load(at, _FOURS), [*range(COLUMNS)] * copies)
            for first in (0, 8):
                bits = [first + 4 * (i // COLUMNS) for i in range(2 * COLUMNS)]
                shifts = (bits[part * _WEIGHTS.count :][: _WEIGHTS.count] for part in _PARTS)
                moved = (b.lshr(fours, ir.Constant(_WEIGHTS, each)) for each in shifts)
                yield [b.and_(each, low) for each in moved]


def _fetch(b: ir.IRBuilder, line: ir.Value) -> None:
    fetch = function(b, "llvm.prefetch.p0i8", ir.VoidType(), [_I8.as_pointer()] + [_I32] * 3)
    b.call(fetch, [b.gep(line, [_I32(AHEAD)]), _I32(0), _I32(3), _I32(1)])


def _with_pairs(b: ir.IRBuilder, total: ir.Value, x: ir.Value, w: ir.Value) -> ir.Value:
    """total + x * w, neighbours added, int32."""
    if _HAS_AVX2 and not _HAS_VNNI:
        # Left to itself LLVM adds products to each other first, and runs out of registers.
        initialize_native_asmparser()
        gives = ir.LiteralStructType([_SUMS, _SUMS])
        code = "vpmaddwd $2, $3, $1\n\tvpaddd $1, $0, $0"
        kind = ir.FunctionType(gives, [_WEIGHTS, _WEIGHTS, _SUMS])
        return b.extract_value(b.call(ir.InlineAsm(kind, code, "=x,=&x,x,x,0"), [w, x, total]), 0)
    if _HAS_AVX2:  # LLVM makes one instruction of the two
        name = "avx512.pmaddw.d.512" if _HAS_WIDE else "avx2.pmadd.wd"
        pairs = b.call(function(b, f"llvm.x86.{name}", _SUMS, [_WEIGHTS] * 2), [x, w])
        return b.add(total, pairs)
    wide = ir.VectorType(_I32, _WEIGHTS.count)
    product = b.mul(b.sext(x, wide), b.sext(w, wide))
    odd, even = (lanes_of(b, product, list(range(at, wide.count, 2))) for at in (1, 0))
    return b.add(total, b.add(odd, even))

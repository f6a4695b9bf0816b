"""Four weights of each column times four of a row, as this processor does it; in few bits.

Used inside kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features, initialize_native_asmparser
from numba import types

from streamer.model.kernels.simd import function, lanes_of

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


def begins_at_starts(kind: Any) -> bool:
    """8 bits are signed, which only VNNI wants changed."""
    return kind == types.uint8 or _HAS_VNNI


def weights_of(b: ir.IRBuilder, line: ir.Value, part: int, kind: Any) -> Iterator[ir.Value]:
    """A line's of a part of the columns: four of each column, a byte each; then the next four."""
    at = b.gep(line, [I32(4 * LANES * part)])
    both = b.load(b.bitcast(at, _BYTES.as_pointer()), align=1)
    if kind == types.uint8:
        yield b.and_(both, ir.Constant(_BYTES, [15] * _BYTES.count))
        yield b.lshr(both, ir.Constant(_BYTES, [4] * _BYTES.count))
    elif _HAS_VNNI:  # which takes them from 0 on
        yield b.xor(both, ir.Constant(_BYTES, [-128] * _BYTES.count))
    else:
        yield both


def fetch(b: ir.IRBuilder, line: ir.Value) -> None:
    prefetch = function(b, "llvm.prefetch.p0i8", ir.VoidType(), [I8.as_pointer()] + [I32] * 3)
    b.call(prefetch, [b.gep(line, [I32(AHEAD)]), I32(0), I32(3), I32(1)])


def with_fours(b: ir.IRBuilder, total: ir.Value, x: ir.Value, w: ir.Value, kind: Any) -> ir.Value:
    """total + x * w, four neighbours added, int32."""
    if _HAS_VNNI:
        # as LLVM before 22 has it; newer ones take it, too
        name = f"llvm.x86.avx512.vpdpbusd.{32 * LANES}"
        return b.call(function(b, name, SUMS, [SUMS] * 3), [total, b.bitcast(w, SUMS), x])
    if _HAS_AVX2:
        return _with_fours_of_avx2(b, total, b.bitcast(x, _BYTES), w, kind)
    wide = ir.VectorType(I32, _BYTES.count)
    widen = b.zext if kind == types.uint8 else b.sext
    product = b.mul(b.sext(b.bitcast(x, _BYTES), wide), widen(w, wide))
    return reduce(
        b.add, (lanes_of(b, product, [*range(at, wide.count, 4)]) for at in range(4)), total
    )


def _with_fours_of_avx2(
    b: ir.IRBuilder, total: ir.Value, x: ir.Value, w: ir.Value, kind: Any
) -> ir.Value:
    """Two products fit in 16 bits: x is 127 at most, and 2 * 127 * 128 is 32,512. Left to itself
    LLVM adds sums to each other first, and runs out of registers."""
    initialize_native_asmparser()
    lengths = w
    first = "vpmaddubsw $5, $2, $1"
    if kind == types.int8:  # one side must have no sign: w gives its own to x
        abs_of = function(b, f"llvm.abs.v{_BYTES.count}i8", _BYTES, [_BYTES, ir.IntType(1)])
        lengths = b.call(abs_of, [w, ir.IntType(1)(0)])
        first = "vpsignb $3, $5, $1\n\tvpmaddubsw $1, $2, $1"
    code = first + "\n\tvpmaddwd $4, $1, $1\n\tvpaddd $1, $0, $0"
    ones = ir.Constant(_PAIRS, [1] * _PAIRS.count)
    gives = ir.LiteralStructType([SUMS, _BYTES])
    form = ir.FunctionType(gives, [_BYTES, _BYTES, _PAIRS, _BYTES, SUMS])
    call = ir.InlineAsm(form, code, "=x,=&x,x,x,x,x,0")
    return b.extract_value(b.call(call, [lengths, w, ones, x, total]), 0)

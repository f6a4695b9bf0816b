"""Vectors held in registers and fused multiply-adds, which numba does not offer.

Every sum runs over k from 0 upwards, one fused multiply-add per k, whatever stands beside it: a
result does not depend on how many rows are computed together. LLVM makes the machine's own vector
instructions of it (AVX2, AVX-512, NEON).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from streamer.model.kernels.library import PANEL

# Sums of a tile stay in registers: AVX-512 has 32 of 16 lanes, others 16 of 8 (AVX2) or 32 of
# 4. Measured 2026-11: tiles of 16 lanes do 100 GFLOP/s where 8 lanes do 65 and MKL 55 to 90.
# More than 8 rows need more addresses than x86-64 has registers: tiles of 12 took 1.2 to 1.7 times
# as long for 64 rows. Width and rows change no sum's order, so no bit.
_HAS_AVX512 = bool(get_host_cpu_features().get("avx512f"))
LANES, MAX_ROWS, MOST_ROWS = (16, 5, 8) if _HAS_AVX512 else (8, 3, 3)

_FLOAT = ir.FloatType()
_HALF = ir.HalfType()
_I32 = ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_HALF_VECTOR = ir.VectorType(_HALF, LANES)


def make_tile(rows: int, panels: int) -> Any:
    """A kernel part: y[rows, panels * PANEL] += x[rows, K] @ w[K, panels * PANEL], the sums held in
    registers.

    tile(x, x_at, x_step, w, w_at, w_step, w_next, y, y_at, y_step, K): flat arrays, where to begin,
    elements from one row (of w: one k) to the next; w_next: from one panel to the next. w is
    float32, or uint16 that holds float16.
    """

    @intrinsic
    def tile(_context, x, _x_at, _x_step, w, _w_at, _w_step, _w_next, y, _y_at, _y_step, _count):
        n = types.intp

        def codegen(context: Any, b: ir.IRBuilder, signature: Any, values: Any) -> Any:
            def at(i: int) -> ir.Value:
                array = context.make_array(signature.args[i])(context, b, values[i])
                return b.gep(array.data, [values[i + 1]])

            load = load_halves if signature.args[3].dtype == types.uint16 else load_vector
            _emit_tile((at(0), at(3), at(7)), load, b, values, rows, panels)
            return context.get_dummy_value()

        return types.void(x, n, n, w, n, n, n, y, n, n, n), codegen

    return tile


def _emit_tile(
    begins: tuple[ir.Value, ...],
    load: Callable[..., ir.Value],
    b: ir.IRBuilder,
    values: Any,
    rows: int,
    panels: int,
) -> None:
    """begins: where x, w and y begin; load: LANES weights at a pointer."""
    at_x, at_w, at_y = begins
    x_step = values[2]
    w_step = values[5]
    w_next = values[6]
    y_step = values[9]
    count = values[10]
    number = count.type
    columns = [(p, v * LANES) for p in range(panels) for v in range(PANEL // LANES)]
    cells = [
        b.bitcast(
            b.gep(at_y, [b.add(b.mul(y_step, number(m)), number(p * PANEL + v))]),
            _VECTOR.as_pointer(),
        )
        for m in range(rows)
        for p, v in columns
    ]
    sums = [cgutils.alloca_once(b, _VECTOR) for _ in cells]  # LLVM keeps them in registers
    for total, cell in zip(sums, cells, strict=True):
        b.store(b.load(cell, align=4), total)
    fma = fma_function(b, _VECTOR)
    row_starts = [b.gep(at_x, [b.mul(x_step, number(m))]) for m in range(rows)]
    starts = [b.gep(at_w, [b.add(b.mul(w_next, number(p)), number(v))]) for p, v in columns]
    with cgutils.for_range(b, count, intp=number) as loop:
        step = b.mul(loop.index, w_step)
        weights = [load(b, b.gep(start, [step])) for start in starts]
        for m, row in enumerate(row_starts):
            x = splat(b, b.load(b.gep(row, [loop.index])), _VECTOR)
            for i, weight in enumerate(weights):
                total = sums[m * len(weights) + i]
                b.store(b.call(fma, [x, weight, b.load(total)]), total)
    for total, cell in zip(sums, cells, strict=True):
        b.store(b.load(total), cell, align=4)


def load_vector(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    """LANES values of float32 at `pointer`."""
    return b.load(b.bitcast(pointer, _VECTOR.as_pointer()), align=4)


def load_halves(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    """LANES values of float16 at `pointer`, as float32."""
    return b.fpext(b.load(b.bitcast(pointer, _HALF_VECTOR.as_pointer()), align=2), _VECTOR)


def splat(b: ir.IRBuilder, value: ir.Value, kind: ir.VectorType) -> ir.Value:
    """`value` in every lane of a `kind`."""
    one = b.insert_element(ir.Constant(kind, ir.Undefined), value, _I32(0))
    return lanes_of(b, one, [0] * kind.count)


def lanes_of(b: ir.IRBuilder, vector: ir.Value, places: list[int]) -> ir.Value:
    """A vector of the lanes at `places`."""
    which = ir.Constant(ir.VectorType(_I32, len(places)), places)
    return b.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), which)


def fold_lanes(b: ir.IRBuilder, vector: ir.Value, join: Callable[..., ir.Value]) -> ir.Value:
    """All lanes joined: j with j + n / 2, then with j + n / 4 and so on to j + 1."""
    width = vector.type.count
    while width > 1:
        width //= 2
        low, high = (lanes_of(b, vector, [k + at for k in range(width)]) for at in (0, width))
        vector = join(low, high)
    return b.extract_element(vector, _I32(0))


def fma_function(b: ir.IRBuilder, kind: ir.Type) -> ir.Function:
    """LLVM's own for float32, or for a vector of it."""
    lanes = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
    return function(b, f"llvm.fma.{lanes}f32", kind, [kind] * 3)


def function(b: ir.IRBuilder, name: str, gives: ir.Type, takes: list[ir.Type]) -> ir.Function:
    """One of LLVM's, by its name."""
    return cgutils.get_or_insert_function(b.module, ir.FunctionType(gives, takes), name)


def make_fold(kind: str) -> Any:
    """A kernel part: fold(x, at, count) of float32, count a multiple of PANEL: the "sum", "max" or
    sum of "squares".

    PANEL lanes by position, then lane j with j + 16, j + 8 ... j + 1: the order is the same for
    every vector width.
    """

    @intrinsic
    def fold(_context: Any, x: Any, _at: Any, _count: Any) -> Any:
        def codegen(context: Any, b: ir.IRBuilder, signature: Any, values: Any) -> Any:
            start = b.gep(
                context.make_array(signature.args[0])(context, b, values[0]).data, [values[1]]
            )
            return _emit_fold(b, kind, start, values[2])

        return types.float32(x, types.intp, types.intp), codegen

    return fold


def _emit_fold(b: ir.IRBuilder, kind: str, start: ir.Value, count: ir.Value) -> ir.Value:
    def join(a: ir.Value, c: ir.Value) -> ir.Value:
        return b.select(b.fcmp_ordered(">", a, c), a, c) if kind == "max" else b.fadd(a, c)

    number = count.type
    fma = fma_function(b, _VECTOR)
    empty = ir.Constant(_VECTOR, [float("-inf") if kind == "max" else 0.0] * LANES)
    totals = [cgutils.alloca_once_value(b, empty) for _ in range(PANEL // LANES)]
    with cgutils.for_range_slice(b, number(0), count, number(PANEL), intp=number) as (i, _):
        for v, total in enumerate(totals):
            x = load_vector(b, b.gep(start, [b.add(i, number(v * LANES))]))
            b.store(
                b.call(fma, [x, x, b.load(total)]) if kind == "squares" else join(b.load(total), x),
                total,
            )
    parts = [b.load(total) for total in totals]
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [join(parts[i], parts[i + half]) for i in range(half)]
    return fold_lanes(b, parts[0], join)


@intrinsic
def keep_apart(_context: Any) -> Any:
    """Called in a function: its code is not copied into its callers, which would take seconds of
    compiling."""

    def codegen(context: Any, b: ir.IRBuilder, _signature: Any, _values: Any) -> Any:
        b.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def at_address(_context: Any, _address: Any) -> Any:
    """A pointer for numba.carray, from the address of an array's first number."""

    def codegen(_: Any, b: ir.IRBuilder, _signature: Any, values: Any) -> Any:
        return b.inttoptr(values[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


@intrinsic
def fma(_context: Any, a: Any, x: Any, y: Any) -> Any:
    """a * x + y, rounded once; float32."""

    def codegen(_: Any, b: ir.IRBuilder, _signature: Any, values: Any) -> Any:
        return b.call(fma_function(b, _FLOAT), values)

    return types.float32(types.float32, types.float32, types.float32), codegen


@intrinsic
def two_to(_context: Any, shifted: Any) -> Any:
    """2 ** n as float32, for `shifted` = n + 1.5 * 2**23: the integer stands in the lowest bits of
    that sum."""

    def codegen(_: Any, b: ir.IRBuilder, _signature: Any, values: Any) -> Any:
        bits = b.shl(b.bitcast(values[0], _I32), _I32(23))
        return b.bitcast(b.add(bits, _I32(0x3F800000)), _FLOAT)

    return types.float32(types.float32), codegen

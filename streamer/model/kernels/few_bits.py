"""Products with weights of 8 or 4 bits, compiled. In: rows of 16-bit integers. Out: float32.

y[r, c] = sum over groups g of scale[c, g] * (sum over k in g of x[r, k] * q[c, k]): the inner sums
are of integers and exact, the outer one runs over g from 0 upwards, in 8 lanes that are added at
the end. So a row's bits depend on that row alone. Weights are read where they lie, once for three
rows; they may be a file's pages.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from streamer.model.kernels.arithmetic import compiled
from streamer.model.kernels.simd import fma_function, fold_lanes, function, lanes_of, splat
from streamer.model.kernels.threads import num_cores, num_kernel_threads

COLUMNS = 4  # of a panel: they lie side by side, 16 bytes of each in turn
BYTES = 16
# Bytes that are fetched ahead. Without it a core reads 7 GB/s here, with it 10 (2026-11, AVX2).
AHEAD = 2048
SHARES = 4  # per thread: one that comes late takes fewer
WORTH = 1_000_000  # multiplications of one row that are worth a thread: 0.1 ms of it

_I8, _I16, _I32, _F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.FloatType()
_WEIGHTS = ir.VectorType(_I16, BYTES)
_SUMS = ir.VectorType(_I32, BYTES // 2)
_FLOATS = ir.VectorType(_F32, BYTES // 2)
_HAS_AVX2 = bool(get_host_cpu_features().get("avx2"))


def _make_tile(rows: int) -> Any:
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
    fetch = function(b, "llvm.prefetch.p0i8", ir.VoidType(), [_I8.as_pointer()] + [_I32] * 3)
    b.call(fetch, [b.gep(line, [number(AHEAD)]), _I32(0), _I32(3), _I32(1)])
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


def _pairs(b: ir.IRBuilder, x: ir.Value, w: ir.Value) -> ir.Value:
    """x * w, neighbours added, int32."""
    if _HAS_AVX2:
        return b.call(function(b, "llvm.x86.avx2.pmadd.wd", _SUMS, [_WEIGHTS] * 2), [x, w])
    wide = ir.VectorType(_I32, BYTES)
    product = b.mul(b.sext(x, wide), b.sext(w, wide))
    return b.add(*(lanes_of(b, product, list(range(odd, BYTES, 2))) for odd in (0, 1)))


_T1, _T2, _T3 = (_make_tile(rows) for rows in (1, 2, 3))


@compiled
def _multiply(x, w, scales, y, rows, depth, width, groups, units, first, last):
    """Panels `first` to `last` of y [rows, width], x [rows, depth]."""
    size = w.size // (width // COLUMNS)
    for p in range(first, last):
        c, w_at, s_at = p * COLUMNS, p * size, p * groups * COLUMNS
        r = 0
        while r < rows:
            x_at, y_at = r * depth, r * width + c
            left = rows - r
            if left >= 3 and left != 4:
                _T3(x, x_at, depth, w, w_at, scales, s_at, y, y_at, width, groups, units)
                r += 3
            elif left >= 2:
                _T2(x, x_at, depth, w, w_at, scales, s_at, y, y_at, width, groups, units)
                r += 2
            else:
                _T1(x, x_at, depth, w, w_at, scales, s_at, y, y_at, width, groups, units)
                r += 1


def multiply(
    x: NDArray[np.int16], data: NDArray[Any], scales: NDArray[np.float32]
) -> NDArray[np.float32]:
    """[rows, panels * COLUMNS] of x [rows, k].

    data [panels, groups, units, COLUMNS, BYTES]: int8, or uint8 whose byte j holds weight j of 32
    in its low half and weight 16 + j in its high one; scales [panels, groups, COLUMNS].
    """
    panels, groups, units = data.shape[:3]
    rows, depth = x.shape
    y = np.empty((rows, panels * COLUMNS), np.float32)
    flat = [array.reshape(-1) for array in (x, data, scales, y)]
    sizes = rows, depth, y.shape[1], groups, units * (2 if data.dtype == np.uint8 else 1)

    def work(first: int, last: int) -> None:
        _multiply(*flat, *sizes, first, last)

    threads = min(num_threads(), rows * depth * y.shape[1] // WORTH)
    if threads < 2:
        work(0, panels)
    else:
        _shared(work, panels, threads)
    return y


@cache
def num_threads() -> int:
    """Threads of a product: the cores; OMP_NUM_THREADS in the environment bounds them."""
    return num_kernel_threads(num_cores())


@cache
def _others() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, num_threads() - 1), "few-bits")


def _shared(work: Callable[[int, int], None], total: int, threads: int) -> None:
    """`work` on parts of 0 to `total`. Nobody waits for a thread that has not begun."""
    num = threads * SHARES
    turns = itertools.count()

    def take_turns() -> None:
        while (i := next(turns)) < num:
            work(total * i // num, total * (i + 1) // num)

    helping = [_others().submit(take_turns) for _ in range(threads - 1)]
    take_turns()
    for each in helping:
        if not each.cancel():
            each.result()

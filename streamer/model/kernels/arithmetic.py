"""The arithmetic of the kernels: vectors in registers, fused multiply-adds, products, e^x, F0.

One thread, no allocation. Every sum runs over k from 0 upwards, one fused multiply-add per k,
whatever rows stand beside a row and however many ids it is fed: its logits are the same bits.
Padding up to PANEL holds zeros throughout. A vector is a panel wide; LLVM cuts it into those of the
machine (AVX2, AVX-512, NEON).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from streamer.model.kernels.library import LEAD, NUM_CANDIDATES, PANEL

# Rows of a tile, whose sums stay in registers: AVX-512 has 32 of 16 lanes, others 16 of 8 (AVX2) or
# 32 of 4. More than 8 rows need more addresses than x86-64 has registers: tiles of 12 took 1.2 to
# 1.7 times as long for 64 rows (2026-11). Rows change no sum's order, so no bit.
MOST_ROWS = 8 if get_host_cpu_features().get("avx512f") else 3

# No door to Python and no counting of references halve the time to compile a function.
ALONE = {"_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
f4 = np.float32
_LOG2_E = f4(1.44269504)
_SHIFT = f4(12582912.0)  # 1.5 * 2**23: what is added to it is rounded to an integer
_LN2_HIGH, _LN2_LOW = f4(0.693359375), f4(-2.12194440e-4)
# e^r for |r| <= ln 2 / 2, relative error 2e-8: the coefficients of Cephes' expf.
_E0, _E1, _E2 = f4(1.9875691500e-4), f4(1.3981999507e-3), f4(8.3334519073e-3)
_E3, _E4, _E5 = f4(4.1665795894e-2), f4(1.6666665459e-1), f4(5.0000001201e-1)

_I32 = ir.IntType(32)
_VECTOR = ir.VectorType(ir.FloatType(), PANEL)
_HALVES = ir.VectorType(ir.HalfType(), PANEL)


def compiled(function: Any) -> Any:
    """A function that other kernels call."""
    return njit(nogil=True, error_model="numpy", **ALONE)(function)


def part(function: Any) -> Any:
    """A part of one large kernel: its code is copied into its callers."""
    return njit(nogil=True, error_model="numpy", inline="always")(function)


def function(b: ir.IRBuilder, name: str, gives: ir.Type, takes: list[ir.Type]) -> ir.Function:
    """One of LLVM's, by its name."""
    return cgutils.get_or_insert_function(b.module, ir.FunctionType(gives, takes), name)


def fma_function(b: ir.IRBuilder, kind: ir.Type) -> ir.Function:
    """LLVM's own for float32, or for a vector of it."""
    lanes = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
    return function(b, f"llvm.fma.{lanes}f32", kind, [kind] * 3)


def lanes_of(b: ir.IRBuilder, vector: ir.Value, places: list[int]) -> ir.Value:
    """A vector of the lanes at `places`."""
    which = ir.Constant(ir.VectorType(_I32, len(places)), places)
    return b.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), which)


def splat(b: ir.IRBuilder, value: ir.Value, kind: ir.VectorType) -> ir.Value:
    """`value` in every lane of a `kind`."""
    one = b.insert_element(ir.Constant(kind, ir.Undefined), value, _I32(0))
    return lanes_of(b, one, [0] * kind.count)


def begin_of(context: Any, b: ir.IRBuilder, kind: Any, array: Any, at: ir.Value) -> ir.Value:
    """Where element `at` of a flat array of numba's type `kind` lies."""
    return b.gep(context.make_array(kind)(context, b, array).data, [at])


def _load(b: ir.IRBuilder, pointer: ir.Value, kind: ir.Type = _VECTOR) -> ir.Value:
    """A panel's numbers at `pointer`, as float32."""
    found = b.load(b.bitcast(pointer, kind.as_pointer()), align=2 if kind is _HALVES else 4)
    return b.fpext(found, _VECTOR) if kind is _HALVES else found


@intrinsic
def tile(_context, _rows, x, _x_at, _x_step, w, _w_at, _w_step, y, _y_at, _y_step, _k):
    """y[rows, PANEL] += x[rows, k] @ w[k, PANEL], the sums held in registers; rows: 1 to MOST_ROWS.

    Flat arrays, where to begin, elements from one row (of w: one k) to the next. w is float32, or
    uint16 that holds float16.
    """
    n = types.intp

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, values: Any) -> Any:
        given = signature.args
        begins = [begin_of(context, b, given[i], *values[i : i + 2]) for i in (1, 4, 7)]
        steps = [values[i] for i in (3, 6, 9, 10)]
        kind = _HALVES if given[4].dtype == types.uint16 else _VECTOR
        done = b.append_basic_block()
        choice = b.switch(values[0], done)
        for rows in range(1, MOST_ROWS + 1):
            here = b.append_basic_block()
            choice.add_case(values[0].type(rows), here)
            b.position_at_end(here)
            _emit_tile(b, begins, steps, kind, rows)
            b.branch(done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return types.void(n, x, n, n, w, n, n, y, n, n, n), codegen


def _emit_tile(b: ir.IRBuilder, begins: Any, steps: Any, kind: ir.VectorType, rows: int) -> None:
    """begins: where x, w and y begin; kind: a panel's weights as they lie."""
    (x, weights, y), (x_step, w_step, y_step, count) = begins, steps
    number, fma = count.type, fma_function(b, _VECTOR)
    rows_of_x, cells = (
        [b.gep(begin, [b.mul(step, number(m))]) for m in range(rows)]
        for begin, step in ((x, x_step), (y, y_step))
    )
    cells = [b.bitcast(cell, _VECTOR.as_pointer()) for cell in cells]
    # LLVM keeps them in registers
    sums = [cgutils.alloca_once_value(b, b.load(cell, align=4)) for cell in cells]
    with cgutils.for_range(b, count, intp=number) as loop:
        weight = _load(b, b.gep(weights, [b.mul(loop.index, w_step)]), kind)
        for row, total in zip(rows_of_x, sums, strict=True):
            here = splat(b, b.load(b.gep(row, [loop.index])), _VECTOR)
            b.store(b.call(fma, [here, weight, b.load(total)]), total)
    for total, cell in zip(sums, cells, strict=True):
        b.store(b.load(total), cell, align=4)


def make_fold(kind: str) -> Any:
    """A kernel part: fold(x, at, count) of float32, count a multiple of PANEL: the "sum", "max" or
    sum of "squares".

    PANEL lanes by position, then lane j with j + 16, j + 8 ... j + 1: the order is the same for
    every vector width.
    """

    def join(b: ir.IRBuilder, a: ir.Value, c: ir.Value) -> ir.Value:
        return b.select(b.fcmp_ordered(">", a, c), a, c) if kind == "max" else b.fadd(a, c)

    @intrinsic
    def fold(_context: Any, x: Any, _at: Any, _count: Any) -> Any:
        def codegen(context: Any, b: ir.IRBuilder, signature: Any, values: Any) -> Any:
            start, count = begin_of(context, b, signature.args[0], *values[:2]), values[2]
            least = float("-inf") if kind == "max" else 0.0
            total = cgutils.alloca_once_value(b, ir.Constant(_VECTOR, [least] * PANEL))
            steps = count.type(0), count, count.type(PANEL)
            with cgutils.for_range_slice(b, *steps, intp=count.type) as (i, _):
                x, so_far = _load(b, b.gep(start, [i])), b.load(total)
                if kind == "squares":
                    b.store(b.call(fma_function(b, _VECTOR), [x, x, so_far]), total)
                else:
                    b.store(join(b, so_far, x), total)
            lanes, width = b.load(total), PANEL
            while width > 1:
                width //= 2
                lanes = join(
                    b, *(lanes_of(b, lanes, [*range(at, at + width)]) for at in (0, width))
                )
            return b.extract_element(lanes, _I32(0))

        return types.float32(x, types.intp, types.intp), codegen

    return fold


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
        return b.call(fma_function(b, ir.FloatType()), values)

    return types.float32(types.float32, types.float32, types.float32), codegen


@compiled
def exp(x):
    """e^x within 1e-7, 0 below e^-80, e^87 above; without a branch, so that loops vectorise."""
    given = x
    x = x if x > f4(-80) else f4(-80)
    x = x if x < f4(87) else f4(87)
    shifted = fma(x, _LOG2_E, _SHIFT)
    n = shifted - _SHIFT
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))
    p = fma(fma(fma(fma(fma(_E0, r, _E1), r, _E2), r, _E3), r, _E4), r, _E5)
    # n stands in the lowest bits of `shifted`: 2^n by its bits
    two_to_n = np.int32((f4(shifted).view(np.int32) << 23) + 0x3F800000).view(f4)
    power = fma(p, r * r, r + f4(1)) * two_to_n
    # products of smaller numbers would be denormal, a hundred times as slow
    return power if given > f4(-80) else f4(0)


@compiled
def padded_to_panels(width):
    return (width + PANEL - 1) // PANEL * PANEL


@compiled
def spread(vector, out, rows, width):
    """Every row of out [rows, width] becomes `vector`."""
    for m in range(rows):
        to = out[m * width : (m + 1) * width]
        for i in range(width):
            to[i] = vector[i]


@compiled
def multiply(x, x_step, w, w_at, w_step, w_next, y, y_step, rows, depth, panels):
    """y[rows, panels * PANEL] += x[rows, depth] @ w, each panel for all rows while it is near."""
    for p in range(panels):
        for m in range(0, rows, MOST_ROWS):
            some, w_p, y_at = min(MOST_ROWS, rows - m), w_at + p * w_next, m * y_step + p * PANEL
            tile(some, x, m * x_step, x_step, w, w_p, w_step, y, y_at, y_step, depth)


@part
def product(x, x_step, weights, at, y, rows, depth, columns):
    """y [rows, columns] += x [rows, depth] @ the matrix at `at`; where the next one begins."""
    panel = np.int64(PANEL)  # a constant would be another type, and `multiply` compiled again
    multiply(
        x, x_step, weights, at, panel, depth * panel, y, columns, rows, depth, columns // panel
    )
    return at + depth * columns


@part
def filter_rows(x, w, sizes, y):
    """y [rows, columns] += x [rows, depth] @ w, a matrix in panels. sizes: rows, depth, columns."""
    product(x, sizes[1], w, sizes[0] - sizes[0], y, sizes[0], sizes[1], sizes[2])


@compiled
def sigmoid(x):
    return f4(1) / (f4(1) + exp(-x))


@part
def judge_frames(fed, recur, state, out, gates, chances):
    """The chance of speech in each frame [n], by an LSTM and a single unit.

    fed [n, 4 * width]: each frame's input to the gates: enter, stay, value, show. recur: the
    recurrent weights, in panels. state [2 * width]: hidden, then cell, which go on. out
    [width + 1]: the unit and its bias. gates [4 * width]: memory.
    """
    width = len(state) // 2
    hidden, cell = state[:width], state[width:]
    for i in range(len(fed)):
        for k in range(4 * width):
            gates[k] = fed[i, k]
        product(hidden, width, recur, i - i, gates, i - i + 1, width, 4 * width)
        chance = out[width]
        for k in range(width):
            value = f4(2) * sigmoid(f4(2) * gates[2 * width + k]) - f4(1)
            cell[k] = sigmoid(gates[width + k]) * cell[k] + sigmoid(gates[k]) * value
            hidden[k] = sigmoid(gates[3 * width + k]) * (f4(2) * sigmoid(f4(2) * cell[k]) - f4(1))
        for k in range(width):
            chance += max(hidden[k], f4(0)) * out[k]
        chances[i] = sigmoid(chance)


# F0 as Praat finds it: the method is Boersma's (1993), the costs are Praat's own (Pitch.cpp).
LEAST_STRENGTH = f4(0.225)  # of a peak: half of VOICED
VOICED = f4(0.45)
SILENT = f4(0.03)  # of the loudest frame
OCTAVE_COST = f4(0.01)  # per octave: of two periods that fit, the shorter one
JUMP_COST = f4(0.35)  # per octave from one frame to the next
VOICING_COST = f4(0.14)  # from voiced to unvoiced, or back
_NEVER = f4(-1e9)
squares = make_fold("squares")


@part
def find_candidates(samples, middles, bell, scale, sizes, limits, frame, curve, work, rows):
    """Fill `rows` [n, columns] with the F0 candidates of stretches of `samples` around `middles`
    [n], under a bell [k], and with how loud each is.

    scale [lags]: over the bell's own autocorrelation. sizes: the first lag, samples on each side of
    a middle, for the mean that is subtracted and for the peak, and the columns at which
    frequencies, strengths and the peak begin. limits: samples per second, lowest and highest
    frequency in Hz. Memory: frame [LEAD + k + PANEL], zeros before and after the k; curve, at
    least lags, and work [NUM_CANDIDATES].
    """
    first, hz_at, strength_at = sizes[0], sizes[3], sizes[4]
    for i in range(len(middles)):
        rows[i, sizes[5]] = cut_frame(samples, bell, middles[i], sizes[1], sizes[2], frame)
        whole = squares(frame, first - first, len(frame) // PANEL * PANEL)
        if whole > 0:  # a silent frame has no peak
            correlate(frame, len(bell), first - 1, curve)
            for j in range(len(scale) - first):
                curve[j] = curve[j] * scale[first - 1 + j] / whole
            find_peaks(curve, first, len(scale), limits, work, rows[i], hz_at, strength_at)


@part
def cut_frame(samples, bell, middle, period, near, frame):
    """A stretch of `samples` under a bell [k] around `middle`, into `frame` after LEAD zeros. The
    largest sample near the middle."""
    half = len(bell) // 2
    even = odd = 0.0
    for j in range(middle - period, middle + period, 2):
        even += samples[j]
        odd += samples[j + 1]
    mean, begin = f4((even + odd) / (period + period)), middle - half
    for j in range(len(bell)):
        frame[LEAD + j] = (samples[begin + j] - mean) * bell[j]
    peak = f4(0)
    for j in range(LEAD + half - near, LEAD + half + near):
        peak = max(peak, abs(frame[j]))
    return peak


@part
def correlate(frame, num, first, curve):
    """The autocorrelation of the `num` numbers after LEAD zeros, from lag `first` on, into `curve`
    [lags], whole panels. Row m of a tile is as many panels further: its x begins so much earlier.
    """
    for j in range(len(curve)):
        curve[j] = f4(0)
    for at in range(0, len(curve), MOST_ROWS * PANEL):
        some, w_at = min(MOST_ROWS, (len(curve) - at) // PANEL), LEAD + first + at
        tile(some, frame, LEAD, -PANEL, frame, w_at, 1, curve, at, PANEL, num - first - at)


@part
def find_peaks(curve, first, num_lags, limits, work, row, hz_at, strength_at):
    """The highest peaks of a curve from lag `first` - 1 on: frequencies and strengths into `row`,
    the best first."""
    rate, low_hz, high_hz = limits[0], limits[1], limits[2]
    num = first - first
    for lag in range(first, num_lags - 2):
        j = lag - first + 1
        here, before, after = curve[j], curve[j - 1], curve[j + 1]
        if not (here > LEAST_STRENGTH and here > before and here >= after):
            continue
        off = f4(0.5) * (after - before) / (f4(2) * here - before - after)
        strength = here + f4(0.25) * (after - before) * off
        strength = min(strength, f4(1) / strength)
        hz = rate / (f4(lag) + off)
        if not low_hz <= hz <= high_hz:
            continue
        score, at = strength + OCTAVE_COST * f4(math.log2(hz)), num
        while at > 0 and work[at - 1] < score:
            at -= 1
        if at == NUM_CANDIDATES:
            continue
        num = min(num + 1, NUM_CANDIDATES)
        for k in range(num - 1, at, -1):
            work[k] = work[k - 1]
            row[hz_at + k] = row[hz_at + k - 1]
            row[strength_at + k] = row[strength_at + k - 1]
        work[at], row[hz_at + at], row[strength_at + at] = score, hz, strength


@part
def find_path(rows, sizes, limits, scores, octaves, back, f0):
    """The F0 of each frame [n], 0 where unvoiced: the best way through the candidates.

    sizes: the columns of `rows` at which frequencies, strengths and the peak begin. limits: the
    loudest peak, lowest and highest frequency in Hz. scores, octaves and back [n,
    NUM_CANDIDATES + 1]: work memory.
    """
    hz_at, strength_at, peak_at = sizes[0], sizes[1], sizes[2]
    loudest, low_hz, high_hz = limits[0], limits[1], limits[2]
    num = len(rows)
    top = f4(math.log2(high_hz))
    for i in range(num):
        loud = min(rows[i, peak_at] / loudest, f4(1))
        scores[i, 0] = VOICED + max(f4(0), f4(2) - loud * (f4(1) + VOICED) / SILENT)
        octaves[i, 0] = f4(0)
        for k in range(NUM_CANDIDATES):
            hz = rows[i, hz_at + k]
            scores[i, k + 1] = _NEVER
            octaves[i, k + 1] = f4(0)
            if low_hz <= hz <= high_hz:
                octaves[i, k + 1] = f4(math.log2(hz))
                lower = OCTAVE_COST * (top - octaves[i, k + 1])
                scores[i, k + 1] = rows[i, strength_at + k] - lower
        if i > 0:
            go_on(i, scores, octaves, back)
    state = np.argmax(scores[num - 1]) if num > 0 else 0
    for i in range(num - 1, -1, -1):
        f0[i] = rows[i, hz_at + state - 1] if state > 0 else f4(0)
        state = back[i, state]


@compiled
def go_on(i, scores, octaves, back):
    """Add to each state of frame i the best way to it from the frame before."""
    for k in range(NUM_CANDIDATES + 1):
        best = f4(2) * _NEVER
        for j in range(NUM_CANDIDATES + 1):
            way = scores[i - 1, j]
            if (j == 0) != (k == 0):
                way -= VOICING_COST
            elif k > 0:
                way -= JUMP_COST * abs(octaves[i, k] - octaves[i - 1, j])
            if way > best:
                best = way
                back[i, k] = j
        scores[i, k] += best

"""A layer of a language model in few bits, by one thread or several: one compiled call.

A job is cut into shares, and threads take the next one from a counter: each thread that is there
works, and no thread waits for one that has not come. A step has hundreds of products of 0.1 ms, and
waking a thread takes 0.05 ms. So a helper that is done looks for the next job before it sleeps.
Calls from Python and small operations between products would cost a tenth of a token. Arrays are
flat, and results are written into them.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numba import carray

from streamer.extras.large.atomics import (
    MOST_WOKEN,
    add_to,
    at_address,
    give_way,
    look_at,
    put_in,
    sleep,
    wake,
)
from streamer.extras.large.panels import SPARE, attend_parts, keep, multiply_panels, to_bytes
from streamer.extras.large.tile import COLUMNS, LINE, compiled
from streamer.model.kernels.arithmetic import f4
from streamer.model.kernels.layers import gated
from streamer.model.kernels.library import PANEL
from streamer.model.kernels.simd import keep_apart, make_fold

T = TypeVar("T")


def _numbered(table: type[T]) -> T:
    """The table with each name's own place: 0, 1, 2 ..."""
    return table(*range(len(table._fields)))  # type: ignore[attr-defined]


class Product(NamedTuple):
    """A product in few bits (products.py). Addresses of flat arrays, or numbers."""

    x: int  # int8 [rows, x_step]
    x_step: int  # number
    starts: int  # int32 [rows, groups]
    steps: int  # float32 [rows, groups]
    data: int  # int8, or uint8 where it is packed: [panels, groups, lines, LINE]
    scales: int  # float32 [panels, groups, COLUMNS]
    bias: int  # float32 [num_bias]
    num_bias: int  # number: width, or 0
    y: int  # float32 [rows, width]
    rows: int  # number, as those that follow
    width: int
    groups: int
    lines: int


class Attention(NamedTuple):
    """Attention beside such products. Addresses of arrays, or numbers."""

    qkv: int  # float32 [rows, (heads + 2 kv_heads) * dim]
    rows: int  # number
    spans: int  # int64 [num_spans, SPAN]
    num_spans: int  # number, as the three that follow
    heads: int
    kv_heads: int
    dim: int
    keys: int  # float32 [num_slots, kv_heads, length / PANEL, dim, PANEL]
    values: int  # float32 [num_slots, kv_heads, length, wide]
    num_slots: int  # number, as the two that follow
    length: int
    wide: int
    out: int  # float32 [rows, heads * dim]


PRODUCT = _numbered(Product)
ATTENTION = _numbered(Attention)

# A board, on which the threads of one job count. Each cell has a cache line of its own. OPEN: the
# number of the job that is open, or 0; INSIDE: helpers that look at it; NEXT: the next share;
# ASLEEP: helpers that sleep; NUMBER: the last job's.
APART = 8
OPEN, INSIDE, NEXT, ASLEEP, NUMBER = (APART * i for i in range(5))
BOARD_CELLS = APART * 5
# A job: what to do, how many panels or rows, in how many shares; then the numbers of its kind.
KIND, TOTAL, SHARES, SHARED = range(4)
OF_BYTES, PACKED, ATTENDING = range(3)  # kinds: products with 8 bits, with 4, attention
JOB_CELLS = SHARED + max(len(PRODUCT), len(ATTENTION))

# Looks for the next job, about 1 us each: longer than what lies between two products of a step.
LOOKS = 200
SHARES_EACH = 4  # per thread: one that comes late takes fewer
_COLUMNS = 5  # of spans


@compiled
def help_others(board, job, pipe):
    """A helping thread's whole life: look for a job, take part in it; where none comes, sleep."""
    seen = looks = 0
    while True:
        if look_at(board, OPEN) > seen:
            add_to(board, INSIDE, 1)
            number = look_at(board, OPEN)  # it may be done by now, and the next one begun
            if number > seen:
                _take_turns(board, job)
                seen = number
            add_to(board, INSIDE, -1)
            looks = 0
        elif looks < LOOKS:
            give_way()
            looks += 1
        else:
            add_to(board, ASLEEP, 1)
            if not sleep(pipe):
                return
            looks = 0


@compiled
def share_product(
    x, x_step, starts, steps, w, scales, bias, y, rows, width, groups, lines, kind, total, crew
):
    """As `multiply_panels`, of all panels. kind: PACKED or OF_BYTES. crew: board, job, pipe and
    how many others to wake."""
    job = crew[1]
    own = job[SHARED:]
    own[PRODUCT.x] = x.ctypes.data
    own[PRODUCT.x_step] = x_step
    own[PRODUCT.starts] = starts.ctypes.data
    own[PRODUCT.steps] = steps.ctypes.data
    own[PRODUCT.data] = w.ctypes.data
    own[PRODUCT.scales] = scales.ctypes.data
    own[PRODUCT.bias] = bias.ctypes.data
    own[PRODUCT.num_bias] = bias.size
    own[PRODUCT.y] = y.ctypes.data
    own[PRODUCT.rows] = rows
    own[PRODUCT.width] = width
    own[PRODUCT.groups] = groups
    own[PRODUCT.lines] = lines
    _lead(kind, total, crew)


@compiled
def share_attention(qkv, spans, heads, kv_heads, dim, length, keys, values, out, rows, crew):
    """As `attend_parts`, of all rows and key heads. crew: as above."""
    job = crew[1]
    own = job[SHARED:]
    own[ATTENTION.qkv] = qkv.ctypes.data
    own[ATTENTION.rows] = rows
    own[ATTENTION.spans] = spans.ctypes.data
    own[ATTENTION.num_spans] = len(spans)
    own[ATTENTION.heads] = heads
    own[ATTENTION.kv_heads] = kv_heads
    own[ATTENTION.dim] = dim
    own[ATTENTION.keys] = keys.ctypes.data
    own[ATTENTION.values] = values.ctypes.data
    wide = (dim + PANEL - 1) // PANEL * PANEL
    own[ATTENTION.num_slots] = len(values) // (kv_heads * length * wide)
    own[ATTENTION.length] = length
    own[ATTENTION.wide] = wide
    own[ATTENTION.out] = out.ctypes.data
    _lead(ATTENDING, rows * kv_heads, crew)


@compiled
def _lead(kind, total, crew):
    """Do what the job says, with others; when this returns, no thread reads it any more."""
    board, job, pipe, others = crew
    job[KIND] = kind
    job[TOTAL] = total
    job[SHARES] = SHARES_EACH * (others + 1)
    put_in(board, NEXT, 0)
    put_in(board, OPEN, add_to(board, NUMBER, 1) + 1)
    asleep = min(look_at(board, ASLEEP), others, MOST_WOKEN)
    if asleep > 0:
        add_to(board, ASLEEP, -asleep)
        wake(pipe, asleep)
    _take_turns(board, job)
    put_in(board, OPEN, 0)
    while look_at(board, INSIDE) > 0:
        give_way()


@compiled
def _take_turns(board, job):
    own = job[SHARED:]
    while True:
        turn = add_to(board, NEXT, 1)
        if turn >= job[SHARES]:
            return
        first = job[TOTAL] * turn // job[SHARES]
        last = job[TOTAL] * (turn + 1) // job[SHARES]
        if first == last:
            continue
        if job[KIND] == ATTENDING:
            _attend(own, first, last)
        elif job[KIND] == PACKED:
            _multiply(own, np.uint8, job[TOTAL], first, last)
        else:
            _multiply(own, np.int8, job[TOTAL], first, last)


@compiled
def _multiply(own, kind, panels, first, last):
    """Panels `first` to `last` of all. kind: the weights' type."""
    rows, groups, lines = own[PRODUCT.rows], own[PRODUCT.groups], own[PRODUCT.lines]
    data = carray(at_address(own[PRODUCT.data]), panels * groups * lines * LINE, kind)
    multiply_panels(
        carray(at_address(own[PRODUCT.x]), rows * own[PRODUCT.x_step], np.int8),
        own[PRODUCT.x_step],
        carray(at_address(own[PRODUCT.starts]), rows * groups, np.int32),
        carray(at_address(own[PRODUCT.steps]), rows * groups, np.float32),
        data,
        carray(at_address(own[PRODUCT.scales]), panels * groups * COLUMNS, np.float32),
        carray(at_address(own[PRODUCT.bias]), own[PRODUCT.num_bias], np.float32),
        carray(at_address(own[PRODUCT.y]), rows * own[PRODUCT.width], np.float32),
        rows,
        own[PRODUCT.width],
        groups,
        lines,
        first,
        last,
    )


@compiled
def _attend(own, first, last):
    heads, kv_heads, dim = own[ATTENTION.heads], own[ATTENTION.kv_heads], own[ATTENTION.dim]
    rows, slots, length = own[ATTENTION.rows], own[ATTENTION.num_slots], own[ATTENTION.length]
    of_keys = slots * kv_heads * length * dim
    of_values = slots * kv_heads * length * own[ATTENTION.wide]
    step = (heads + 2 * kv_heads) * dim
    attend_parts(
        carray(at_address(own[ATTENTION.qkv]), rows * step, np.float32),
        carray(at_address(own[ATTENTION.spans]), (own[ATTENTION.num_spans], _COLUMNS), np.int64),
        rows,
        first,
        last,
        heads,
        kv_heads,
        dim,
        length,
        carray(at_address(own[ATTENTION.keys]), of_keys, np.float32),
        carray(at_address(own[ATTENTION.values]), of_values, np.float32),
        carray(at_address(own[ATTENTION.out]), rows * heads * dim, np.float32),
    )


_squares = make_fold("squares")
_ONE = f4(1.0)


@compiled
def times(x, rows, inner, matrix, y, room, crew):
    """y [rows, width] = x [rows, inner] times a matrix (products.py's `given`), by as many threads
    as it is worth. room: for x in 8 bits, its steps and its starts. crew: board, job, pipe, how
    many others there are, and how many multiplications are worth one."""
    w, scales, bias, width, groups, lines, group, kind = matrix
    board, job, pipe, others, worth = crew
    q, steps, starts = room
    x_step = groups * group + SPARE
    middle = np.int32(8 if kind == PACKED else 128)
    to_bytes(x, rows, inner, q, x_step, steps, starts, groups, group, middle)
    panels = scales.size // (groups * COLUMNS)
    of = q, x_step, starts, steps, w, scales, bias, y, rows, width, groups, lines
    others = min(others, rows * inner * width // worth - 1)
    if others > 0:
        share_product(*of, kind, panels, (board, job, pipe, others))
    else:
        multiply_panels(*of, panels - panels, panels)  # 0, of the same type


@compiled
def feed(x, rows, spans, sizes, eps, layer, angles, slots, rooms, crew):
    """A layer's work on x [rows, hidden], in place. layer: two norms and four matrices. slots: its
    keys and values. rooms: for what is between products, three times, and for `times`."""
    heads, kv_heads, dim, hidden, ffn, length = sizes
    norm_in, qkv, out, norm_mlp, gate_up, down = layer
    given, wide, change, room = rooms  # what a product takes, its wide result, and what x gets
    _normalise(x, norm_in, given, rows, hidden, eps)
    times(given, rows, hidden, qkv, wide, room, crew)
    keep(wide, spans, heads, kv_heads, dim, length, *angles, *slots)
    _attend_by_all(wide, spans, rows, heads, kv_heads, dim, length, slots, given, crew)
    times(given, rows, heads * dim, out, change, room, crew)
    _add(x, change, rows * hidden)
    _normalise(x, norm_mlp, given, rows, hidden, eps)
    times(given, rows, hidden, gate_up, wide, room, crew)
    gated(wide, 2 * ffn, given, rows, ffn)
    times(given, rows, ffn, down, change, room, crew)
    _add(x, change, rows * hidden)


@compiled
def _attend_by_all(qkv, spans, rows, heads, kv_heads, dim, length, slots, out, crew):
    board, job, pipe, others, _ = crew
    if others > 0:
        crew_now = board, job, pipe, others
        share_attention(qkv, spans, heads, kv_heads, dim, length, *slots, out, rows, crew_now)
    else:
        parts = rows * kv_heads  # less itself: a 0 of the same type, so that it is compiled once
        attend_parts(
            qkv, spans, rows, parts - parts, parts, heads, kv_heads, dim, length, *slots, out
        )


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

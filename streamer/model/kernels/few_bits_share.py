"""Products and attention in few bits, by one thread or several. In: arrays. Out: written into.

A job is cut into shares, and threads take the next one from a counter: whoever is there works,
nobody waits for a thread that has not come. A step has hundreds of products of 0.1 ms, and waking a
thread takes 0.05. So a helper that is done looks for the next job before it sleeps.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from streamer.model.kernels.arithmetic import compiled
from streamer.model.kernels.atomics import (
    MOST_WOKEN,
    add_to,
    at_address,
    give_way,
    look_at,
    put_in,
    sleep,
    wake,
)
from streamer.model.kernels.cells import (
    ASLEEP,
    ATTENDING,
    ATTENTION,
    INSIDE,
    KIND,
    NEXT,
    NUMBER,
    OPEN,
    PACKED,
    PRODUCT,
    SHARED,
    SHARES,
    SPAN,
    TOTAL,
)
from streamer.model.kernels.few_bits_attention import attend_parts
from streamer.model.kernels.few_bits_fours import COLUMNS, LINE
from streamer.model.kernels.few_bits_product import multiply_panels
from streamer.model.kernels.simd import PANEL

# Looks for the next job, about 1 us each: longer than what lies between two products of a step.
LOOKS = 200
SHARES_EACH = 4  # per thread: one that comes late takes fewer
_COLUMNS = len(SPAN)


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
def share_attention(qkv, spans, heads, kv_heads, dim, keys, values, out, rows, crew):
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
    own[ATTENTION.num_slots] = values.shape[0]
    own[ATTENTION.length] = values.shape[2]
    own[ATTENTION.wide] = values.shape[3]
    own[ATTENTION.out] = out.ctypes.data
    _lead(ATTENDING, rows * kv_heads, crew)


@compiled
def _lead(kind, total, crew):
    """Do what the job says, with others; done when this returns, and nobody reads it any more."""
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
    """Panels `first` to `last` of so many. kind: the weights' type."""
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
    of_keys = slots, kv_heads, length // PANEL, dim, np.int64(PANEL)
    of_values = slots, kv_heads, length, own[ATTENTION.wide]
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
        carray(at_address(own[ATTENTION.keys]), of_keys, np.float32),
        carray(at_address(own[ATTENTION.values]), of_values, np.float32),
        carray(at_address(own[ATTENTION.out]), rows * heads * dim, np.float32),
    )

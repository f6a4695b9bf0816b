"""A layer of a language model in few bits, compiled: one call, since calls from Python and small
operations between products cost a tenth of a token. In: flat float32 rows. Out: written into them.
"""

from __future__ import annotations

import numpy as np

from streamer.model.kernels.arithmetic import compiled, f4
from streamer.model.kernels.cells import PACKED
from streamer.model.kernels.few_bits_attention import attend_parts, keep
from streamer.model.kernels.few_bits_fours import COLUMNS
from streamer.model.kernels.few_bits_product import SPARE, multiply_panels, to_bytes
from streamer.model.kernels.few_bits_share import share_attention, share_product
from streamer.model.kernels.simd import PANEL, keep_apart, make_fold
from streamer.model.kernels.text_arithmetic import gated

_squares = make_fold("squares")
_ONE = f4(1.0)


@compiled
def times(x, rows, inner, matrix, y, room, crew):
    """y [rows, width] = x [rows, inner] times a matrix (few_bits.py's `given`), by as many threads
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
    heads, kv_heads, dim, hidden, ffn = sizes
    norm_in, qkv, out, norm_mlp, gate_up, down = layer
    given, wide, change, room = rooms  # what a product takes, its wide result, and what x gets
    _normalise(x, norm_in, given, rows, hidden, eps)
    times(given, rows, hidden, qkv, wide, room, crew)
    keep(wide, spans, heads, kv_heads, dim, *angles, *slots)
    _attend(wide, spans, rows, heads, kv_heads, dim, slots, given, crew)
    times(given, rows, heads * dim, out, change, room, crew)
    _add(x, change, rows * hidden)
    _normalise(x, norm_mlp, given, rows, hidden, eps)
    times(given, rows, hidden, gate_up, wide, room, crew)
    gated(wide, 2 * ffn, given, rows, ffn)
    times(given, rows, ffn, down, change, room, crew)
    _add(x, change, rows * hidden)


@compiled
def _attend(qkv, spans, rows, heads, kv_heads, dim, slots, out, crew):
    board, job, pipe, others, _ = crew
    if others > 0:
        crew_now = board, job, pipe, others
        share_attention(qkv, spans, heads, kv_heads, dim, *slots, out, rows, crew_now)
    else:
        parts = rows * kv_heads  # less itself: a 0 of the same type, so that it is compiled once
        attend_parts(qkv, spans, rows, parts - parts, parts, heads, kv_heads, dim, *slots, out)


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

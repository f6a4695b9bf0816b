"""The layers of both models: their arithmetic on flat float32 arrays.

Attention reads KV slots: the language model's, or those of one window of the tower. A convolution
is a product of overlapping rows: the frames t - 1, t, t + 1 of a [frames, channels] array lie one
after the other. Everything runs on one thread, and every sum has a fixed order. Results are written
into the arrays that are passed.
"""

from __future__ import annotations

import numpy as np

from streamer.model.kernels.arithmetic import (
    compiled,
    exp,
    f4,
    fma,
    make_fold,
    multiply,
    padded_to_panels,
    part,
    product,
    spread,
)
from streamer.model.kernels.library import BLOCK, PANEL, QUERIES

# Columns of spans [n, 5] int64, one span per row of a step: its KV slot, its first position there,
# its first packed row, its number of positions, and how many of the last of them want logits.
SLOT, START, FIRST, COUNT, NUM_LOGITS = range(5)
_sum, _max, _squares = make_fold("sum"), make_fold("max"), make_fold("squares")
# erf(z) = 1 - (a1 t + ... + a5 t^5) e^-z^2, t = 1 / (1 + p z), z >= 0: within 1.5e-7
# (Abramowitz and Stegun 7.1.26)
_P, _A1, _A2 = f4(0.3275911), f4(0.254829592), f4(-0.284496736)
_A3, _A4, _A5 = f4(1.421413741), f4(-1.453152027), f4(1.061405429)


@compiled
def normalise(x, weight, out, rows, width, padded, eps):
    """out = weight * x / rms(x), rows of `padded` numbers of which `width` count."""
    for m in range(rows):
        row = x[m * padded : (m + 1) * padded]
        to = out[m * padded : (m + 1) * padded]
        scale = f4(1) / np.sqrt(_squares(row, 0, padded) / f4(width) + eps)
        for i in range(padded):
            to[i] = weight[i] * (row[i] * scale)


@compiled
def centre(x, vectors, out, rows, width, padded):
    """Layer norm of rows of `padded` numbers of which `width` count; zeros after them. vectors:
    weight and bias, `padded` numbers each."""
    bias = vectors[padded:]
    for m in range(rows):
        row = x[m * padded : (m + 1) * padded]
        to = out[m * padded : (m + 1) * padded]
        mean = _sum(row, 0, padded) / f4(width)
        for i in range(padded):
            to[i] = row[i] - mean if i < width else f4(0)
        scale = f4(1) / np.sqrt(_squares(to, 0, padded) / f4(width) + f4(1e-5))
        for i in range(padded):
            to[i] = fma(to[i] * scale, vectors[i], bias[i])


@compiled
def gated(mixed, step, out, rows, ffn):
    """out [rows, ffn] = silu(gate) * up of rows [gate | up]."""
    for m in range(rows):
        gate = mixed[m * step : m * step + ffn]
        up = mixed[m * step + ffn : m * step + 2 * ffn]
        to = out[m * ffn : (m + 1) * ffn]
        for i in range(ffn):
            to[i] = gate[i] / (f4(1) + exp(-gate[i])) * up[i]


@compiled
def gelu(x, count):
    """x / 2 * (1 + erf(x / sqrt 2)), in place."""
    for i in range(count):
        z = abs(x[i]) * f4(0.70710678)
        t = f4(1) / fma(_P, z, f4(1))
        tail = fma(fma(fma(fma(_A5, t, _A4), t, _A3), t, _A2), t, _A1) * t * exp(-z * z)
        x[i] = x[i] * (f4(1) - f4(0.5) * tail if x[i] > 0 else f4(0.5) * tail)


@compiled
def add(x, vector, rows, width):
    """`vector` onto every row of x [rows, width]."""
    for m in range(rows):
        row = x[m * width : (m + 1) * width]
        for i in range(width):
            row[i] += vector[i]


@compiled
def rotate(qkv, step, spans, heads, dim, angles):
    """Rotary embedding of the first `heads` heads of every packed position, in place."""
    half = dim // 2
    cos, sin = angles
    for r in range(spans.shape[0]):
        for i in range(spans[r, COUNT]):
            at = (spans[r, FIRST] + i) * step
            row = qkv[at : at + heads * dim]
            c = cos[spans[r, START] + i]
            s = sin[spans[r, START] + i]
            for h in range(0, heads * dim, dim):
                low = row[h : h + half]
                high = row[h + half : h + dim]
                for j in range(half):
                    a = low[j]
                    b = high[j]
                    low[j] = a * c[j] - b * s[j]
                    high[j] = b * c[j] + a * s[j]


@compiled
def store(qkv, step, spans, sizes, cache):
    """Scale the queries of every packed position, and put its keys and values into its row's slot.

    sizes: heads, kv_heads, head_dim, positions of a slot. cache: keys [slots, kv_heads, length /
    PANEL, dim, PANEL]: panels of positions, as `multiply` reads weights; values [slots, kv_heads,
    length, padded dim]. Both flat.
    """
    heads, kv_heads, dim, length = sizes
    keys, values = cache
    wide = padded_to_panels(dim)
    scale = f4(1) / np.sqrt(f4(dim))
    for r in range(spans.shape[0]):
        for i in range(spans[r, COUNT]):
            row = qkv[(spans[r, FIRST] + i) * step : (spans[r, FIRST] + i + 1) * step]
            for j in range(heads * dim):
                row[j] *= scale
            at = spans[r, START] + i
            for h in range(kv_heads):
                first = (spans[r, SLOT] * kv_heads + h) * length
                k_at = (first + at // PANEL * PANEL) * dim + at % PANEL
                v_at = (first + at) * wide
                k = (heads + h) * dim
                v = (heads + kv_heads + h) * dim
                for j in range(dim):
                    keys[k_at + j * PANEL] = row[k + j]
                    values[v_at + j] = row[v + j]


@compiled
def soften(scores, step, rows, first, seen, sums, wide):
    """Replace the scores [rows, step] of one block by exp(score - maximum), and those of hidden
    positions by zero. The maximum is that of the row's scores until now.

    Row m sees first + m + 1 positions of the block, or `seen` where that is not 0. sums [rows, wide
    + PANEL]: its results so far, then their total, then the largest score; they follow a new
    largest. A row that sees nothing stays as it is, and a sum is one of lanes by position: neither
    later blocks nor zeros change a bit. step: a multiple of PANEL.
    """
    for m in range(rows):
        limit = seen if seen else first + m + 1
        row = scores[m * step : (m + 1) * step]
        own = sums[m * (wide + PANEL) : (m + 1) * (wide + PANEL)]
        for i in range(max(limit, 0), step):
            row[i] = -np.inf
        top = f4(0)
        if limit > 0:
            top = _max(row, 0, step)
            if top > own[wide + 1] or own[wide] == 0:
                scale = exp(own[wide + 1] - top)
                own[wide + 1] = top
                for i in range(wide + 1):
                    own[i] *= scale
            top = own[wide + 1]
        for i in range(step):
            row[i] = exp(row[i] - top)
        own[wide] += _sum(row, 0, step)


@compiled
def work_numbers(dim):
    """The work memory of attention, per query at once: scores, and what `soften` keeps."""
    return BLOCK + padded_to_panels(dim) + PANEL


@part
def attend_head(qkv, step, start, rows, seen, at, sizes, cache, out, out_step, work):
    """Packed rows' query heads over their key head, `at` of all slots'. start: position of the
    first one, with whose first head qkv and out begin.

    One row has its heads beside each other: all read the keys at once.
    """
    heads, kv_heads, dim, length = sizes
    keys, values = cache
    wide, panel = padded_to_panels(dim), np.int64(PANEL)
    sums = work[len(work) // work_numbers(dim) * BLOCK :]
    group, at_once = heads // kv_heads, 1
    if rows == 1:
        at_once, rows, step, out_step = group, group, dim, dim
        seen = seen if seen else start + 1
    for g in range(0, group, at_once):
        for begin in range(0, rows, QUERIES):
            n = min(QUERIES, rows - begin)
            x, here = qkv[g * dim + begin * step :], start + begin
            end = seen if seen else here + n
            sums[: n * (wide + PANEL)] = 0
            for block in range(0, end, BLOCK):
                depth = min(BLOCK, end - block)
                padded, first = padded_to_panels(depth), at * length + block
                num = padded // PANEL
                work[: n * padded] = 0
                multiply(x, step, keys, first * dim, panel, dim * PANEL, work, padded, n, dim, num)
                soften(work, padded, n, here - block, seen - block if seen else 0, sums, wide)
                wider, num = wide + PANEL, wide // PANEL
                multiply(
                    work, padded, values, first * wide, wide, panel, sums, wider, n, depth, num
                )
            for m in range(n):
                own = sums[m * (wide + PANEL) : (m + 1) * (wide + PANEL)]
                to_at, scale = g * dim + (begin + m) * out_step, f4(1) / own[wide]
                for j in range(dim):
                    out[to_at + j] = own[j] * scale


@compiled
def attend(qkv, step, spans, seen, sizes, cache, out, out_step, work):
    """Attention of every row over its own slot, into `out`, as `store` has prepared it.

    Blocks of positions lie where they lie in the slot, so that each query sums in one order however
    its row is cut. seen: 0 where a position sees itself and all before it, else the number of
    positions that all see.
    """
    heads, kv_heads, dim, _ = sizes
    for r in range(spans.shape[0]):
        first, start, rows = spans[r, FIRST], spans[r, START], spans[r, COUNT]
        for h in range(kv_heads):
            at, head = spans[r, SLOT] * kv_heads + h, h * (heads // kv_heads) * dim
            own, to = qkv[first * step + head :], out[first * out_step + head :]
            attend_head(own, step, start, rows, seen, at, sizes, cache, to, out_step, work)


@part
def run_text(
    spans, sizes, eps, weights, vectors, norm, head, cos, sin, keys, values, x, a, b, c, y
):
    """Feed the packed rows x [rows, padded hidden], embeddings, through the language model.

    spans [n, 5]: see SLOT. sizes: layers, heads, kv_heads, head_dim, hidden, ffn, positions of a
    slot, padded vocab. Each layer has, flat: weights in panels and vectors, in the order of use,
    keys and values. norm: the last one. cos and sin [positions, head_dim / 2]. a, b, c: memory for
    rows, for products, for attention. y: the wanted logits [num_logits, padded vocab], flat.
    """
    heads, kv_heads, dim, hidden, ffn = sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]
    columns = sizes[7]
    rows = spans[len(spans) - 1, FIRST] + spans[len(spans) - 1, COUNT]
    wide, inner, none = padded_to_panels(hidden), heads * dim, rows - rows
    both, mixed = padded_to_panels((heads + 2 * kv_heads) * dim), padded_to_panels(2 * ffn)
    few = heads, kv_heads, dim, sizes[6]
    for i in range(sizes[0]):
        own, shifts = weights[i], vectors[i]
        normalise(x, shifts, a, rows, hidden, wide, eps[0])
        spread(shifts[wide:], b, rows, both)
        at = product(a, wide, own, none, b, rows, hidden, both)
        rotate(b, both, spans, heads + kv_heads, dim, (cos, sin))
        store(b, both, spans, few, (keys[i], values[i]))
        attend(b, both, spans, none, few, (keys[i], values[i]), a, inner, c)
        at = product(a, inner, own, at, x, rows, inner, wide)
        normalise(x, shifts[wide + both :], a, rows, hidden, wide, eps[0])
        b[: rows * mixed] = 0
        at = product(a, wide, own, at, b, rows, hidden, mixed)
        gated(b, mixed, a, rows, ffn)
        product(a, ffn, own, at, x, rows, ffn, wide)
    wanted = none
    for r in range(len(spans)):
        num = spans[r, NUM_LOGITS]
        first = spans[r, FIRST] + spans[r, COUNT] - num
        normalise(x[first * wide :], norm, a[wanted * wide :], num, hidden, wide, eps[0])
        wanted += num
    y[: wanted * columns] = 0
    product(a, wide, head, none, y, wanted, hidden, columns)


@part
def run_tower(
    frames, spans, sizes, outer, weights, vectors, ends, places, hidden, keys, values, x, a, b, c, y
):
    """One window through the audio tower: y [positions // 2, padded output], flat.

    frames [T + 2, mels] and hidden [T + 2, padded width], flat, have zeros at both ends. spans:
    one, of all positions. sizes: layers, heads, width, ffn, mels, output. Each layer has, flat:
    weights in panels and vectors, in the order of use; outer, ends: the same of what is around the
    layers. places: sinusoids [positions, padded width], flat. keys and values of one layer. a, b,
    c: see `run_text`.
    """
    heads, width, ffn, mels = sizes[1], sizes[2], sizes[3], sizes[4]
    wide, both, inner = padded_to_panels(width), padded_to_panels(3 * width), padded_to_panels(ffn)
    count, rows = len(frames) // mels - 2, len(x) // wide
    spread(ends, hidden[wide:], count, wide)
    at = product(frames, mels, outer, rows - rows, hidden[wide:], count, 3 * mels, wide)
    gelu(hidden[wide:], count * wide)
    spread(ends[wide:], x, rows, wide)
    # halves the positions
    at = product(hidden, 2 * wide, outer, at, x, rows, 3 * wide, wide)
    gelu(x, rows * wide)
    for i in range(rows * wide):
        x[i] += places[i]
    few = heads, heads, width // heads, padded_to_panels(rows)
    for i in range(sizes[0]):
        own, shifts = weights[i], vectors[i]
        centre(x, shifts, a, rows, width, wide)
        shifts = shifts[2 * wide :]
        spread(shifts, b, rows, both)
        done = product(a, wide, own, rows - rows, b, rows, width, both)
        store(b, both, spans, few, (keys, values))
        attend(b, both, spans, rows, few, (keys, values), a, width, c)
        shifts = shifts[both:]
        add(x, shifts, rows, wide)
        done = product(a, width, own, done, x, rows, width, wide)
        shifts = shifts[wide:]
        centre(x, shifts, a, rows, width, wide)
        shifts = shifts[2 * wide :]
        spread(shifts, b, rows, inner)
        done = product(a, wide, own, done, b, rows, width, inner)
        gelu(b, rows * inner)
        add(x, shifts[inner:], rows, wide)
        product(b, inner, own, done, x, rows, ffn, wide)
    num, columns = rows // 2, padded_to_panels(sizes[5])  # two positions become one embedding
    for m in range(num):
        for i in range(wide):
            x[m * wide + i] = (x[2 * m * wide + i] + x[(2 * m + 1) * wide + i]) * f4(0.5)
    centre(x, ends[2 * wide :], a, num, width, wide)
    spread(ends[4 * wide :], y, num, columns)
    product(a, wide, outer, at, y, num, width, columns)

"""The layers of both models: their arithmetic on flat float32 arrays.

A convolution is a product of overlapping rows: the frames t - 1, t, t + 1 of a [frames, channels]
array lie one after the other. Everything runs on one thread, and every sum has a fixed order.
Results are written into the arrays that are passed.
"""

from __future__ import annotations

import numpy as np

from streamer.model.kernels.arithmetic import (
    compiled,
    exp,
    f4,
    fma,
    make_fold,
    padded_to_panels,
    part,
    product,
    spread,
)
from streamer.model.kernels.attention import COUNT, FIRST, NUM_LOGITS, START, attend, store

_sum, _squares = make_fold("sum"), make_fold("squares")
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


@part
def text_layer(x, rows, spans, sizes, eps, weights, vectors, cache, angles, work):
    """A layer over x [rows, padded hidden], in place: attention, gated product."""
    heads, kv_heads, dim, hidden, ffn = sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]
    a, b, own = work
    wide, inner = padded_to_panels(hidden), heads * dim
    both, mixed = padded_to_panels((heads + 2 * kv_heads) * dim), padded_to_panels(2 * ffn)
    few = heads, kv_heads, dim, sizes[6]
    normalise(x, vectors, a, rows, hidden, wide, eps)
    spread(vectors[wide:], b, rows, both)
    at = product(a, wide, weights, rows - rows, b, rows, hidden, both)
    rotate(b, both, spans, heads + kv_heads, dim, angles)
    store(b, both, spans, few, cache)
    attend(b, both, spans, rows - rows, few, cache, a, inner, own)
    at = product(a, inner, weights, at, x, rows, inner, wide)
    normalise(x, vectors[wide + both :], a, rows, hidden, wide, eps)
    b[: rows * mixed] = 0
    at = product(a, wide, weights, at, b, rows, hidden, mixed)
    gated(b, mixed, a, rows, ffn)
    product(a, ffn, weights, at, x, rows, ffn, wide)


@part
def run_text(
    spans, sizes, eps, weights, vectors, norm, head, cos, sin, keys, values, x, a, b, c, y
):
    """Feed the packed rows x [rows, padded hidden], embeddings, through the language model.

    spans [n, 5]: see attention.py. sizes: layers, heads, kv_heads, head_dim, hidden, ffn, positions
    of a slot, padded vocab. Each layer has, flat: weights in panels and vectors, in the order of
    use, keys and values. norm: the last one. cos and sin [positions, head_dim / 2]. a, b, c: memory
    for rows, for products, for attention. y: the wanted logits [num_logits, padded vocab], flat.
    """
    hidden, columns = sizes[4], sizes[7]
    wide = padded_to_panels(hidden)
    rows = spans[len(spans) - 1, FIRST] + spans[len(spans) - 1, COUNT]
    for i in range(sizes[0]):
        own, cache, angles, work = vectors[i], (keys[i], values[i]), (cos, sin), (a, b, c)
        text_layer(x, rows, spans, sizes, eps[0], weights[i], own, cache, angles, work)
    wanted = rows - rows
    for r in range(len(spans)):
        num = spans[r, NUM_LOGITS]
        first = spans[r, FIRST] + spans[r, COUNT] - num
        normalise(x[first * wide :], norm, a[wanted * wide :], num, hidden, wide, eps[0])
        wanted += num
    y[: wanted * columns] = 0
    product(a, wide, head, rows - rows, y, wanted, hidden, columns)


@part
def tower_layer(x, rows, spans, sizes, weights, vectors, cache, work):
    """A layer over x [rows, padded width], in place; each position sees all."""
    heads, width, ffn = sizes[1], sizes[2], sizes[3]
    a, b, own = work
    wide, both, inner = padded_to_panels(width), padded_to_panels(3 * width), padded_to_panels(ffn)
    few = heads, heads, width // heads, padded_to_panels(rows)
    centre(x, vectors, a, rows, width, wide)
    vectors = vectors[2 * wide :]
    spread(vectors, b, rows, both)
    at = product(a, wide, weights, rows - rows, b, rows, width, both)
    store(b, both, spans, few, cache)
    attend(b, both, spans, rows, few, cache, a, width, own)
    vectors = vectors[both:]
    add(x, vectors, rows, wide)
    at = product(a, width, weights, at, x, rows, width, wide)
    vectors = vectors[wide:]
    centre(x, vectors, a, rows, width, wide)
    vectors = vectors[2 * wide :]
    spread(vectors, b, rows, inner)
    at = product(a, wide, weights, at, b, rows, width, inner)
    gelu(b, rows * inner)
    add(x, vectors[inner:], rows, wide)
    product(b, inner, weights, at, x, rows, ffn, wide)


@part
def run_tower(
    frames,
    spans,
    sizes,
    convolutions,
    weights,
    vectors,
    ends,
    proj,
    places,
    hidden,
    keys,
    values,
    x,
    a,
    b,
    c,
    y,
):
    """One window through the audio tower: y [positions // 2, padded output], flat.

    frames [T + 2, mels] and hidden [T + 2, padded width], flat, have zeros at both ends. spans:
    one, of all positions. sizes: layers, heads, width, ffn, mels, output. Each layer has, flat:
    weights in panels and vectors, in the order of use; ends: the other vectors. places: sinusoids
    [positions, padded width], flat. keys and values of one layer. a, b, c: see `run_text`.
    """
    width, mels, columns = sizes[2], sizes[4], padded_to_panels(sizes[5])
    wide = padded_to_panels(width)
    count, rows = len(frames) // mels - 2, len(x) // wide
    spread(ends, hidden[wide:], count, wide)
    at = product(frames, mels, convolutions, rows - rows, hidden[wide:], count, 3 * mels, wide)
    gelu(hidden[wide:], count * wide)
    spread(ends[wide:], x, rows, wide)
    product(hidden, 2 * wide, convolutions, at, x, rows, 3 * wide, wide)  # halves the positions
    gelu(x, rows * wide)
    for i in range(rows * wide):
        x[i] += places[i]
    for i in range(sizes[0]):
        tower_layer(x, rows, spans, sizes, weights[i], vectors[i], (keys, values), (a, b, c))
    num = rows // 2  # two positions become one embedding
    for m in range(num):
        for i in range(wide):
            x[m * wide + i] = (x[2 * m * wide + i] + x[(2 * m + 1) * wide + i]) * f4(0.5)
    centre(x, ends[2 * wide :], a, num, width, wide)
    spread(ends[4 * wide :], y, num, columns)
    product(a, wide, proj, rows - rows, y, num, width, columns)

"""The layers of both models: their arithmetic on flat float32 arrays.

A layer is (weights, where its own begin in them, its vectors, its keys, its values). A convolution
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
    fill,
    padded_to_panels,
    part,
    product,
    spread,
)
from streamer.model.kernels.attention import (
    COUNT,
    FIRST,
    NUM_LOGITS,
    START,
    attend,
    attention_room,
    store,
)
from streamer.model.kernels.simd import fma, keep_apart, make_fold

_squares = make_fold("squares")
_ONE = f4(1.0)
_ZERO = f4(0.0)


@compiled
def normalise(x, weight, out, rows, width, padded, eps):
    """out = weight * x / rms(x), rows of `padded` numbers of which `width` count."""
    keep_apart()
    for m in range(rows):
        row = x[m * padded : (m + 1) * padded]
        to = out[m * padded : (m + 1) * padded]
        scale = _ONE / np.sqrt(_squares(row, 0, padded) / f4(width) + eps)
        for i in range(padded):
            to[i] = weight[i] * (row[i] * scale)


@compiled
def gated(mixed, step, out, rows, ffn):
    """out [rows, ffn] = silu(gate) * up of rows [gate | up]."""
    keep_apart()
    for m in range(rows):
        gate = mixed[m * step : m * step + ffn]
        up = mixed[m * step + ffn : m * step + 2 * ffn]
        to = out[m * ffn : (m + 1) * ffn]
        for i in range(ffn):
            to[i] = gate[i] / (_ONE + exp(-gate[i])) * up[i]


@compiled
def rotate(qkv, step, spans, heads, dim, cos, sin):
    """Rotary embedding of the first `heads` heads of every packed position, in place."""
    keep_apart()
    half = dim // 2
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
def text_layer(x, rows, spans, sizes, eps, layer, angles, room):
    """A layer over x [rows, padded hidden], in place: attention, gated product."""
    heads, kv_heads, dim, hidden = sizes[1], sizes[2], sizes[3], sizes[4]
    ffn, length = sizes[5], sizes[6]
    weights, at, vectors, keys, values = layer
    a, b, own = room
    wide = padded_to_panels(hidden)
    inner = heads * dim
    both = padded_to_panels((heads + 2 * kv_heads) * dim)
    mixed = padded_to_panels(2 * ffn)
    normalise(x, vectors, a, rows, hidden, wide, eps)
    spread(vectors[wide:], b, rows, both)
    at = product(a, wide, weights, at, b, rows, hidden, both)
    rotate(b, both, spans, heads + kv_heads, dim, angles[0], angles[1])
    store(b, both, spans, heads, kv_heads, dim, length, keys, values)
    attend(b, both, spans, at - at, heads, kv_heads, dim, length, keys, values, a, inner, own)
    at = product(a, inner, weights, at, x, rows, inner, wide)
    normalise(x, vectors[wide + both :], a, rows, hidden, wide, eps)
    fill(b, rows * mixed, _ZERO)
    at = product(a, wide, weights, at, b, rows, hidden, mixed)
    gated(b, mixed, a, rows, ffn)
    product(a, ffn, weights, at, x, rows, ffn, wide)


@part
def text_sizes(sizes):
    """How many weights and how many numbers of `vectors` one layer has."""
    heads, kv_heads, dim, hidden, ffn = sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]
    wide = padded_to_panels(hidden)
    inner = heads * dim
    both = padded_to_panels((heads + 2 * kv_heads) * dim)
    mixed = padded_to_panels(2 * ffn)
    return both * hidden + wide * inner + mixed * hidden + wide * ffn, 2 * wide + both


@compiled
def gather(x, wide, spans):
    """Move the rows whose logits are wanted to the front of x; how many they are."""
    keep_apart()
    to = 0
    for r in range(spans.shape[0]):
        end = spans[r, FIRST] + spans[r, COUNT]
        for m in range(end - spans[r, NUM_LOGITS], end):
            for i in range(wide):
                x[to * wide + i] = x[m * wide + i]
            to += 1
    return to


@part
def speak(x, spans, sizes, eps, head, norm, a, logits):
    """Logits [wanted, padded vocab] of the rows that want them, which move to x's front."""
    hidden, columns = sizes[4], sizes[7]
    wide = padded_to_panels(hidden)
    wanted = gather(x, wide, spans)
    if wanted > 0:
        normalise(x, norm, a, wanted, hidden, wide, eps)
        fill(logits, wanted * columns, _ZERO)
        product(a, wide, head, columns - columns, logits, wanted, hidden, columns)


_HALF = f4(0.5)
_EPS = f4(1e-5)
_sum = make_fold("sum")
_ROOT_HALF = f4(0.70710678)
# erf(z) = 1 - (a1 t + ... + a5 t^5) e^-z^2, t = 1 / (1 + p z), z >= 0: within 1.5e-7
# (Abramowitz and Stegun 7.1.26)
_P = f4(0.3275911)
_A1 = f4(0.254829592)
_A2 = f4(-0.284496736)
_A3 = f4(1.421413741)
_A4 = f4(-1.453152027)
_A5 = f4(1.061405429)


@compiled
def gelu(x, count):
    """x / 2 * (1 + erf(x / sqrt 2)), in place."""
    keep_apart()
    for i in range(count):
        z = abs(x[i]) * _ROOT_HALF
        t = _ONE / fma(_P, z, _ONE)
        tail = fma(fma(fma(fma(_A5, t, _A4), t, _A3), t, _A2), t, _A1) * t * exp(-z * z)
        x[i] = x[i] * (_ONE - _HALF * tail if x[i] > 0 else _HALF * tail)


@compiled
def centre(x, weight, bias, out, rows, width, padded):
    """Layer norm of rows of `padded` numbers of which `width` count; zeros after them."""
    keep_apart()
    for m in range(rows):
        row = x[m * padded : (m + 1) * padded]
        to = out[m * padded : (m + 1) * padded]
        mean = _sum(row, 0, padded) / f4(width)
        for i in range(padded):
            to[i] = row[i] - mean if i < width else _ZERO
        scale = _ONE / np.sqrt(_squares(to, 0, padded) / f4(width) + _EPS)
        for i in range(padded):
            to[i] = fma(to[i] * scale, weight[i], bias[i])


@compiled
def add(x, vector, rows, width):
    """`vector` onto every row of x [rows, width]."""
    keep_apart()
    for m in range(rows):
        row = x[m * width : (m + 1) * width]
        for i in range(width):
            row[i] += vector[i]


@part
def convolve(frames, count, mels, hidden, wide, weights, vectors):
    """The first convolution: frames [count + 2, mels] -> hidden [count + 2, wide]."""
    inner = hidden[wide:]
    spread(vectors, inner, count, wide)
    product(frames, mels, weights, wide - wide, inner, count, 3 * mels, wide)
    gelu(inner, count * wide)


@part
def halve(hidden, x, rows, sizes, weights, vectors, places):
    """The second convolution of `rows` positions, and their sinusoids: x [rows, wide]."""
    wide = padded_to_panels(sizes[2])
    spread(vectors[wide:], x, rows, wide)
    at = 3 * sizes[4] * wide
    product(hidden, 2 * wide, weights, at, x, rows, 3 * wide, wide)
    gelu(x, rows * wide)
    for i in range(rows * wide):
        x[i] += places[i]


@part
def tower_layer(x, rows, spans, sizes, layer, room):
    """A layer over x [rows, padded width], in place; each position sees all."""
    heads, width, ffn = sizes[1], sizes[2], sizes[3]
    weights, at, vectors, keys, values = layer
    a, b, own = room
    wide = padded_to_panels(width)
    dim = width // heads
    both = padded_to_panels(3 * width)
    inner = padded_to_panels(ffn)
    length = padded_to_panels(rows)
    centre(x, vectors, vectors[wide:], a, rows, width, wide)
    vectors = vectors[2 * wide :]
    spread(vectors, b, rows, both)
    at = product(a, wide, weights, at, b, rows, width, both)
    store(b, both, spans, heads, heads, dim, length, keys, values)
    attend(b, both, spans, rows, heads, heads, dim, length, keys, values, a, width, own)
    vectors = vectors[both:]
    add(x, vectors, rows, wide)
    at = product(a, width, weights, at, x, rows, width, wide)
    vectors = vectors[wide:]
    centre(x, vectors, vectors[wide:], a, rows, width, wide)
    vectors = vectors[2 * wide :]
    spread(vectors, b, rows, inner)
    at = product(a, wide, weights, at, b, rows, width, inner)
    gelu(b, rows * inner)
    add(x, vectors[inner:], rows, wide)
    product(b, inner, weights, at, x, rows, ffn, wide)


@part
def pool(x, rows, sizes, weights, at, vectors, a, out):
    """Two positions become one embedding: out [rows // 2, padded output]."""
    width = sizes[2]
    columns = padded_to_panels(sizes[5])
    n = rows // 2
    wide = padded_to_panels(width)
    for m in range(n):
        for i in range(wide):
            x[m * wide + i] = (x[2 * m * wide + i] + x[(2 * m + 1) * wide + i]) * _HALF
    centre(x, vectors, vectors[wide:], a, n, width, wide)
    spread(vectors[2 * wide :], out, n, columns)
    product(a, wide, weights, at, out, n, width, columns)


@part
def tower_sizes(sizes):
    """Weights of both convolutions, weights of one layer, its numbers of `vectors`."""
    width, ffn, mels = sizes[2], sizes[3], sizes[4]
    wide = padded_to_panels(width)
    both = padded_to_panels(3 * width)
    inner = padded_to_panels(ffn)
    return (
        3 * mels * wide + 3 * wide * wide,
        width * both + width * wide + width * inner + ffn * wide,
        (6 * wide + both + inner),
    )


@part
def run_text(
    ids, x, spans, sizes, eps, weights, vectors, table, head, cos, sin, keys, values, work, logits
):
    """Feed packed rows through the language model.

    ids [rows]: -1 where an embedding stands in x [rows, padded hidden] already. spans [n, 5]: see
    attention.py. sizes: layers, heads, kv_heads, head_dim, hidden, ffn, positions of a slot, padded
    vocab, and of `work` what two parts and the queries at once take. weights of all layers in the
    order of use, in panels; vectors: norms and biases; table: embeddings. cos and sin [positions,
    head_dim / 2]. keys and values of all layers, flat. logits [num_logits, padded vocab], flat, are
    written.
    """
    layers, rows = sizes[0], len(ids)
    of_layer, small = text_sizes(sizes)
    room = work_room(work, sizes[8], sizes[9], sizes[10], sizes[3])
    keys_each, values_each = len(keys) // layers, len(values) // layers
    look_up(ids, table, x, padded_to_panels(sizes[4]))
    for i in range(layers):
        kept = (keys[i * keys_each :], values[i * values_each :])
        layer = (weights, i * of_layer, vectors[i * small :], kept[0], kept[1])
        text_layer(x, rows, spans, sizes, eps[0], layer, (cos, sin), room)
    speak(x, spans, sizes, eps[0], head, vectors[layers * small :], room[0], logits)


@part
def work_room(work, a, b, queries, dim):
    """`work` as two parts of these sizes, and what attention takes."""
    return work[:a], work[a : a + b], attention_room(work[a + b :], queries, dim)


@compiled
def look_up(ids, embeddings, x, wide):
    """Rows of x become the embeddings of `ids`; those of -1 stay as they are."""
    keep_apart()
    for m in range(len(ids)):
        if ids[m] >= 0:
            for i in range(embeddings.shape[1]):
                x[m * wide + i] = embeddings[ids[m], i]


@part
def run_tower(frames, spans, sizes, weights, vectors, places, hidden, keys, values, x, work, out):
    """One window through the audio tower: out [positions // 2, padded output], flat.

    frames [T + 2, mels] and hidden [T + 2, padded width], flat, have zeros at both ends. spans:
    one, of all positions. sizes: layers, heads, width, ffn, mels, output, and of `work` what two
    parts and the queries at once take. weights and vectors in the order of use; places: sinusoids
    [positions, padded width], flat. keys and values of one layer.
    """
    layers, width, mels = sizes[0], sizes[2], sizes[4]
    count = len(frames) // mels - 2
    rows = (count + 1) // 2
    wide = padded_to_panels(width)
    room = work_room(work, sizes[6], sizes[7], sizes[8], width // sizes[1])
    at, of_layer, small = tower_sizes(sizes)
    convolve(frames, count, mels, hidden, wide, weights, vectors)
    halve(hidden, x, rows, sizes, weights, vectors, places)
    for i in range(layers):
        own = vectors[2 * wide + i * small :]
        tower_layer(x, rows, spans, sizes, (weights, at + i * of_layer, own, keys, values), room)
    own = vectors[2 * wide + layers * small :]
    pool(x, rows, sizes, weights, at + layers * of_layer, own, room[0], out)

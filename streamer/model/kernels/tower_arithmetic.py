"""The audio tower's arithmetic, compiled by numba. In: log-mel frames of one window. Out: its
embeddings.

As arithmetic.py: one thread, no GIL, sums in a fixed order; a layer is as text_arithmetic.py's. A
convolution is a product of overlapping rows: the frames t - 1, t, t + 1 of a [frames, channels]
array lie one behind the other.
"""

from __future__ import annotations

import numpy as np

from streamer.model.kernels.arithmetic import (
    compiled,
    exp,
    f4,
    padded_to_panels,
    part,
    product,
    spread,
)
from streamer.model.kernels.attention import attend, store
from streamer.model.kernels.simd import fma, keep_apart, make_fold

_ZERO = f4(0.0)
_HALF = f4(0.5)
_ONE = f4(1.0)
_EPS = f4(1e-5)
_sum = make_fold("sum")
_squares = make_fold("squares")
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
    """Layer norm of rows of `padded` numbers of which `width` count; zeros behind them."""
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
def convolve(frames, first, count, mels, hidden, wide, weights, vectors):
    """The first convolution, of `count` frames: [all + 2, mels] -> hidden [all + 2, wide]."""
    inner = hidden[(first + 1) * wide :]
    spread(vectors, inner, count, wide)
    product(frames[first * mels :], mels, weights, wide - wide, inner, count, 3 * mels, wide)
    gelu(inner, count * wide)


@part
def halve(hidden, first, x, rows, sizes, weights, vectors, places):
    """The second convolution of `rows` positions, and their sinusoids: x [rows, wide]."""
    wide = padded_to_panels(sizes[2])
    spread(vectors[wide:], x, rows, wide)
    at = 3 * sizes[4] * wide
    product(hidden[first * 2 * wide :], 2 * wide, weights, at, x, rows, 3 * wide, wide)
    gelu(x, rows * wide)
    for i in range(rows * wide):
        x[i] += places[first * wide + i]


@part
def listen(x, rows, first, sizes, layer, a, b):
    """A layer's first part: keys and values of `rows` positions, the queries in b."""
    _, heads, width, _, _, _ = sizes
    weights, at, vectors, keys, values = layer
    wide = padded_to_panels(width)
    dim = width // heads
    both = padded_to_panels(3 * width)
    centre(x, vectors, vectors[wide:], a, rows, width, wide)
    spread(vectors[2 * wide :], b, rows, both)
    product(a, wide, weights, at, b, rows, width, both)
    spans = np.array([[0, first, 0, rows, 0]])
    store(b, both, spans, heads, heads, dim, keys, values)


@part
def understand(x, rows, seen, sizes, layer, a, b, room):
    """The rest of the layer over x [rows, wide], in place; each position sees all `seen`."""
    _, heads, width, ffn, _, _ = sizes
    weights, at, vectors, keys, values = layer
    wide = padded_to_panels(width)
    dim = width // heads
    both = padded_to_panels(3 * width)
    inner = padded_to_panels(ffn)
    at += width * both
    vectors = vectors[2 * wide :]
    spans = np.array([[0, 0, 0, rows, 0]])
    attend(b, both, spans, seen, heads, heads, dim, keys, values, a, width, room)
    add(x, vectors[both:], rows, wide)
    at = product(a, width, weights, at, x, rows, width, wide)
    vectors = vectors[both + wide :]
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
    _, _, width, ffn, mels, _ = sizes
    wide = padded_to_panels(width)
    both = padded_to_panels(3 * width)
    inner = padded_to_panels(ffn)
    return (
        3 * mels * wide + 3 * wide * wide,
        width * both + width * wide + width * inner + ffn * wide,
        (6 * wide + both + inner),
    )


@part
def encode_phase(phase, place, frames, sizes, tables, slots, hidden, work, room, out):
    """Phase 0 ... layers + 1 of one window; each needs the phase before it of all positions.

    place: first, rows, seen, count: positions [first, first + rows) of `seen`, of `count` frames.
    frames [count + 2, mels] and hidden [count + 2, wide] have zeros at both ends. tables: weights
    and vectors in the order of use, flat; the sinusoids [positions, wide], flat. slots: keys,
    values [2, ...]: by turns, a layer's and the one's before it. work: x, a, b; they and `out`
    begin at `first`.
    """
    first, rows, seen, count = place
    weights, vectors, places = tables
    keys, values = slots
    x, a, b = work
    layers = sizes[0]
    wide = padded_to_panels(sizes[2])
    at, of_layer, small = tower_sizes(sizes)
    if phase == 0:
        many = min(2 * rows, count - 2 * first)
        convolve(frames, 2 * first, many, sizes[4], hidden, wide, weights, vectors)
    elif phase == 1:
        halve(hidden, first, x, rows, sizes, weights, vectors, places)
    else:
        i = phase - 2
        own = vectors[2 * wide + i * small :]
        layer = (weights, at + i * of_layer, own, keys[i % 2], values[i % 2])
        understand(x, rows, seen, sizes, layer, a, b, room)
    if 0 < phase <= layers:
        i = phase - 1
        own = vectors[2 * wide + i * small :]
        layer = (weights, at + i * of_layer, own, keys[i % 2], values[i % 2])
        listen(x, rows, first, sizes, layer, a, b)
    elif phase > layers:
        own = vectors[2 * wide + layers * small :]
        pool(x, rows, sizes, weights, at + layers * of_layer, own, a, out)

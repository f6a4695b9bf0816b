"""The audio tower's arithmetic, compiled by numba. In: log-mel frames of one window. Out: its embeddings.

As kernels.py: one thread, no GIL, sums in a fixed order. A convolution is a product of overlapping rows: the frames
t - 1, t, t + 1 of a [frames, channels] array lie one behind the other.
"""

from __future__ import annotations

import numpy as np

from streamer.model.kernels import attend, compiled, exp, f4, multiply, padded_to_panels, spread, store
from streamer.model.simd import PANEL, fma, keep_apart, make_fold

_ZERO, _HALF, _ONE, _EPS = f4(0.0), f4(0.5), f4(1.0), f4(1e-5)
_sum, _squares = make_fold("sum"), make_fold("squares")
_ROOT_HALF = f4(0.70710678)
# erf(z) = 1 - (a1 t + ... + a5 t^5) e^-z^2, t = 1 / (1 + p z), z >= 0: within 1.5e-7 (Abramowitz and Stegun 7.1.26)
_P, _A1, _A2 = f4(0.3275911), f4(0.254829592), f4(-0.284496736)
_A3, _A4, _A5 = f4(1.421413741), f4(-1.453152027), f4(1.061405429)


@compiled
def gelu(x, count):  # type: ignore[no-untyped-def]
    """x / 2 * (1 + erf(x / sqrt 2)), in place."""
    keep_apart()
    for i in range(count):
        z = abs(x[i]) * _ROOT_HALF
        t = _ONE / fma(_P, z, _ONE)
        tail = fma(fma(fma(fma(_A5, t, _A4), t, _A3), t, _A2), t, _A1) * t * exp(-z * z)
        x[i] = x[i] * (_ONE - _HALF * tail if x[i] > 0 else _HALF * tail)


@compiled
def centre(x, weight, bias, out, rows, width, padded):  # type: ignore[no-untyped-def]
    """Layer norm of rows of `padded` numbers of which `width` count; zeros behind them."""
    keep_apart()
    for m in range(rows):
        row, to = x[m * padded : (m + 1) * padded], out[m * padded : (m + 1) * padded]
        mean = _sum(row, 0, padded) / f4(width)
        for i in range(padded):
            to[i] = row[i] - mean if i < width else _ZERO
        scale = _ONE / np.sqrt(_squares(to, 0, padded) / f4(width) + _EPS)
        for i in range(padded):
            to[i] = fma(to[i] * scale, weight[i], bias[i])


@compiled
def add(x, vector, rows, width):  # type: ignore[no-untyped-def]
    """`vector` onto every row of x [rows, width]."""
    keep_apart()
    for m in range(rows):
        row = x[m * width : (m + 1) * width]
        for i in range(width):
            row[i] += vector[i]


@compiled
def convolve(frames, count, mels, hidden, x, wide, weights, vectors, positions):  # type: ignore[no-untyped-def]
    """Both convolutions. frames [count + 2, mels] and hidden [count + 2, wide] have zeros at both ends.

    Out: x [positions, wide]. weights: panels of [3 * mels, wide] and [3 * wide, wide]; vectors: both biases.
    """
    keep_apart()
    panel, at, inner = np.int64(PANEL), np.int64(0), hidden[wide:]
    spread(vectors, inner, count, wide)
    multiply(frames, mels, weights, at, panel, 3 * mels * PANEL, inner, wide, count, 3 * mels, wide // PANEL)
    gelu(inner, count * wide)
    for i in range(wide):
        hidden[i] = hidden[(count + 1) * wide + i] = _ZERO
    spread(vectors[wide:], x, positions, wide)
    at += 3 * mels * wide
    multiply(hidden, 2 * wide, weights, at, panel, 3 * wide * PANEL, x, wide, positions, 3 * wide, wide // PANEL)
    gelu(x, positions * wide)
    return at + 3 * wide * wide


@compiled
def tower_layer(x, rows, sizes, weights, at, vectors, keys, values, a, b, room):  # type: ignore[no-untyped-def]
    """One encoder layer over x [rows, wide], in place; where the next one's weights begin."""
    keep_apart()
    _, heads, width, ffn, _, _ = sizes
    wide, dim, panel = padded_to_panels(width), width // heads, np.int64(PANEL)
    both, inner = padded_to_panels(3 * width), padded_to_panels(ffn)
    spans = np.array([[0, 0, 0, rows, 0]])
    centre(x, vectors, vectors[wide:], a, rows, width, wide)
    vectors = vectors[2 * wide :]
    spread(vectors, b, rows, both)
    multiply(a, wide, weights, at, panel, width * PANEL, b, both, rows, width, both // PANEL)
    at += width * both
    store(b, both, spans, heads, heads, dim, keys, values)
    attend(b, both, spans, rows, heads, heads, dim, keys, values, a, width, room)
    add(x, vectors[both:], rows, wide)
    multiply(a, width, weights, at, panel, width * PANEL, x, wide, rows, width, wide // PANEL)
    at += width * wide
    vectors = vectors[both + wide :]
    centre(x, vectors, vectors[wide:], a, rows, width, wide)
    vectors = vectors[2 * wide :]
    spread(vectors, b, rows, inner)
    multiply(a, wide, weights, at, panel, width * PANEL, b, inner, rows, width, inner // PANEL)
    at += width * inner
    gelu(b, rows * inner)
    add(x, vectors[inner:], rows, wide)
    multiply(b, inner, weights, at, panel, ffn * PANEL, x, wide, rows, ffn, wide // PANEL)
    return at + ffn * wide


@compiled
def encode(frames, count, sizes, weights, vectors, places, keys, values, hidden, x, a, b, room, out):  # type: ignore[no-untyped-def]
    """One window: frames [count + 2, mels], zeros at both ends -> out [n, padded output], which holds the bias.

    sizes: layers, heads, width, ffn, mels, output. places [positions, wide]: the sinusoids, flat. weights, vectors: in
    the order of use, flat. keys, values, hidden, x, a, b, room: work memory (model/fast_tower.py).
    """
    layers, _, width, ffn, mels, output = sizes
    wide, rows = padded_to_panels(width), (count - 1) // 2 + 1
    of_layer = 6 * wide + padded_to_panels(3 * width) + padded_to_panels(ffn)
    at = convolve(frames, count, mels, hidden, x, wide, weights, vectors, rows)
    for i in range(rows * wide):
        x[i] += places[i]
    for i in range(layers):
        small = vectors[2 * wide + i * of_layer :]
        at = tower_layer(x, rows, sizes, weights, at, small, keys, values, a, b, room)
    n = rows // 2
    for m in range(n):
        for i in range(wide):
            x[m * wide + i] = (x[2 * m * wide + i] + x[(2 * m + 1) * wide + i]) * _HALF
    last = vectors[2 * wide + layers * of_layer :]
    centre(x, last, last[wide:], a, n, width, wide)
    columns = padded_to_panels(output)
    spread(last[2 * wide :], out, n, columns)
    multiply(a, wide, weights, at, np.int64(PANEL), width * PANEL, out, columns, n, width, columns // PANEL)

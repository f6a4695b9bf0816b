"""The text model's arithmetic, compiled by numba: the parts of its layers, and its logits. In: flat
float32 arrays. Out: written into them.

A layer is (weights, where its own begin in them, its vectors, its keys, its values).
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
from streamer.model.kernels.attention import attend, store
from streamer.model.kernels.cells import SPAN
from streamer.model.kernels.simd import keep_apart, make_fold

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
        for i in range(spans[r, SPAN.n]):
            at = (spans[r, SPAN.first] + i) * step
            row = qkv[at : at + heads * dim]
            c = cos[spans[r, SPAN.start] + i]
            s = sin[spans[r, SPAN.start] + i]
            for h in range(0, heads * dim, dim):
                low = row[h : h + half]
                high = row[h + half : h + dim]
                for j in range(half):
                    a = low[j]
                    b = high[j]
                    low[j] = a * c[j] - b * s[j]
                    high[j] = b * c[j] + a * s[j]


@part
def remember(x, rows, spans, sizes, eps, layer, angles, halves):
    """A layer's first part: keys and values go into their slots, queries stay in b."""
    _, heads, kv_heads, dim, hidden, _ = sizes
    weights, at, vectors, keys, values = layer
    a, b = halves
    wide = padded_to_panels(hidden)
    both = padded_to_panels((heads + 2 * kv_heads) * dim)
    normalise(x, vectors, a, rows, hidden, wide, eps)
    spread(vectors[wide:], b, rows, both)
    product(a, wide, weights, at, b, rows, hidden, both)
    rotate(b, both, spans, heads + kv_heads, dim, angles[0], angles[1])
    store(b, both, spans, heads, kv_heads, dim, keys, values)


@part
def respond(x, rows, spans, sizes, eps, layer, halves, room):
    """The layer's rest over x [rows, padded hidden], in place: attention, gated product."""
    _, heads, kv_heads, dim, hidden, ffn = sizes
    weights, at, vectors, keys, values = layer
    a, b = halves
    wide = padded_to_panels(hidden)
    inner = heads * dim
    both = padded_to_panels((heads + 2 * kv_heads) * dim)
    mixed = padded_to_panels(2 * ffn)
    at += both * hidden
    attend(b, both, spans, at - at, heads, kv_heads, dim, keys, values, a, inner, room)
    at = product(a, inner, weights, at, x, rows, inner, wide)
    normalise(x, vectors[wide + both :], a, rows, hidden, wide, eps)
    fill(b, rows * mixed, _ZERO)
    at = product(a, wide, weights, at, b, rows, hidden, mixed)
    gated(b, mixed, a, rows, ffn)
    product(a, ffn, weights, at, x, rows, ffn, wide)


@part
def layer_sizes(sizes):
    """How many weights and how many numbers of `vectors` one layer has."""
    _, heads, kv_heads, dim, hidden, ffn = sizes
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
        end = spans[r, SPAN.first] + spans[r, SPAN.n]
        for m in range(end - spans[r, SPAN.num_logits], end):
            for i in range(wide):
                x[to * wide + i] = x[m * wide + i]
            to += 1
    return to


@part
def speak(x, spans, sizes, eps, head, norm, a, logits):
    """Logits [wanted, padded vocab] of the rows that want them, which move to x's front."""
    hidden = sizes[4]
    columns = logits.shape[1]
    wide = padded_to_panels(hidden)
    wanted = gather(x, wide, spans)
    if wanted > 0:
        flat = logits.reshape(-1)
        normalise(x, norm, a, wanted, hidden, wide, eps)
        fill(flat, wanted * columns, _ZERO)
        product(a, wide, head, columns - columns, flat, wanted, hidden, columns)

"""The text model's arithmetic, compiled by numba for this processor. In: flat float32 arrays. Out:
written into them.

One thread, no allocation, no GIL. Every row goes through the same operations in the same order
whatever rows stand beside it and however many ids it is fed: its logits are the same bits. Padding
up to PANEL holds zeros throughout.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from streamer.model.kernels.cells import SPAN
from streamer.model.kernels.simd import (
    MAX_ROWS,
    MOST_ROWS,
    PANEL,
    fma,
    keep_apart,
    make_fold,
    make_tile,
    two_to,
)

f4 = np.float32
# of one row: queries, and positions they look at, whose scores are held at a time
QUERIES = 64
BLOCK = 128
_T11, _T12, _T2, _T22, _T3, _T4, _T5, _TN, _TM = (
    make_tile(*size)
    for size in (
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
        (3, 1),
        (4, 1),
        (5, 1),
        (MAX_ROWS, 1),
        (MOST_ROWS, 1),
    )
)
_sum, _squares, _max = (make_fold(kind) for kind in ("sum", "squares", "max"))
_LEAST = f4(-80.0)
_MOST = f4(87.0)
_LOG2_E = f4(1.44269504)
_SHIFT = f4(12582912.0)
_LN2_HIGH = f4(0.693359375)
_LN2_LOW = f4(-2.12194440e-4)
# e^r for |r| <= ln 2 / 2, relative error 2e-8: the coefficients of Cephes' expf.
_E0 = f4(1.9875691500e-4)
_E1 = f4(1.3981999507e-3)
_E2 = f4(8.3334519073e-3)
_E3 = f4(4.1665795894e-2)
_E4 = f4(1.6666665459e-1)
_E5 = f4(5.0000001201e-1)
_ONE = f4(1.0)
_ZERO = f4(0.0)
_LEAST_SCORE = f4(-np.inf)


# numba looks only at the file of the outermost function: with another file changed it would run
# the old code on the new layout, which ends in a segmentation fault. So every file of this
# folder is in the name that a kernel is kept under.
def _digest() -> str:
    """8 characters that change with any of the sources."""
    here = Path(__file__).parent
    sources = b"".join(file.read_bytes() for file in sorted(here.glob("*.py")))
    return hashlib.blake2b(sources, digest_size=4).hexdigest()


_VERSION = _digest()


def compiled(function: Any) -> Any:
    """njit, kept on disk where a place for it can be written to: compiling takes seconds, once per
    machine and version of the sources, whose digest is in the name that numba keeps it under."""
    function.__qualname__ += f"_{_VERSION}"
    try:
        return njit(nogil=True, error_model="numpy", cache=True)(function)
    except RuntimeError:  # neither this folder nor the user's cache can be written to
        return njit(nogil=True, error_model="numpy")(function)


def part(function: Any) -> Any:
    """njit for a part of one large kernel: its code is in its callers alone, so that it is compiled
    once."""
    return njit(nogil=True, error_model="numpy", inline="always")(function)


@compiled
def exp(x):
    """e^x within 1e-7 of it, 0 below e^-80, e^87 above; without a branch, so that loops of it
    vectorise."""
    given = x
    x = x if x > _LEAST else _LEAST
    x = x if x < _MOST else _MOST
    shifted = fma(x, _LOG2_E, _SHIFT)
    n = shifted - _SHIFT
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))
    p = fma(fma(fma(fma(fma(_E0, r, _E1), r, _E2), r, _E3), r, _E4), r, _E5)
    power = fma(p, r * r, r + _ONE) * two_to(shifted)
    # products of what is left would be denormal, a hundred times as slow
    return power if given > _LEAST else _ZERO


@compiled
def padded_to_panels(width):
    return (width + PANEL - 1) // PANEL * PANEL


@compiled
def fill(x, count, value):
    """x[:count] = value."""
    keep_apart()
    for i in range(count):
        x[i] = value


@compiled
def multiply(x, x_step, w, w_at, w_step, w_next, y, y_step, rows, depth, panels):
    """y[rows, panels * PANEL] += x[rows, depth] @ w, panel by panel, each used for all rows while
    it is near."""
    keep_apart()
    p = 0
    if rows == 1:  # two panels at once: eight sums hide the latency of one
        while p + 2 <= panels:
            _T12(x, 0, x_step, w, w_at + p * w_next, w_step, w_next, y, p * PANEL, y_step, depth)
            p += 2
    if rows == 2:
        while p + 2 <= panels:
            _T22(x, 0, x_step, w, w_at + p * w_next, w_step, w_next, y, p * PANEL, y_step, depth)
            p += 2
    while p < panels:
        w_p = w_at + p * w_next
        m = 0
        while rows - m >= MOST_ROWS:
            _TM(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + p * PANEL, y_step, depth)
            m += MOST_ROWS
        while rows - m >= MAX_ROWS:
            _TN(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + p * PANEL, y_step, depth)
            m += MAX_ROWS
        if rows - m == 5:
            _T5(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + p * PANEL, y_step, depth)
        elif rows - m == 4:
            _T4(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + p * PANEL, y_step, depth)
        elif rows - m == 3:
            _T3(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + p * PANEL, y_step, depth)
        elif rows - m == 2:
            _T2(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + p * PANEL, y_step, depth)
        elif rows - m == 1:
            _T11(x, m * x_step, x_step, w, w_p, w_step, 0, y, m * y_step + p * PANEL, y_step, depth)
        p += 1


@part
def product(x, x_step, weights, at, y, rows, depth, columns):
    """y [rows, columns] += x [rows, depth] @ the matrix whose panels begin at `at`; where the next
    matrix begins."""
    panel = np.int64(PANEL)  # a constant would be another type, and `multiply` compiled again
    multiply(
        x, x_step, weights, at, panel, depth * panel, y, columns, rows, depth, columns // panel
    )
    return at + depth * columns


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
def spread(vector, out, rows, width):
    """Every row of out [rows, width] becomes `vector`."""
    keep_apart()
    for m in range(rows):
        to = out[m * width : (m + 1) * width]
        for i in range(width):
            to[i] = vector[i]


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


@compiled
def store(qkv, step, spans, heads, kv_heads, dim, keys, values):
    """Keys and values of every packed position go into its row's slot.

    keys [slots, kv_heads, length / PANEL, dim, PANEL]: panels of positions, as `multiply` reads
    weights. values [slots, kv_heads, length, padded dim].
    """
    keep_apart()
    for r in range(spans.shape[0]):
        slot = spans[r, SPAN.slot]
        for i in range(spans[r, SPAN.n]):
            row = qkv[(spans[r, SPAN.first] + i) * step : (spans[r, SPAN.first] + i + 1) * step]
            at = spans[r, SPAN.start] + i
            for h in range(kv_heads):
                k = (heads + h) * dim
                v = (heads + kv_heads + h) * dim
                for j in range(dim):
                    keys[slot, h, at // PANEL, j, at % PANEL] = row[k + j]
                    values[slot, h, at, j] = row[v + j]


@compiled
def soften(scores, step, rows, count, first, seen, best, totals, sums, wide):
    """Every row of scores [rows, step], one block's: exp(scores - the largest so far), zeros where
    nothing is seen.

    Row m sees first + m % count + 1 positions of the block, or `seen` where that is not 0. What it
    has so far, best [rows], totals [rows] and sums [rows, wide], follows a new largest score. A row
    that sees nothing stays as it is, and a sum is one of lanes by position: neither later blocks
    nor zeros change a bit. step: a multiple of PANEL.
    """
    keep_apart()
    for m in range(rows):
        limit = seen if seen else first + m % count + 1
        row = scores[m * step : (m + 1) * step]
        for i in range(max(limit, 0), step):
            row[i] = -np.inf
        if limit > 0:
            top = _max(row, 0, step)
            if top > best[m]:
                scale = exp(best[m] - top)
                best[m] = top
                totals[m] *= scale
                for i in range(m * wide, (m + 1) * wide):
                    sums[i] *= scale
            top = best[m]
        else:
            top = _ZERO
        for i in range(step):
            row[i] = exp(row[i] - top)
        totals[m] += _sum(row, 0, step)


@compiled
def fold(qkv, step, first, count, head, group, dim, out):
    """The queries of one head group as rows [group * count, dim], scaled."""
    keep_apart()
    scale = _ONE / np.sqrt(f4(dim))
    for g in range(group):
        for i in range(count):
            at = (first + i) * step + (head + g) * dim
            q = qkv[at : at + dim]
            to = out[(g * count + i) * dim : (g * count + i + 1) * dim]
            for j in range(dim):
                to[j] = q[j] * scale


@compiled
def unfold(sums, wide, totals, first, count, head, group, dim, out, step):
    """`fold` the other way: weighted sums [group * count, wide] over their totals."""
    keep_apart()
    for g in range(group):
        for i in range(count):
            m = g * count + i
            at = (first + i) * step + (head + g) * dim
            to = out[at : at + dim]
            part = sums[m * wide : m * wide + dim]
            scale = _ONE / totals[m]
            for j in range(dim):
                to[j] = part[j] * scale


@part
def weigh(at, start, count, seen, group, dim, keys, values, room):
    """Folded queries [group * count, dim] over key head `at` of all slots: sums of values, and what
    they add up to."""
    scores, folded, sums, totals, best = room
    panel = np.int64(PANEL)
    length = values.shape[2]
    wide = values.shape[3]
    rows = group * count
    flat_keys = keys.reshape(-1)
    flat_values = values.reshape(-1)
    end = seen if seen else start + count
    fill(sums, rows * wide, _ZERO)
    fill(totals, rows, _ZERO)
    fill(best, rows, _LEAST_SCORE)
    for block in range(0, end, BLOCK):
        depth = min(BLOCK, end - block)
        padded = padded_to_panels(depth)
        fill(scores, rows * padded, _ZERO)
        multiply(
            folded,
            dim,
            flat_keys,
            (at * length + block) * dim,
            panel,
            dim * PANEL,
            scores,
            padded,
            rows,
            dim,
            padded // PANEL,
        )
        soften(
            scores,
            padded,
            rows,
            count,
            start - block,
            seen - block if seen else 0,
            best,
            totals,
            sums,
            wide,
        )
        multiply(
            scores,
            padded,
            flat_values,
            (at * length + block) * wide,
            wide,
            panel,
            sums,
            wide,
            rows,
            depth,
            wide // PANEL,
        )


@compiled
def attend(qkv, step, spans, seen, heads, kv_heads, dim, keys, values, out, out_step, room):
    """Attention of every row over its own slot, into `out`. The head group is folded into the query
    rows: no copies.

    Blocks of positions lie where they lie in the slot, so that each query sums in one order however
    its row is cut. seen: 0 where a position sees itself and what lies before it, else how many
    positions all see.
    """
    keep_apart()
    group = heads // kv_heads
    for r in range(spans.shape[0]):
        slot = spans[r, SPAN.slot]
        start = spans[r, SPAN.start]
        first = spans[r, SPAN.first]
        n = spans[r, SPAN.n]
        for at in range(slot * kv_heads, (slot + 1) * kv_heads):
            head = (at - slot * kv_heads) * group
            for begin in range(0, n, QUERIES):
                count = min(QUERIES, n - begin)
                fold(qkv, step, first + begin, count, head, group, dim, room[1])
                weigh(at, start + begin, count, seen, group, dim, keys, values, room)
                unfold(
                    room[2],
                    values.shape[3],
                    room[3],
                    first + begin,
                    count,
                    head,
                    group,
                    dim,
                    out,
                    out_step,
                )


@part
def remember(x, rows, spans, sizes, eps, weights, at, vectors, angles, keys, values, halves):
    """The first part of a layer: keys and values of `rows` packed rows go into their slots, the
    queries stay in b."""
    _, heads, kv_heads, dim, hidden, _ = sizes
    a, b = halves
    wide = padded_to_panels(hidden)
    both = padded_to_panels((heads + 2 * kv_heads) * dim)
    normalise(x, vectors, a, rows, hidden, wide, eps)
    spread(vectors[wide:], b, rows, both)
    product(a, wide, weights, at, b, rows, hidden, both)
    rotate(b, both, spans, heads + kv_heads, dim, angles[0], angles[1])
    store(b, both, spans, heads, kv_heads, dim, keys, values)


@part
def respond(x, rows, spans, sizes, eps, weights, at, vectors, keys, values, halves, room):
    """The rest of the layer over x [rows, padded hidden], in place: attention and the gated
    product."""
    _, heads, kv_heads, dim, hidden, ffn = sizes
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
    """Logits [wanted, padded vocab] of the rows that want them, which are moved to the front of
    x."""
    hidden = sizes[4]
    columns = logits.shape[1]
    wide = padded_to_panels(hidden)
    wanted = gather(x, wide, spans)
    if wanted > 0:
        flat = logits.reshape(-1)
        normalise(x, norm, a, wanted, hidden, wide, eps)
        fill(flat, wanted * columns, _ZERO)
        product(a, wide, head, columns - columns, flat, wanted, hidden, columns)

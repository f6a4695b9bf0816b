"""Attention of the language model over its KV slots, and of the tower over a window.

Flat float32 arrays, one thread, sums in a fixed order.
"""

from __future__ import annotations

import numpy as np

from streamer.model.kernels.arithmetic import (
    compiled,
    exp,
    f4,
    make_fold,
    multiply,
    padded_to_panels,
    part,
)
from streamer.model.kernels.library import BLOCK, PANEL, QUERIES

# Columns of spans [n, 5] int64, one span per row of a step: its KV slot, its first position there,
# its first packed row, its number of positions, and how many of the last of them want logits.
SLOT, START, FIRST, COUNT, NUM_LOGITS = range(5)
_sum, _max = make_fold("sum"), make_fold("max")


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
    """Every row of scores [rows, step], one block's: exp(scores - the largest so far), zeros for
    hidden positions.

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
def attend_rows(queries, step, rows, start, seen, at, sizes, cache, out, out_step, work):
    """Attention of rows [dim] that lie `step` apart over key head `at` of all slots'. start:
    position of the first one, with which queries and out begin."""
    _, _, dim, length = sizes
    keys, values = cache
    wide, panel = padded_to_panels(dim), np.int64(PANEL)
    sums = work[len(work) // work_numbers(dim) * BLOCK :]
    for begin in range(0, rows, QUERIES):
        n = min(QUERIES, rows - begin)
        x, here = queries[begin * step :], start + begin
        end = seen if seen else here + n
        sums[: n * (wide + PANEL)] = 0
        for block in range(0, end, BLOCK):
            depth = min(BLOCK, end - block)
            padded, first = padded_to_panels(depth), at * length + block
            num = padded // PANEL
            work[: n * padded] = 0
            multiply(x, step, keys, first * dim, panel, dim * PANEL, work, padded, n, dim, num)
            soften(work, padded, n, here - block, seen - block if seen else 0, sums, wide)
            y_step, num = wide + PANEL, wide // PANEL
            multiply(work, padded, values, first * wide, wide, panel, sums, y_step, n, depth, num)
        for m in range(n):
            own = sums[m * (wide + PANEL) : (m + 1) * (wide + PANEL)]
            to = out[(begin + m) * out_step : (begin + m) * out_step + dim]
            scale = f4(1) / own[wide]
            for j in range(dim):
                to[j] = own[j] * scale


@part
def attend_head(qkv, step, start, rows, seen, at, sizes, cache, out, out_step, work):
    """Packed rows' query heads over their key head `at`. start: position of the first one, with
    whose first head qkv and out begin.

    One row has its heads beside each other: all read the keys at once.
    """
    group, dim, at_once = sizes[0] // sizes[1], sizes[2], 1
    if rows == 1:
        at_once, rows, step, out_step = group, group, dim, dim
        seen = seen if seen else start + 1
    for g in range(0, group, at_once):
        own, to = qkv[g * dim :], out[g * dim :]
        attend_rows(own, step, rows, start, seen, at, sizes, cache, to, out_step, work)


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

"""Attention of the language model over its KV slots, and of the tower over a window.

Flat float32 arrays, one thread, sums in a fixed order.
"""

from __future__ import annotations

import numpy as np

from streamer.model.kernels.arithmetic import (
    compiled,
    exp,
    f4,
    fill,
    multiply,
    padded_to_panels,
    part,
)
from streamer.model.kernels.library import BLOCK, PANEL, QUERIES
from streamer.model.kernels.simd import keep_apart, make_fold

# Columns of spans [n, 5] int64, one span per row of a step: its KV slot, its first position there,
# its first packed row, its number of positions, and how many of the last of them want logits.
SLOT, START, FIRST, COUNT, NUM_LOGITS = range(5)
_sum = make_fold("sum")
_max = make_fold("max")
_ONE = f4(1.0)
_ZERO = f4(0.0)
_LEAST_SCORE = f4(-np.inf)


@compiled
def store(qkv, step, spans, heads, kv_heads, dim, length, keys, values):
    """Keys and values of every packed position go into its row's slot.

    keys [slots, kv_heads, length / PANEL, dim, PANEL]: panels of positions, as `multiply` reads
    weights. values [slots, kv_heads, length, padded dim]. Both flat.
    """
    keep_apart()
    wide = padded_to_panels(dim)
    for r in range(spans.shape[0]):
        for i in range(spans[r, COUNT]):
            row = qkv[(spans[r, FIRST] + i) * step : (spans[r, FIRST] + i + 1) * step]
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
def soften(scores, step, rows, count, first, seen, best, totals, sums, wide):
    """Every row of scores [rows, step], one block's: exp(scores - the largest so far), zeros for
    hidden positions.

    Row m sees first + m % count + 1 positions of the block, or `seen` where that is not 0. Its
    results so far, best [rows], totals [rows] and sums [rows, wide], follow a new largest score. A
    row that sees nothing stays as it is, and a sum is one of lanes by position: neither later
    blocks nor zeros change a bit. step: a multiple of PANEL.
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
def attention_room(work, queries, dim):
    """Work memory for `queries` at once, cut from `work`: the scores of a block, folded queries,
    sums of values, totals, largest scores."""
    folded = queries * BLOCK
    sums = folded + queries * dim
    totals = sums + queries * padded_to_panels(dim)
    best = totals + queries
    return work[:folded], work[folded:sums], work[sums:totals], work[totals:best], work[best:]


@part
def weigh(at, start, count, seen, sizes, cache, room):
    """Folded queries [group * count, dim] over key head `at`: sums of values, their totals."""
    group, dim, length = sizes
    keys, values = cache
    scores, folded, sums, totals, best = room
    panel = np.int64(PANEL)
    wide = padded_to_panels(dim)
    rows = group * count
    end = seen if seen else start + count
    fill(sums, rows * wide, _ZERO)
    fill(totals, rows, _ZERO)
    fill(best, rows, _LEAST_SCORE)
    for block in range(0, end, BLOCK):
        depth = min(BLOCK, end - block)
        padded = padded_to_panels(depth)
        first = at * length + block
        parts = padded // PANEL
        fill(scores, rows * padded, _ZERO)
        multiply(
            folded, dim, keys, first * dim, panel, dim * PANEL, scores, padded, rows, dim, parts
        )
        limit = seen - block if seen else 0
        soften(scores, padded, rows, count, start - block, limit, best, totals, sums, wide)
        parts = wide // PANEL
        multiply(scores, padded, values, first * wide, wide, panel, sums, wide, rows, depth, parts)


@part
def attend_head(qkv, step, rows, seen, at, head, sizes, cache, out, out_step, room):
    """Packed rows over key head `at` of all slots': their query heads from `head` on.

    rows: the first packed one, its position, how many. sizes: query heads per key head, head_dim,
    positions of a slot. cache: keys and values.
    """
    first, start, n = rows
    group, dim, _ = sizes
    for begin in range(0, n, QUERIES):
        count = min(QUERIES, n - begin)
        at_row = first + begin
        fold(qkv, step, at_row, count, head, group, dim, room[1])
        weigh(at, start + begin, count, seen, sizes, cache, room)
        unfold(
            room[2], padded_to_panels(dim), room[3], at_row, count, head, group, dim, out, out_step
        )


@compiled
def attend(qkv, step, spans, seen, heads, kv_heads, dim, length, keys, values, out, out_step, room):
    """Attention of every row over its own slot, into `out`. The head group is folded into the query
    rows: no copies.

    Blocks of positions lie where they lie in the slot, so that each query sums in one order however
    its row is cut. seen: 0 where a position sees itself and all before it, else the number of
    positions that all see.
    """
    keep_apart()
    group = heads // kv_heads
    sizes, cache = (group, dim, length), (keys, values)
    for r in range(spans.shape[0]):
        rows = (spans[r, FIRST], spans[r, START], spans[r, COUNT])
        for h in range(kv_heads):
            at = spans[r, SLOT] * kv_heads + h
            attend_head(qkv, step, rows, seen, at, h * group, sizes, cache, out, out_step, room)

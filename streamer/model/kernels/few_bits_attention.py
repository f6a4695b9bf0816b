"""Attention beside products in few bits, compiled. In: rows of queries, keys and values, as one
product gives them. Out: float32 [rows, heads * head_dim].

As attention.py, whose parts it takes: a row's bits depend on its own ids alone.
"""

from __future__ import annotations

import numpy as np

from streamer.model.kernels.arithmetic import compiled
from streamer.model.kernels.attention import BLOCK, QUERIES, attend_head, store
from streamer.model.kernels.cells import SPAN
from streamer.model.kernels.text_arithmetic import rotate


@compiled
def keep(qkv, spans, heads, kv_heads, dim, cos, sin, keys, values):
    """Rotate queries and keys in place, and keep keys and values in their slots."""
    step = (heads + 2 * kv_heads) * dim
    rotate(qkv, step, spans, heads + kv_heads, dim, cos, sin)
    store(qkv, step, spans, heads, kv_heads, dim, keys, values)


@compiled
def attend_parts(qkv, spans, rows, first, last, heads, kv_heads, dim, keys, values, out):
    """Parts `first` to `last` of rows * kv_heads: part h * rows + m is packed row m's of key head
    h. So one row alone has work for as many threads as there are key heads."""
    step, group = (heads + 2 * kv_heads) * dim, heads // kv_heads
    most = min(last - first, rows, QUERIES) * group
    room = (
        np.empty(most * BLOCK, np.float32),
        np.empty(most * dim, np.float32),
        np.empty(most * values.shape[3], np.float32),
        np.empty(most, np.float32),
        np.empty(most, np.float32),
    )
    for h in range(first // rows, (last - 1) // rows + 1):
        for r in range(len(spans)):
            begins, n = spans[r, SPAN.first], spans[r, SPAN.n]
            a = max(first - h * rows, begins)
            b = min(last - h * rows, begins + n)
            if a < b:
                attend_head(
                    qkv,
                    step,
                    a,
                    spans[r, SPAN.start] + a - begins,
                    b - a,
                    a - a,
                    spans[r, SPAN.slot] * kv_heads + h,
                    h * group,
                    group,
                    dim,
                    keys,
                    values,
                    out,
                    heads * dim,
                    room,
                )

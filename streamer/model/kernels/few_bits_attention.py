"""Attention beside products in few bits, compiled. In: rows of queries, keys and values, as one
product gives them. Out: float32 [rows, heads * head_dim].

As attention.py, whose parts it takes: a row's bits depend on its own ids alone.
"""

from __future__ import annotations

import numpy as np

from streamer.model.kernels.arithmetic import compiled
from streamer.model.kernels.attention import BLOCK, QUERIES, attend, store
from streamer.model.kernels.cells import SPAN
from streamer.model.kernels.text_arithmetic import rotate


@compiled
def keep(qkv, spans, heads, kv_heads, dim, cos, sin, keys, values):
    """Rotate queries and keys in place, and keep keys and values in their slots."""
    step = (heads + 2 * kv_heads) * dim
    rotate(qkv, step, spans, heads + kv_heads, dim, cos, sin)
    store(qkv, step, spans, heads, kv_heads, dim, keys, values)


@compiled
def attend_rows(qkv, spans, first, last, heads, kv_heads, dim, keys, values, out):
    """Of packed rows `first` to `last`."""
    parts = spans.copy()
    for r in range(len(parts)):
        begin = max(first, spans[r, SPAN.first])
        skipped = begin - spans[r, SPAN.first]
        parts[r, SPAN.first] = begin
        parts[r, SPAN.start] += skipped
        parts[r, SPAN.n] = max(min(last - begin, spans[r, SPAN.n] - skipped), 0)
    step = (heads + 2 * kv_heads) * dim
    most = min(last - first, QUERIES) * (heads // kv_heads)
    room = (
        np.empty(most * BLOCK, np.float32),
        np.empty(most * dim, np.float32),
        np.empty(most * values.shape[3], np.float32),
        np.empty(most, np.float32),
        np.empty(most, np.float32),
    )
    nothing = first - first  # a constant would be another type, and `attend` compiled again
    attend(qkv, step, parts, nothing, heads, kv_heads, dim, keys, values, out, heads * dim, room)

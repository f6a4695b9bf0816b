"""One phase of one chunk of a job (work.py). In: the job's numbers and addresses. Out: what they
point to.

Addresses become arrays here, and the arithmetic is called on them.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from streamer.model.kernels.arithmetic import compiled, padded_to_panels, part
from streamer.model.kernels.atomics import at_address
from streamer.model.kernels.attention import BLOCK
from streamer.model.kernels.cells import BEGINS, CHUNKS, SPAN, TEXT, TOWER
from streamer.model.kernels.simd import PANEL
from streamer.model.kernels.text_arithmetic import layer_sizes, remember, respond, speak
from streamer.model.kernels.tower_arithmetic import encode_phase

_PANEL = np.int64(PANEL)
_COLUMNS = len(SPAN)


@part
def _floats(address, size):
    return carray(at_address(address), size, np.float32)


@compiled
def _look_up(ids, table, hidden, x, wide):
    """Rows of x become the embeddings of `ids`; those of -1 stay as they are."""
    for m in range(len(ids)):
        if ids[m] >= 0:
            for i in range(hidden):
                x[m * wide + i] = table[ids[m] * hidden + i]


@part
def _room(address, who, queries, block, dim):
    """Thread `who`'s own: scores, folded queries, sums, totals, the largest scores (job.py)."""
    wide = padded_to_panels(dim)
    at = address + 4 * who * queries * (block + dim + wide + 2)
    scores = _floats(at, queries * block)
    folded = _floats(at + 4 * queries * block, queries * dim)
    at += 4 * queries * (block + dim)
    sums = _floats(at, queries * wide)
    totals = _floats(at + 4 * queries * wide, queries)
    return scores, folded, sums, totals, _floats(at + 4 * queries * (wide + 1), queries)


@part
def _text_slots(own, sizes):
    """Keys and values of all layers and slots."""
    layers, _, kv_heads, dim, _, _ = sizes
    slots = own[TEXT.num_slots]
    length = own[TEXT.length]
    keys = carray(
        at_address(own[TEXT.keys]),
        (layers, slots, kv_heads, length // _PANEL, dim, _PANEL),
        np.float32,
    )
    wide = padded_to_panels(dim)
    values = carray(
        at_address(own[TEXT.values]), (layers, slots, kv_heads, length, wide), np.float32
    )
    return keys, values


@part
def _angles(own, dim):
    """cos and sin of every position."""
    size = (own[TEXT.num_angles], dim // 2)
    cos = carray(at_address(own[TEXT.cos]), size, np.float32)
    return cos, carray(at_address(own[TEXT.sin]), size, np.float32)


@part
def text_phase(job, own, phase, chunk, who, example):
    """Phase l: the rest of layer l - 1, then keys and values of layer l; at last logits."""
    sizes = (
        own[TEXT.layers],
        own[TEXT.heads],
        own[TEXT.kv_heads],
        own[TEXT.head_dim],
        own[TEXT.hidden],
        own[TEXT.ffn],
    )
    layers, _, _, dim, hidden, _ = sizes
    begin = job[BEGINS + chunk]
    rows = job[BEGINS + chunk + 1] - begin
    wide = padded_to_panels(hidden)
    num = own[TEXT.num_spans]
    parts = carray(at_address(own[TEXT.parts]), (job[CHUNKS], num + 1, _COLUMNS), np.int64)[chunk]
    spans = parts[: parts[num, SPAN.slot]]
    of_layer, small = layer_sizes(sizes)
    weights = carray(at_address(own[TEXT.weights]), 1, example.dtype)
    vectors = _floats(own[TEXT.vectors], layers * small + wide)
    eps = _floats(own[TEXT.eps], 1)[0]
    keys, values = _text_slots(own, sizes)
    x = _floats(own[TEXT.x] + 4 * begin * wide, rows * wide)
    a = _floats(own[TEXT.a] + 4 * begin * own[TEXT.a_width], rows * own[TEXT.a_width])
    b = _floats(own[TEXT.b] + 4 * begin * own[TEXT.b_width], rows * own[TEXT.b_width])
    if phase == 0:
        ids = carray(at_address(own[TEXT.ids]), begin + rows, np.int64)[begin:]
        _look_up(ids, _floats(own[TEXT.table], hidden), hidden, x, wide)
    else:
        i = phase - 1
        layer = (weights, i * of_layer, vectors[i * small :], keys[i], values[i])
        room = _room(own[TEXT.room], who, own[TEXT.num_queries], BLOCK, dim)
        respond(x, rows, spans, sizes, eps, layer, (a, b), room)
    if phase < layers:
        i = phase
        layer = (weights, i * of_layer, vectors[i * small :], keys[i], values[i])
        remember(x, rows, spans, sizes, eps, layer, _angles(own, dim), (a, b))
    else:
        size = (own[TEXT.num_logits], own[TEXT.columns])
        logits = carray(at_address(own[TEXT.logits]), size, np.float32)[parts[num, SPAN.start] :]
        head = carray(at_address(own[TEXT.head]), 1, example.dtype)
        speak(x, spans, sizes, eps, head, vectors[layers * small :], a, logits)


@part
def tower_phase(job, own, phase, chunk, who, example):
    sizes = (
        own[TOWER.layers],
        own[TOWER.heads],
        own[TOWER.width],
        own[TOWER.ffn],
        own[TOWER.mels],
        own[TOWER.output],
    )
    heads = own[TOWER.heads]
    width = own[TOWER.width]
    output = own[TOWER.output]
    first = job[BEGINS + chunk]
    count = own[TOWER.num_frames]
    positions = own[TOWER.positions]
    rows = job[BEGINS + chunk + 1] - first
    wide = padded_to_panels(width)
    dim = width // heads
    length = padded_to_panels(positions)
    columns = padded_to_panels(output)
    frames = _floats(own[TOWER.frames], (count + 2) * own[TOWER.mels])
    hidden = _floats(own[TOWER.hidden], (count + 2) * wide)
    weights = carray(at_address(own[TOWER.weights]), 1, example.dtype)
    vectors = _floats(own[TOWER.vectors], own[TOWER.num_vectors])
    places = _floats(own[TOWER.places], positions * wide)
    keys = carray(
        at_address(own[TOWER.keys]), (2, 1, heads, length // _PANEL, dim, _PANEL), np.float32
    )
    values = carray(
        at_address(own[TOWER.values]), (2, 1, heads, length, padded_to_panels(dim)), np.float32
    )
    x = _floats(own[TOWER.x] + 4 * first * wide, rows * wide)
    a = _floats(own[TOWER.a] + 4 * first * own[TOWER.a_width], rows * own[TOWER.a_width])
    b = _floats(own[TOWER.b] + 4 * first * own[TOWER.b_width], rows * own[TOWER.b_width])
    room = _room(own[TOWER.room], who, own[TOWER.num_queries], BLOCK, dim)
    out = _floats(own[TOWER.out] + 4 * (first // 2) * columns, rows // 2 * columns)
    place = (first, rows, positions, count)
    tables = (weights, vectors, places)
    encode_phase(phase, place, frames, sizes, tables, (keys, values), hidden, (x, a, b), room, out)

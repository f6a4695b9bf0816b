"""One step, or one window, computed by several threads. In: a job, int64 numbers and addresses. Out: as one thread's.

A job's rows are cut into chunks; each goes through the same phases (a layer's keys and values, then the rest of it),
and a phase of a chunk begins when the chunks it looks at are through the phase before. Threads take the next phase of
the next chunk from one counter: whoever is there works, nobody waits for a thread that has not come. Every row goes
through the same operations as on one thread: the same bits. Waiting threads give up their core, sleeping ones cost none.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from streamer.model.atomics import add_to, at_address, give_way, look_at, put_in, sleep, wake
from streamer.model.crew import MOST_CHUNKS
from streamer.model.kernels import compiled, layer_sizes, padded_to_panels, remember, respond, speak
from streamer.model.kernels_tower import encode_phase
from streamer.model.simd import PANEL, keep_apart

_PANEL = np.int64(PANEL)
# Cells of `board`, each on a cache line of its own: is there a job, threads inside it, the next phase of the next chunk;
# then how many phases each chunk is through.
_OPEN, _INSIDE, _NEXT, _THROUGH, _APART = 0, 8, 16, 24, 8
BOARD_CELLS = _THROUGH + _APART * MOST_CHUNKS
# What every job begins with: chunks, phases, kind (0 text, 1 tower; + 2 for weights kept as float16), then where each
# chunk begins (and the last one ends), then the first chunk whose keys each one looks at; then the kind's own numbers.
_CHUNKS, _PHASES, _KIND, BEGINS, LOOKS = 0, 1, 2, 3, 3 + MOST_CHUNKS + 1
OWN = LOOKS + MOST_CHUNKS
JOB_CELLS = OWN + 40


@compiled
def lead(board, job, pipe, others):  # type: ignore[no-untyped-def]
    """Do a job with as many of the `others` as come; it is done when this returns, and nobody reads `job` any more."""
    put_in(board, _NEXT, 0)
    for chunk in range(job[_CHUNKS]):
        put_in(board, _THROUGH + _APART * chunk, 0)
    put_in(board, _OPEN, 1)
    wake(pipe, others)
    _take_part(board, job, np.int64(0))
    for chunk in range(job[_CHUNKS]):
        _wait_for(board, chunk, job[_PHASES])
    put_in(board, _OPEN, 0)
    while look_at(board, _INSIDE) > 0:
        give_way()


@compiled
def follow(board, job, pipe, who):  # type: ignore[no-untyped-def]
    """A thread's whole life: sleep, help with what there is, sleep. who: 1 ... others; work memory is by this number."""
    while sleep(pipe, 1) > 0:
        add_to(board, _INSIDE, 1)
        if look_at(board, _OPEN):
            _take_part(board, job, who)
        add_to(board, _INSIDE, -1)


@compiled
def _wait_for(board, chunk, phase):  # type: ignore[no-untyped-def]
    """Until `chunk` is through `phase` phases: some thread is at it."""
    while look_at(board, _THROUGH + _APART * chunk) < phase:
        give_way()


@compiled
def _take_part(board, job, who):  # type: ignore[no-untyped-def]
    keep_apart()
    chunks, phases, kind = job[_CHUNKS], job[_PHASES], job[_KIND]
    while True:
        turn = add_to(board, _NEXT, 1)
        if turn >= chunks * phases:
            return
        phase, chunk = turn // chunks, turn % chunks
        if phase > 0:
            last = chunks - 1 if kind % 2 else chunk
            for other in range(job[LOOKS + chunk], last + 1):
                _wait_for(board, other, phase)
        if kind == 0:
            _text_phase(job, phase, chunk, who, carray(at_address(job[OWN + 4]), 1, np.float32),
                        carray(at_address(job[OWN + 5]), 1, np.float32))  # fmt: skip
        elif kind == 2:
            _text_phase(job, phase, chunk, who, carray(at_address(job[OWN + 4]), 1, np.uint16),
                        carray(at_address(job[OWN + 5]), 1, np.uint16))  # fmt: skip
        elif kind == 1:
            _tower_phase(job, phase, chunk, who, carray(at_address(job[OWN + 4]), 1, np.float32))
        else:
            _tower_phase(job, phase, chunk, who, carray(at_address(job[OWN + 4]), 1, np.uint16))
        put_in(board, _THROUGH + _APART * chunk, phase + 1)


@compiled
def _floats(address, size):  # type: ignore[no-untyped-def]
    return carray(at_address(address), size, np.float32)


@compiled
def _room(address, who, queries, block, dim):  # type: ignore[no-untyped-def]
    """Thread `who`'s own: scores, folded queries, sums, totals, the largest scores (model/fast.py)."""
    wide = padded_to_panels(dim)
    at = address + 4 * who * queries * (block + dim + wide + 2)
    scores, folded = _floats(at, queries * block), _floats(at + 4 * queries * block, queries * dim)
    at += 4 * queries * (block + dim)
    sums, totals = _floats(at, queries * wide), _floats(at + 4 * queries * wide, queries)
    return scores, folded, sums, totals, _floats(at + 4 * queries * (wide + 1), queries)


@compiled
def cut_spans(spans, begins, chunks, parts, looks):  # type: ignore[no-untyped-def]
    """Each chunk's share of spans [R, 5]: parts [chunks, R + 1, 5], first counted from the chunk's first row.

    parts[c, R, 0]: how many they are; parts[c, R, 1]: how many logits the chunks before want. looks: per chunk, where
    the row begins in whose middle it does.
    """
    num, wanted = spans.shape[0], 0
    for c in range(chunks):
        begin, end, n = begins[c], begins[c + 1], 0
        parts[c, num, 1], looks[c] = wanted, c
        for r in range(num):
            low, high = max(spans[r, 2], begin), min(spans[r, 2] + spans[r, 3], end)
            if low >= high:
                continue
            for before in range(c):
                if begins[before] <= spans[r, 2] < begins[before + 1]:
                    looks[c] = min(looks[c], before)
            silent = spans[r, 2] + spans[r, 3] - spans[r, 4]
            parts[c, n, 0], parts[c, n, 1] = spans[r, 0], spans[r, 1] + low - spans[r, 2]
            parts[c, n, 2], parts[c, n, 3] = low - begin, high - low
            parts[c, n, 4] = high - max(low, silent) if silent < high else 0
            wanted += parts[c, n, 4]
            n += 1
        parts[c, num, 0] = n


@compiled
def _text_phase(job, phase, chunk, who, weights, head):  # type: ignore[no-untyped-def]
    """Phase l: the rest of layer l - 1, then keys and values of layer l; after the last one, logits."""
    keep_apart()
    own = job[OWN:]
    sizes = (own[6], own[7], own[8], own[9], own[10], own[11])
    layers, _, kv_heads, dim, hidden, _ = sizes
    begin, wide = job[BEGINS + chunk], padded_to_panels(hidden)
    rows, num = job[BEGINS + chunk + 1] - begin, own[1]
    parts = carray(at_address(own[0]), (job[_CHUNKS], num + 1, 5), np.int64)[chunk]
    spans, wanted = parts[: parts[num, 0]], parts[num, 1]
    slots, length, angles = own[12], own[13], own[14]
    of_layer, small = layer_sizes(sizes)
    vectors, eps = _floats(own[15], layers * small + wide), _floats(own[16], 1)[0]
    cos = carray(at_address(own[17]), (angles, dim // 2), np.float32)
    sin = carray(at_address(own[18]), (angles, dim // 2), np.float32)
    positions, panel = length // _PANEL, _PANEL
    keys = carray(at_address(own[19]), (layers, slots, kv_heads, positions, dim, panel), np.float32)
    values = carray(at_address(own[20]), (layers, slots, kv_heads, length, padded_to_panels(dim)), np.float32)
    x = _floats(own[21] + 4 * begin * wide, rows * wide)
    halves = (_floats(own[22] + 4 * begin * own[24], rows * own[24]),
              _floats(own[23] + 4 * begin * own[25], rows * own[25]))  # fmt: skip
    if phase > 0:
        i = phase - 1
        room = _room(own[26], who, own[27], own[28], dim)
        respond(x, rows, spans, sizes, eps, weights, i * of_layer, vectors[i * small :], keys[i], values[i], halves,
                room)  # fmt: skip
    if phase < layers:
        remember(x, rows, spans, sizes, eps, weights, phase * of_layer, vectors[phase * small :], (cos, sin),
                 keys[phase], values[phase], halves)  # fmt: skip
    else:
        logits = carray(at_address(own[2]), (own[29], own[3]), np.float32)[wanted:]
        speak(x, spans, sizes, eps, head, vectors[layers * small :], halves[0], logits)


@compiled
def _tower_phase(job, phase, chunk, who, weights):  # type: ignore[no-untyped-def]
    keep_apart()
    own = job[OWN:]
    sizes = (own[6], own[7], own[8], own[9], own[10], own[11])
    _, heads, width, ffn, mels, output = sizes
    first, count, positions = job[BEGINS + chunk], own[1], own[2]
    rows, wide, dim = job[BEGINS + chunk + 1] - first, padded_to_panels(width), width // heads
    length, half, both = padded_to_panels(positions), own[22], own[23]
    frames, hidden = _floats(own[0], (count + 2) * mels), _floats(own[14], (count + 2) * wide)
    vectors, places = _floats(own[12], own[21]), _floats(own[13], positions * wide)
    keys = carray(at_address(own[15]), (2, 1, heads, length // _PANEL, dim, _PANEL), np.float32)
    values = carray(at_address(own[16]), (2, 1, heads, length, padded_to_panels(dim)), np.float32)
    x = _floats(own[17] + 4 * first * wide, rows * wide)
    a, b = _floats(own[18] + 4 * first * half, rows * half), _floats(own[19] + 4 * first * both, rows * both)
    room = _room(own[20], who, own[24], own[25], dim)
    columns = padded_to_panels(output)
    out = _floats(own[3] + 4 * (first // 2) * columns, rows // 2 * columns)
    encode_phase(phase, first, rows, positions, frames, count, sizes, weights, vectors, places, keys, values, hidden, x,
                 a, b, room, out)  # fmt: skip

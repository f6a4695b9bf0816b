"""One step, or one window, by one thread or several. In: a job, int64 numbers and addresses. Out:
what it points to.

A job's rows are cut into chunks; each goes through the same phases (a layer's keys and values, then
the rest of it), and a phase of a chunk begins when the chunks it looks at are through the phase
before. Threads take the next phase of the next chunk from one counter: whoever is there works,
nobody waits for a thread that has not come. Every row goes through the same operations however it
is cut: the same bits. Waiting threads give up their core, sleeping cost none.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from streamer.model.kernels.arithmetic import (
    BLOCK,
    compiled,
    layer_sizes,
    padded_to_panels,
    part,
    remember,
    respond,
    speak,
)
from streamer.model.kernels.atomics import (
    add_to,
    at_address,
    give_way,
    look_at,
    put_in,
    sleep,
    wake,
)
from streamer.model.kernels.simd import PANEL
from streamer.model.kernels.tower_arithmetic import encode_phase
from streamer.model.kernels.write import write

MOST_CHUNKS = 16
_PANEL = np.int64(PANEL)
MOST_FAILURES = 10_000  # of a sleep, in a row: then the pipe is gone
# Cells of `board`, each on a cache line of its own: is there a job, threads inside it, the next
# phase of the next chunk; then how many phases each chunk is through.
_OPEN = 0
_INSIDE = 8
_NEXT = 16
_THROUGH = 24
_APART = 8
BOARD_CELLS = _THROUGH + _APART * MOST_CHUNKS
# What every job begins with: chunks, phases, is it a tower's, how many others to wake; then
# where each chunk begins (and the last one ends), then the first chunk whose keys each one
# looks at; then the kind's own numbers.
BEGINS = 4
LOOKS = 4 + MOST_CHUNKS + 1
OWN = LOOKS + MOST_CHUNKS
JOB_CELLS = OWN + 34


@compiled
def work(board, job, pipe, who, example):
    """who 0: do `job`, with others where it says so; done when this returns, and nobody reads it
    any more. Where rows of it have writers, their next ids are chosen and fed, step after step,
    until each writer has enough.

    who 1, 2 ...: a helping thread's whole life: sleep on `pipe`, take part in what there is, sleep.
    Work memory is by this number. example: an array of the kind in which the job's weights are
    kept, float32 or uint16 (float16).
    """
    while True:
        if who == 0:
            _open(board, job, pipe)
        else:
            failures = 0
            while sleep(pipe, 1) != 1:  # a signal's handler may have ended it: EINTR
                failures += 1
                if failures == MOST_FAILURES:
                    return
            add_to(board, _INSIDE, 1)
        if who == 0 or look_at(board, _OPEN) > 0:
            while True:
                turn = add_to(board, _NEXT, 1)
                if turn >= job[0] * job[1]:
                    break
                phase = turn // job[0]
                chunk = turn % job[0]
                _wait_for_others(board, job, phase, chunk)
                if job[2] > 0:
                    _tower_phase(job, job[OWN:], phase, chunk, who, example)
                else:
                    _text_phase(job, job[OWN:], phase, chunk, who, example)
                put_in(board, _THROUGH + _APART * chunk, phase + 1)
        if who == 0:
            _close(board, job)
            if job[2] > 0 or not _goes_on(job, job[OWN:]):
                return
        else:
            add_to(board, _INSIDE, -1)


@compiled
def _open(board, job, pipe):
    put_in(board, _NEXT, 0)
    for chunk in range(job[0]):
        put_in(board, _THROUGH + _APART * chunk, 0)
    if job[2] == 0:
        own = job[OWN:]
        spans = carray(at_address(own[0]), (own[3], 5), np.int64)
        parts = carray(at_address(own[1]), (job[0], own[3] + 1, 5), np.int64)
        _cut(spans, job[BEGINS:], job[0], parts, job[LOOKS:])
    if job[3] > 0:
        put_in(board, _OPEN, 1)
        wake(pipe, job[3])


@compiled
def _close(board, job):
    """Until every chunk is through, and nobody looks any more."""
    for chunk in range(job[0]):
        while look_at(board, _THROUGH + _APART * chunk) < job[1]:
            give_way()
    put_in(board, _OPEN, 0)
    while look_at(board, _INSIDE) > 0:
        give_way()


@part
def _goes_on(job, own):
    """Choose the next id of every row that has a writer; whether there are rows to feed, which are
    the job now."""
    if own[32] == 0:
        return False
    spans = carray(at_address(own[0]), (own[3], 5), np.int64)
    ids = carray(at_address(own[2]), own[3], np.int64)
    lanes = carray(at_address(own[32]), own[3], np.int64)
    rows = write(spans, ids, lanes, own[4], own[30])
    own[3] = rows
    own[4] = own[33]
    own[5] = rows
    job[0] = max(1, min(job[0], rows // 2))
    job[3] = job[3] if job[0] > 1 else 0
    for i in range(job[0]):  # as job.py's chunk_begins
        job[BEGINS + i] = rows * i // job[0] // 2 * 2
    job[BEGINS + job[0]] = rows
    return rows > 0


@compiled
def _wait_for_others(board, job, phase, chunk):
    """Until the chunks that this one looks at are through `phase` phases: some thread is at it."""
    if phase > 0:
        for other in range(job[LOOKS + chunk], (job[0] if job[2] > 0 else chunk + 1)):
            while look_at(board, _THROUGH + _APART * other) < phase:
                give_way()


@compiled
def _cut(spans, begins, chunks, parts, looks):
    """Each chunk's share of spans [R, 5]: parts [chunks, R + 1, 5], `first` counted from the
    chunk's first row.

    parts[c, R, 0]: how many they are; parts[c, R, 1]: how many logits the chunks before want.
    looks: per chunk, where the row begins in whose middle it does.
    """
    num = spans.shape[0]
    wanted = 0
    for c in range(chunks):
        begin = begins[c]
        end = begins[c + 1]
        n = 0
        parts[c, num, 1] = wanted
        looks[c] = c
        for r in range(num):
            low = max(spans[r, 2], begin)
            high = min(spans[r, 2] + spans[r, 3], end)
            if low >= high:
                continue
            while begins[looks[c]] > spans[r, 2]:
                looks[c] -= 1
            silent = spans[r, 2] + spans[r, 3] - spans[r, 4]
            parts[c, n, 0] = spans[r, 0]
            parts[c, n, 1] = spans[r, 1] + low - spans[r, 2]
            parts[c, n, 2] = low - begin
            parts[c, n, 3] = high - low
            parts[c, n, 4] = high - max(low, silent) if silent < high else 0
            wanted += parts[c, n, 4]
            n += 1
        parts[c, num, 0] = n


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
    """Thread `who`'s own: scores, folded queries, sums, totals, the largest scores
    (model/kernels/job.py)."""
    wide = padded_to_panels(dim)
    at = address + 4 * who * queries * (block + dim + wide + 2)
    scores = _floats(at, queries * block)
    folded = _floats(at + 4 * queries * block, queries * dim)
    at += 4 * queries * (block + dim)
    sums = _floats(at, queries * wide)
    totals = _floats(at + 4 * queries * wide, queries)
    return scores, folded, sums, totals, _floats(at + 4 * queries * (wide + 1), queries)


@part
def _text_phase(job, own, phase, chunk, who, example):
    """Phase l: the rest of layer l - 1, then keys and values of layer l; after the last one,
    logits."""
    sizes = (own[6], own[7], own[8], own[9], own[10], own[11])
    layers = own[6]
    kv_heads = own[8]
    dim = own[9]
    hidden = own[10]
    begin = job[BEGINS + chunk]
    wide = padded_to_panels(hidden)
    rows = job[BEGINS + chunk + 1] - begin
    num = own[3]
    parts = carray(at_address(own[1]), (job[0], num + 1, 5), np.int64)[chunk]
    spans = parts[: parts[num, 0]]
    of_layer, small = layer_sizes(sizes)
    weights = carray(at_address(own[12]), 1, example.dtype)
    vectors = _floats(own[14], layers * small + wide)
    eps = _floats(own[15], 1)[0]
    cos = carray(at_address(own[16]), (own[18], dim // 2), np.float32)
    sin = carray(at_address(own[17]), (own[18], dim // 2), np.float32)
    keys = carray(
        at_address(own[19]), (layers, own[21], kv_heads, own[22] // _PANEL, dim, _PANEL), np.float32
    )
    values = carray(
        at_address(own[20]), (layers, own[21], kv_heads, own[22], padded_to_panels(dim)), np.float32
    )
    x = _floats(own[23] + 4 * begin * wide, rows * wide)
    a = _floats(own[24] + 4 * begin * own[26], rows * own[26])
    b = _floats(own[25] + 4 * begin * own[27], rows * own[27])
    if phase == 0:
        ids = carray(at_address(own[2]), begin + rows, np.int64)[begin:]
        _look_up(ids, _floats(own[31], hidden), hidden, x, wide)
    else:
        i = phase - 1
        room = _room(own[28], who, own[29], BLOCK, dim)
        respond(
            x,
            rows,
            spans,
            sizes,
            eps,
            weights,
            i * of_layer,
            vectors[i * small :],
            keys[i],
            values[i],
            (a, b),
            room,
        )
    if phase < layers:
        remember(
            x,
            rows,
            spans,
            sizes,
            eps,
            weights,
            phase * of_layer,
            vectors[phase * small :],
            (cos, sin),
            keys[phase],
            values[phase],
            (a, b),
        )
    else:
        logits = carray(at_address(own[4]), (own[5], own[30]), np.float32)[parts[num, 1] :]
        head = carray(at_address(own[13]), 1, example.dtype)
        speak(x, spans, sizes, eps, head, vectors[layers * small :], a, logits)


@part
def _tower_phase(job, own, phase, chunk, who, example):
    sizes = (own[6], own[7], own[8], own[9], own[10], own[11])
    heads = own[7]
    width = own[8]
    output = own[11]
    first = job[BEGINS + chunk]
    count = own[1]
    positions = own[2]
    rows = job[BEGINS + chunk + 1] - first
    wide = padded_to_panels(width)
    dim = width // heads
    length = padded_to_panels(positions)
    columns = padded_to_panels(output)
    frames = _floats(own[0], (count + 2) * own[10])
    hidden = _floats(own[16], (count + 2) * wide)
    weights = carray(at_address(own[12]), 1, example.dtype)
    vectors = _floats(own[13], own[14])
    places = _floats(own[15], positions * wide)
    keys = carray(at_address(own[17]), (2, 1, heads, length // _PANEL, dim, _PANEL), np.float32)
    values = carray(at_address(own[18]), (2, 1, heads, length, padded_to_panels(dim)), np.float32)
    x = _floats(own[19] + 4 * first * wide, rows * wide)
    a = _floats(own[20] + 4 * first * own[22], rows * own[22])
    b = _floats(own[21] + 4 * first * own[23], rows * own[23])
    room = _room(own[24], who, own[25], BLOCK, dim)
    out = _floats(own[3] + 4 * (first // 2) * columns, rows // 2 * columns)
    encode_phase(
        phase,
        (first, rows, positions, count),
        frames,
        sizes,
        weights,
        vectors,
        places,
        keys,
        values,
        hidden,
        (x, a, b),
        room,
        out,
    )

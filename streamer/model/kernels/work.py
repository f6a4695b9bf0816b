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

from streamer.model.kernels.arithmetic import compiled
from streamer.model.kernels.atomics import (
    add_to,
    at_address,
    give_way,
    look_at,
    put_in,
    sleep,
    wake,
)
from streamer.model.kernels.cells import (
    APART,
    BEGINS,
    CHUNKS,
    INSIDE,
    IS_TOWER,
    LOOKS,
    NEXT,
    OPEN,
    OTHERS,
    OWN,
    PHASES,
    SPAN,
    TEXT,
    THROUGH,
)
from streamer.model.kernels.phases import text_phase, tower_phase

_COLUMNS = len(SPAN)


@compiled
def work(board, job, pipe, who, example):
    """who 0: do `job`, with others where it says so; done when this returns, and nobody reads it
    any more.

    who 1, 2 ...: a helping thread's whole life: sleep on `pipe`, take part in what there is, sleep.
    Work memory is by this number. example: an array of the kind in which the job's weights are
    kept, float32 or uint16 (float16).
    """
    while True:
        if who == 0:
            _open(board, job, pipe)
        else:
            if not sleep(pipe):
                return
            add_to(board, INSIDE, 1)
        if who == 0 or look_at(board, OPEN) > 0:
            while True:
                turn = add_to(board, NEXT, 1)
                if turn >= job[CHUNKS] * job[PHASES]:
                    break
                phase = turn // job[CHUNKS]
                chunk = turn % job[CHUNKS]
                _wait_for_others(board, job, phase, chunk)
                if job[IS_TOWER] > 0:
                    tower_phase(job, job[OWN:], phase, chunk, who, example)
                else:
                    text_phase(job, job[OWN:], phase, chunk, who, example)
                put_in(board, THROUGH + APART * chunk, phase + 1)
        if who == 0:
            _close(board, job)
            return
        add_to(board, INSIDE, -1)


@compiled
def _open(board, job, pipe):
    put_in(board, NEXT, 0)
    for chunk in range(job[CHUNKS]):
        put_in(board, THROUGH + APART * chunk, 0)
    if job[IS_TOWER] == 0:
        own = job[OWN:]
        spans = carray(at_address(own[TEXT.spans]), (own[TEXT.num_spans], _COLUMNS), np.int64)
        parts = carray(
            at_address(own[TEXT.parts]), (job[CHUNKS], own[TEXT.num_spans] + 1, _COLUMNS), np.int64
        )
        _cut(spans, job[BEGINS:], job[CHUNKS], parts, job[LOOKS:])
    if job[OTHERS] > 0:
        put_in(board, OPEN, 1)
        wake(pipe, job[OTHERS])


@compiled
def _close(board, job):
    """Until every chunk is through, and nobody looks any more."""
    for chunk in range(job[CHUNKS]):
        while look_at(board, THROUGH + APART * chunk) < job[PHASES]:
            give_way()
    put_in(board, OPEN, 0)
    while look_at(board, INSIDE) > 0:
        give_way()


@compiled
def _wait_for_others(board, job, phase, chunk):
    """Until the chunks that this one looks at are through `phase` phases: some thread is at it."""
    if phase > 0:
        for other in range(job[LOOKS + chunk], (job[CHUNKS] if job[IS_TOWER] > 0 else chunk + 1)):
            while look_at(board, THROUGH + APART * other) < phase:
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
        parts[c, num, SPAN.start] = wanted
        looks[c] = c
        for r in range(num):
            low = max(spans[r, SPAN.first], begin)
            high = min(spans[r, SPAN.first] + spans[r, SPAN.n], end)
            if low >= high:
                continue
            while begins[looks[c]] > spans[r, SPAN.first]:
                looks[c] -= 1
            silent = spans[r, SPAN.first] + spans[r, SPAN.n] - spans[r, SPAN.num_logits]
            parts[c, n, SPAN.slot] = spans[r, SPAN.slot]
            parts[c, n, SPAN.start] = spans[r, SPAN.start] + low - spans[r, SPAN.first]
            parts[c, n, SPAN.first] = low - begin
            parts[c, n, SPAN.n] = high - low
            parts[c, n, SPAN.num_logits] = high - max(low, silent) if silent < high else 0
            wanted += parts[c, n, SPAN.num_logits]
            n += 1
        parts[c, num, SPAN.slot] = n

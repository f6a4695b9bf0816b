"""The next ids of rows that have writers, compiled. In: a step's spans and logits. Out: the spans
of the next step.

A writer's lane is int64 [len(LANE)]: addresses and counts (model/kernels/lane.py). So a block of
ids is drafted in one call of the kernels: no id of it passes through Python.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from streamer.model.kernels.arithmetic import part
from streamer.model.kernels.atomics import at_address
from streamer.model.kernels.cells import LANE, SPAN
from streamer.model.kernels.rules import next_id


@part
def write(spans, ids, lanes, logits, columns):
    """Choose one id for every row with a lane; those that want another become the first spans, ids
    and lanes.

    spans [R, 5] as `work` reads them; lanes [R]: addresses, 0: no writer; logits: the address of
    [wanted, columns]. How many rows go on is returned.
    """
    going = 0
    at = logits
    for r in range(len(lanes)):
        lane = lanes[r]
        here = at
        at += 4 * columns * spans[r, SPAN.num_logits]
        if lane != 0:
            token = _write_one(carray(at_address(lane), len(LANE), np.int64), here)
            if token >= 0:
                slot = spans[r, SPAN.slot]
                position = spans[r, SPAN.start] + spans[r, SPAN.n]
                spans[going, SPAN.slot] = slot
                spans[going, SPAN.start] = position
                spans[going, SPAN.first] = going
                spans[going, SPAN.n] = spans[going, SPAN.num_logits] = 1
                ids[going] = token
                lanes[going] = lane
                going += 1
    return going


@part
def _write_one(lane, logits):
    """Choose and append one id from the logits at that address; it if it is to be fed, or -1."""
    if lane[LANE.home] == 0:
        lane[LANE.home] = logits
    book = carray(at_address(lane[LANE.book]), lane[LANE.book_length], np.int32)
    scores = carray(at_address(lane[LANE.scores]), lane[LANE.num_ids], np.float32)
    mask = carray(at_address(lane[LANE.mask]), lane[LANE.mask_length], np.bool_)
    marks = carray(at_address(lane[LANE.marks]), lane[LANE.num_ids], np.int32)
    answer = carray(at_address(lane[LANE.answer]), lane[LANE.said] + lane[LANE.wanted], np.int64)
    factors = carray(at_address(lane[LANE.factors]), 2, np.float32)
    n = lane[LANE.said]
    raw = carray(at_address(logits), lane[LANE.num_ids], np.float32)
    token, is_last, entropy, margin, log_prob = next_id(
        raw, scores, mask, book, marks, answer, n, factors[0], factors[1], True
    )
    if token < 0:
        lane[LANE.is_rare] = 1
        _copy(logits, lane[LANE.home], lane[LANE.num_ids])
        return -1
    answer[n] = token
    place = 3 * lane[LANE.written]
    signals = carray(at_address(lane[LANE.signals]), place + 3, np.float64)
    signals[place] = entropy
    signals[place + 1] = margin
    signals[place + 2] = log_prob
    lane[LANE.said] = n + 1
    lane[LANE.written] = lane[LANE.written] + 1
    lane[LANE.wanted] = lane[LANE.wanted] - 1
    if is_last:
        lane[LANE.is_last] = 1
    return -1 if is_last or lane[LANE.wanted] == 0 else token


@part
def _copy(at, to, count):
    if at != to:
        source = carray(at_address(at), count, np.float32)
        target = carray(at_address(to), count, np.float32)
        for i in range(count):
            target[i] = source[i]

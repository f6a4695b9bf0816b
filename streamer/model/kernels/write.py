"""The next ids of rows that have writers, compiled. In: a step's spans and logits. Out: the spans
of the next step.

A writer's lane is int64 [LANE_CELLS]: addresses and counts (model/kernels/lane.py). So a block of
ids is drafted in one call of the kernels: no id of it passes through Python.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from streamer.model.kernels.arithmetic import part
from streamer.model.kernels.atomics import at_address
from streamer.model.kernels.lane import (
    ANSWER,
    BOOK,
    BOOK_LENGTH,
    FACTORS,
    HOME,
    IS_LAST,
    IS_RARE,
    LANE_CELLS,
    MARKS,
    MASK,
    MASK_LENGTH,
    NUM_IDS,
    SAID,
    SCORES,
    SIGNALS,
    WANTED,
    WRITTEN,
)
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
        at += 4 * columns * spans[r, 4]
        if lane != 0:
            token = _write_one(carray(at_address(lane), LANE_CELLS, np.int64), here)
            if token >= 0:
                slot = spans[r, 0]
                position = spans[r, 1] + spans[r, 3]
                spans[going, 0] = slot
                spans[going, 1] = position
                spans[going, 2] = going
                spans[going, 3] = spans[going, 4] = 1
                ids[going] = token
                lanes[going] = lane
                going += 1
    return going


@part
def _write_one(lane, logits):
    """Choose and append one id from the logits at that address; the id if it is to be fed, else
    -1."""
    if lane[HOME] == 0:
        lane[HOME] = logits
    book = carray(at_address(lane[BOOK]), lane[BOOK_LENGTH], np.int32)
    scores = carray(at_address(lane[SCORES]), lane[NUM_IDS], np.float32)
    mask = carray(at_address(lane[MASK]), lane[MASK_LENGTH], np.bool_)
    marks = carray(at_address(lane[MARKS]), lane[NUM_IDS], np.int32)
    answer = carray(at_address(lane[ANSWER]), lane[SAID] + lane[WANTED], np.int64)
    factors = carray(at_address(lane[FACTORS]), 2, np.float32)
    n = lane[SAID]
    token, is_last, entropy, margin, log_prob = next_id(
        logits, scores, mask, book, marks, answer, n, factors[0], factors[1], True
    )
    if token < 0:
        lane[IS_RARE] = 1
        _copy(logits, lane[HOME], lane[NUM_IDS])
        return -1
    answer[n] = token
    place = 3 * lane[WRITTEN]
    signals = carray(at_address(lane[SIGNALS]), place + 3, np.float64)
    signals[place] = entropy
    signals[place + 1] = margin
    signals[place + 2] = log_prob
    lane[SAID] = n + 1
    lane[WRITTEN] = lane[WRITTEN] + 1
    lane[WANTED] = lane[WANTED] - 1
    if is_last:
        lane[IS_LAST] = 1
    return -1 if is_last or lane[WANTED] == 0 else token


@part
def _copy(at, to, count):
    if at != to:
        source = carray(at_address(at), count, np.float32)
        target = carray(at_address(to), count, np.float32)
        for i in range(count):
            target[i] = source[i]

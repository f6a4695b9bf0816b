"""Whether a block needs the cloud, compiled. In: a gate's numbers, a rule book, ids, signals. Out:
whether it fires.

The same as core/decoding/gate.py, the readable truth; the tests hold one against the other. A block
with a piece of a character fires here: its text is not read, and whoever drafts asks the readable
gate about every block that fires.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from streamer.core.decoding.gate import PUNCTUATION_WEIGHT, SIGNALS, Gate
from streamer.model.kernels.arithmetic import compiled
from streamer.model.kernels.cells import BOOK, COMMA, END, GATE, HAS_CONTENT, INVALID, address

_WEIGHT = PUNCTUATION_WEIGHT
# core/rules/stop.py's loop_suspected
_LOOKED_AT = 12
_PERIODS = 9
_LEAST = 3


@functools.lru_cache(maxsize=64)
def gate_numbers(gate: Gate) -> tuple[NDArray[np.float64], int]:
    """([GATE]: the doubt above which each signal fires, and the density; not a number: never.
    Loop: 0 or 1. Where they lie)"""
    numbers = np.zeros(len(GATE))
    for name, sign in SIGNALS.items():
        numbers[getattr(GATE, name)] = _limit(getattr(gate, name), sign)
    numbers[GATE.density] = _limit(gate.density, 1.0)
    numbers[GATE.loop] = gate.loop
    return numbers, address(numbers)


def _limit(threshold: float | None, sign: float) -> float:
    return np.nan if threshold is None else sign * threshold


@compiled
def gate_fires(gate, book, answer, begin, end, signals):
    """gate [GATE] float64; answer [>= end] int64, of which [begin, end) is the block; signals
    [3 * ids] float64: entropy, margin and log-probability of each of its ids."""
    if end <= begin:
        return False
    entropy = signals[0]
    margin = signals[1]
    log_prob = signals[2]
    total = 0.0
    count = 0
    num_marks = 0
    last = 0
    for i in range(end - begin):
        token = answer[begin + i]
        flags = book[book[BOOK.flags_at] + token]
        if flags & INVALID:
            return True
        entropy = max(entropy, signals[3 * i])
        margin = min(margin, signals[3 * i + 1])
        log_prob = min(log_prob, signals[3 * i + 2])
        total += (1.0 if flags & HAS_CONTENT else _WEIGHT) * signals[3 * i + 2]
        place = book[BOOK.starts_at] + token
        for j in range(book[place], book[place + 1]):
            last = book[book[BOOK.characters_at] + j]
            num_marks += (last & (COMMA | END)) != 0
            count += 1
    if (
        entropy > gate[GATE.entropy]
        or -margin > gate[GATE.margin]
        or -log_prob > gate[GATE.log_prob]
        or -total > gate[GATE.surprise]
    ):
        return True
    num_marks -= (last & END) != 0  # the end that closes a block is no flood
    if (num_marks / count if count else 0.0) > gate[GATE.density]:
        return True
    return gate[GATE.loop] > 0 and _looks_like_a_loop(answer, end)


@compiled
def _looks_like_a_loop(answer, end):
    for period in range(1, _PERIODS):
        width = period + max(_LEAST, period // 2)
        if width > min(end, _LOOKED_AT):
            return False
        again = True
        for i in range(end - width + period, end):
            again = again and answer[i] == answer[i - period]
        if again:
            return True
    return False

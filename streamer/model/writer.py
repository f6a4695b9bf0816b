"""What a row brings so that its next ids are chosen inside the kernels. In: rules as arrays. Out: ids, signals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.core.gate import Signal
from streamer.core.rules import Rules
from streamer.model.rule_book import Ints

# Cells of a lane: book, its length; scores, their length; mask, its length; marks; answer; how many ids are said, how
# many more are wanted, how many are written; whether the last one ends the answer; whether the next one is to be chosen
# the readable way, from the logits at HOME; float32 penalty and bias; float64 signals [.., 3].
(BOOK, BOOK_LENGTH, SCORES, NUM_IDS, MASK, MASK_LENGTH, MARKS, ANSWER, SAID, WANTED, WRITTEN, IS_LAST, IS_RARE, HOME,
 FACTORS, SIGNALS, LANE_CELLS) = range(17)  # fmt: skip


class Writer:
    """One answer's lane. `begin` with what is said; after one engine step with it: `ids`, `signals`, how it ended.

    lane [LANE_CELLS] int64: addresses of arrays that this object keeps, and counts.
    """

    def __init__(self, book: Ints, mask: NDArray[np.bool_], num_ids: int, rules: Rules) -> None:
        self.lane = np.zeros(LANE_CELLS, np.int64)
        self._factors = np.array([rules.repetition_penalty, rules.end_bias], np.float32)
        self._kept = (book, mask, np.empty(num_ids, np.float32), np.zeros(num_ids, np.int32))
        book, mask, scores, marks = self._kept
        self.lane[: MARKS + 1] = (
            book.ctypes.data, len(book), scores.ctypes.data, num_ids, mask.ctypes.data, len(mask), marks.ctypes.data,
        )  # fmt: skip
        self.lane[FACTORS] = self._factors.ctypes.data
        self.num_ids = num_ids
        self._signals, self._answer = np.zeros((0, 3)), np.zeros(0, np.int64)

    def begin(self, answer: NDArray[np.int64], n: int, wanted: int) -> None:
        """The first `n` ids of `answer` [>= n + wanted] are said; up to `wanted` are written behind them."""
        if len(answer) < n + wanted or wanted < 1:
            raise ValueError(f"{len(answer)} places do not hold {n} ids and {wanted} more")
        if len(self._signals) < wanted:
            self._signals = np.zeros((wanted, 3))
            self.lane[SIGNALS] = self._signals.ctypes.data
        if answer is not self._answer:
            self._answer = answer
            self.lane[ANSWER] = answer.ctypes.data
        self._first = n
        self.lane[SAID : HOME + 1] = (n, wanted, 0, 0, 0, 0)

    def limit(self, most: int) -> None:
        """Write no more than `most` ids, 1 or more: the slot ends there."""
        if most < self.lane[WANTED]:
            self.lane[WANTED] = most

    @property
    def ids(self) -> list[int]:
        """The ids that were written."""
        found: list[int] = self._answer[self._first : self._first + int(self.lane[WRITTEN])].tolist()
        return found

    @property
    def signals(self) -> list[Signal]:
        """One per id."""
        return [Signal(*numbers) for numbers in self._signals[: int(self.lane[WRITTEN])].tolist()]

    @property
    def is_last(self) -> bool:
        """The last id ends the answer."""
        return bool(self.lane[IS_LAST])

    @property
    def is_rare(self) -> bool:
        """The next id is to be chosen the readable way, from the logits that the step gave: they are of its place."""
        return bool(self.lane[IS_RARE])

"""What a row brings so that its next ids are chosen inside the kernels. In: rules as arrays. Out:
ids, signals."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from streamer.core.decoding.gate import Signal
from streamer.core.rules.settings import Rules
from streamer.model.kernels.rule_book import Ints

# Cells of a lane: book, its length; scores, their length; mask, its length; marks; answer; how
# many ids are said, how many more are wanted, how many are written; whether the last one ends
# the answer; whether the next one is to be chosen the readable way, from the logits at HOME;
# float32 penalty and bias; float64 signals [.., 3].
(
    BOOK,
    BOOK_LENGTH,
    SCORES,
    NUM_IDS,
    MASK,
    MASK_LENGTH,
    MARKS,
    ANSWER,
    FACTORS,
    SIGNALS,
    SAID,
    WANTED,
    WRITTEN,
    IS_LAST,
    IS_RARE,
    HOME,
    LANE_CELLS,
) = range(17)


_SPARE = 64  # ids that there is room for at first


class Writer:
    """One answer's lane. `begin` with what is said; after one engine step with it `read`.

    lane [LANE_CELLS] int64: addresses of arrays that this object keeps, and counts.
    """

    def __init__(self, book: Ints, mask: NDArray[np.bool_], num_ids: int, rules: Rules) -> None:
        self.lane = np.zeros(LANE_CELLS, np.int64)
        self._cells = self.lane.data  # the same: NumPy takes three times as long for a number
        self._factors = np.array([rules.repetition_penalty, rules.end_bias], np.float32)
        self._kept = (book, mask, np.empty(num_ids, np.float32), np.zeros(num_ids, np.int32))
        book, mask, scores, marks = self._kept
        self.lane[: MARKS + 1] = (
            book.ctypes.data,
            len(book),
            scores.ctypes.data,
            num_ids,
            mask.ctypes.data,
            len(mask),
            marks.ctypes.data,
        )
        self.lane[FACTORS] = self._factors.ctypes.data
        self.num_ids = num_ids
        self._answer = np.zeros(0, np.int64)
        self._room_for(_SPARE)
        self.ids: list[int] = []  # that were written
        self.signals: list[Signal] = []  # one per id
        self.is_last = False  # the last id ends the answer
        # The next id is to be chosen the readable way, from the logits that the step gave: they
        # are of its place.
        self.is_rare = False

    def begin(self, answer: NDArray[np.int64], n: int, wanted: int) -> None:
        """The first `n` ids of `answer` [>= n + wanted] are said; up to `wanted`, 1 or more, are
        written behind them."""
        if len(answer) < n + wanted or wanted < 1:
            raise ValueError(f"{len(answer)} places do not hold {n} ids and {wanted} more")
        if len(self._signals) < 3 * wanted:
            self._room_for(wanted)
        if answer is not self._answer:
            self._answer = answer
            self._said = answer.data
            self.lane[ANSWER] = answer.ctypes.data
        self._first = n
        self._cells[SAID:LANE_CELLS] = array(self._cells.format, (n, wanted, 0, 0, 0, 0))

    def _room_for(self, num_ids: int) -> None:
        signals = np.zeros(3 * num_ids)
        self.lane[SIGNALS] = signals.ctypes.data
        self._signals = signals.data

    def limit(self, most: int) -> None:
        """Write no more than `most` ids, 1 or more: the slot ends there."""
        if most < self._cells[WANTED]:
            self._cells[WANTED] = most

    def read(self) -> None:
        """Behind the step: see what was written."""
        cells = self._cells
        n = cells[WRITTEN]
        self.ids = self._said[self._first : self._first + n].tolist()
        self.signals = [Signal(*self._signals[at : at + 3]) for at in range(0, 3 * n, 3)]
        self.is_last = cells[IS_LAST] > 0
        self.is_rare = cells[IS_RARE] > 0

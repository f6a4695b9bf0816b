"""What a row brings so that its next ids are chosen inside the kernels. In: rules as arrays. Out:
ids, signals."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from streamer.core.decoding.gate import Signal
from streamer.core.rules.settings import Rules
from streamer.model.kernels.cells import LANE, address, put
from streamer.model.kernels.rule_book import Ints

_SPARE = 64  # ids that there is room for at first
_NOTHING = array("l", bytes(8 * (len(LANE) - LANE.said)))


class Writer:
    """One answer's lane. `begin` with what is said; after one engine step with it `read`.

    lane [len(LANE)] int64: addresses of arrays that this object keeps, and counts.
    """

    def __init__(self, book: Ints, mask: NDArray[np.bool_], num_ids: int, rules: Rules) -> None:
        self.lane = np.zeros(len(LANE), np.int64)
        self._cells = self.lane.data  # the same: NumPy takes three times as long for a number
        self._factors = np.array([rules.repetition_penalty, rules.end_bias], np.float32)
        self._kept = (book, mask, np.empty(num_ids, np.float32), np.zeros(num_ids, np.int32))
        book, mask, scores, marks = self._kept
        put(
            self._cells,
            LANE,
            book=address(book),
            book_length=len(book),
            scores=address(scores),
            num_ids=num_ids,
            mask=address(mask),
            mask_length=len(mask),
            marks=address(marks),
            factors=address(self._factors),
        )
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
        """`n` ids of `answer` [>= n + wanted] are said; up to `wanted`, 1 or more, are written."""
        if len(answer) < n + wanted or wanted < 1:
            raise ValueError(f"{len(answer)} places do not hold {n} ids and {wanted} more")
        if len(self._signals) < 3 * wanted:
            self._room_for(wanted)
        if answer is not self._answer:
            self._answer = answer
            self._said = answer.data
            self._cells[LANE.answer] = address(answer)
        self._first = n
        self._cells[LANE.said :] = _NOTHING
        self._cells[LANE.said] = n
        self._cells[LANE.wanted] = wanted

    def _room_for(self, num_ids: int) -> None:
        signals = np.zeros(3 * num_ids)
        self._cells[LANE.signals] = address(signals)
        self._signals = signals.data

    def limit(self, most: int) -> None:
        """Write no more than `most` ids, 1 or more: the slot ends there."""
        if most < self._cells[LANE.wanted]:
            self._cells[LANE.wanted] = most

    def read(self) -> None:
        """Behind the step: see what was written."""
        cells = self._cells
        n = cells[LANE.written]
        self.ids = self._said[self._first : self._first + n].tolist()
        self.signals = [Signal(*self._signals[at : at + 3]) for at in range(0, 3 * n, 3)]
        self.is_last = cells[LANE.is_last] > 0
        self.is_rare = cells[LANE.is_rare] > 0

"""What a row brings so that its next ids are chosen inside the kernels. In: rules as arrays. Out:
ids, signals."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from streamer.core.decoding.gate import Gate, Signal
from streamer.core.decoding.plan import Run
from streamer.core.rules.constrain import Rules
from streamer.model.kernels.cells import LANE, address, put
from streamer.model.kernels.gate import gate_numbers
from streamer.model.kernels.rule_book import Ints

_SPARE = 64  # ids that there is room for at first: a run and more
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
        self._gate: Gate | None = None  # whose limits are here
        # its numbers, kept while they are read, and where they lie
        self._limits = np.zeros(0), 0
        self.ids: list[int] = []  # that were written
        self.signals: list[Signal] = []  # one per id, but for those of blocks that passed
        self.is_last = False  # the last id ends the answer
        # The next id is to be chosen the readable way, from the logits that the step gave: they
        # are of its place.
        self.is_rare = False

    def begin(self, answer: NDArray[np.int64], n: int, wanted: int, run: Run | None = None) -> None:
        """The first `n` ids of `answer` [>= n + as many as are written] are said; up to `wanted`
        are written behind them, which make a block whole; with a `run` blocks behind it as long as
        they pass."""
        most, opened = (wanted, ()) if run is None else (run.most, run.opened)
        if len(answer) < n + most or not 1 <= wanted <= most or len(opened) > n:
            raise ValueError(
                f"{len(answer)} places do not hold {n} ids and {most} more, {wanted} of them at "
                "once"
            )
        if len(self._signals) < 3 * (most + len(opened)):
            self._room_for(most + len(opened))
        if answer is not self._answer:
            self._answer = answer
            self._said = answer.data
            self._cells[LANE.answer] = address(answer)
        self._first = n
        self._opened = len(opened)
        self._wanted = wanted
        self._cells[LANE.said :] = _NOTHING
        self._cells[LANE.said] = n
        self._cells[LANE.wanted] = most
        self._cells[LANE.block] = self._cells[LANE.first_signal] = n - len(opened)
        if run is None:
            return
        self._cells[LANE.size] = self._size = run.size
        if run.gate is not None:
            if run.gate is not self._gate:
                self._gate = run.gate
                self._limits = gate_numbers(run.gate)
            self._cells[LANE.gate] = self._limits[1]
        for i, signal in enumerate(opened):
            self._signals[3 * i : 3 * i + 3] = array("d", signal)

    def _room_for(self, num_ids: int) -> None:
        signals = np.zeros(3 * num_ids)
        self._cells[LANE.signals] = address(signals)
        self._signals = signals.data

    def limit(self, most: int) -> None:
        """Write no more than `most` ids, 1 or more: the slot ends there."""
        if most < self._cells[LANE.wanted]:
            self._cells[LANE.wanted] = most

    def share(self, num_rows: int) -> None:
        """So many rows are fed at once, each as slow as all of them: a run is that much shorter,
        but for its first block. So nobody who comes meanwhile waits longer."""
        if self._cells[LANE.size]:
            wanted = self._cells[LANE.wanted]
            self.limit(
                max(
                    self._wanted,
                    self._wanted + (wanted // num_rows - self._wanted) // self._size * self._size,
                )
            )

    def read(self) -> None:
        """Behind the step: see what was written."""
        cells = self._cells
        opened = self._opened
        n = cells[LANE.written]
        n_passed = cells[LANE.passed]
        self.ids = self._said[self._first : self._first + n].tolist()
        places = range(3 * (opened + n_passed), 3 * (opened + n), 3)
        self.signals = (
            [Signal(*self._signals[at : at + 3]) for at in places] if n > n_passed else []
        )
        self.is_last = cells[LANE.is_last] > 0
        self.is_rare = cells[LANE.is_rare] > 0

"""Steps and windows in the form that work.py reads. In: arrays. Out: int64 numbers, how to cut,
addresses."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.model.kernels.arithmetic import BLOCK, QUERIES
from streamer.model.kernels.company import Company
from streamer.model.kernels.helpers import Crew
from streamer.model.kernels.simd import PANEL
from streamer.model.kernels.work import BEGINS, BOARD_CELLS, JOB_CELLS, MOST_CHUNKS, OWN, work

Floats = NDArray[np.float32]
OFTEN = 12  # rows per piece from which a thread gets two: nobody waits for a large one long


class Job:
    """Numbers of one kind of job; what they point to belongs to the caller, who keeps it while
    `run` runs."""

    def __init__(self, phases: int, is_tower: bool, weights: NDArray[Any]) -> None:
        self._board = np.zeros(BOARD_CELLS, np.int64)
        self._cells = np.zeros(JOB_CELLS, np.int64)
        self._cells[1:3] = phases, is_tower
        self._weights = weights
        # by the power of two of a job's multiplications
        self._companies: dict[int, Company] = {}

    def put(self, at: int, *numbers: int) -> None:
        """Set the kind's own numbers from `at` on."""
        self._cells[OWN + at : OWN + at + len(numbers)] = numbers

    def run(self, rows: int, crew: Crew, products: float) -> None:
        """Do it, so many multiplications, with those of the crew that are free."""
        if not crew.is_worth(products):
            self._run(rows, crew, 0)
            return
        company = self._companies.setdefault(int(products).bit_length(), Company())
        others = crew.take(products) if company.pays() else 0
        started = perf_counter()
        self._run(rows, crew, others)
        company.took(products, others > 0, perf_counter() - started)

    def _run(self, rows: int, crew: Crew, others: int) -> None:
        chunks = num_chunks(rows, others + 1) if others else 1
        self._cells[0] = chunks
        self._cells[3] = others
        self._cells[BEGINS : BEGINS + chunks + 1] = chunk_begins(rows, chunks)
        if others:
            crew.lead(self._cells, others, self._weights)
        else:
            work(self._board, self._cells, -1, 0, self._weights)


def num_chunks(rows: int, threads: int) -> int:
    """Into how many pieces to cut so many rows, an even number of rows each."""
    return min(MOST_CHUNKS, rows // 2, 2 * threads if rows >= 2 * OFTEN * threads else threads)


def chunk_begins(rows: int, chunks: int) -> list[int]:
    """Where each piece begins, even numbers, and `rows`."""
    return [rows * i // chunks // 2 * 2 for i in range(chunks)] + [rows]


def attention_room(queries: int, dim: int, threads: int) -> Floats:
    """Each thread's scores of a block, folded queries, weighted sums of values, their totals, the
    largest scores."""
    return np.zeros(threads * queries * (BLOCK + dim + up(dim) + 2), np.float32)


def num_queries(rows: int, group: int) -> int:
    """Folded queries that attention holds at a time, of a step of so many rows."""
    return min(rows, QUERIES) * group


def up(width: int) -> int:
    return -(-width // PANEL) * PANEL


def address(array: NDArray[Any]) -> int:
    """Where its first number lies."""
    return int(array.__array_interface__["data"][0])

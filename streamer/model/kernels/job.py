"""Steps and windows in the form that work.py reads. In: arrays. Out: int64 numbers, how to cut,
addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.model.kernels.attention import BLOCK, QUERIES
from streamer.model.kernels.cells import (
    BEGINS,
    BOARD_CELLS,
    CHUNKS,
    IS_TOWER,
    JOB_CELLS,
    MOST_CHUNKS,
    OTHERS,
    OWN,
    PHASES,
    TOWER,
    Text,
    Tower,
    put,
)
from streamer.model.kernels.helpers import Crew
from streamer.model.kernels.simd import PANEL
from streamer.model.kernels.work import work

Floats = NDArray[np.float32]
OFTEN = 12  # rows per piece from which a thread gets two: nobody waits for a large one long


class Job:
    """Numbers of one kind of job; what they point to belongs to the caller, who keeps it while
    `run` runs.

    table: TEXT or TOWER of cells.py, the names of the kind's own numbers.
    """

    def __init__(self, phases: int, table: Text | Tower, weights: NDArray[Any]) -> None:
        self._board = np.zeros(BOARD_CELLS, np.int64)
        self._cells = np.zeros(JOB_CELLS, np.int64)
        self._cells[PHASES] = phases
        self._cells[IS_TOWER] = table is TOWER
        self._own = self._cells[OWN:].data
        self._table = table
        self._weights = weights

    def put(self, **numbers: int) -> None:
        """Set the kind's own numbers by their names."""
        put(self._own, self._table, **numbers)

    def run(self, rows: int, crew: Crew, products: float) -> None:
        """Do it, so many multiplications, with those of the crew that are free."""
        others = crew.take(products)
        chunks = num_chunks(rows, others + 1) if others else 1
        self._cells[CHUNKS] = chunks
        self._cells[OTHERS] = others
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
    """Each thread's scores of a block, folded queries, sums of values, totals, largest scores."""
    return np.zeros(threads * queries * (BLOCK + dim + up(dim) + 2), np.float32)


def num_queries(rows: int, group: int) -> int:
    """Folded queries that attention holds at a time, of a step of so many rows."""
    return min(rows, QUERIES) * group


def up(width: int) -> int:
    return -(-width // PANEL) * PANEL

"""Products with weights of 8 or 4 bits, and attention beside them. In: float32 rows. Out: float32.

Each by as many threads as it is worth (few_bits_share.py); a row's bits depend on that row alone.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.model.kernels.cells import BOARD_CELLS, OF_BYTES, PACKED, SHARED_CELLS
from streamer.model.kernels.few_bits_attention import attend_rows, keep
from streamer.model.kernels.few_bits_fours import COLUMNS, LINE
from streamer.model.kernels.few_bits_product import SPARE, multiply_panels, to_bytes
from streamer.model.kernels.few_bits_share import help_others, share_attention, share_product
from streamer.model.kernels.threads import num_cores, num_kernel_threads

Floats = NDArray[np.float32]
Sizes = tuple[int, int, int]  # heads, kv_heads, head_dim
Crew = tuple[NDArray[np.int64], NDArray[np.int64], int, int]  # board, job, pipe, others
WORTH = 1_000_000  # multiplications of one row that are worth a thread: 0.1 ms of it


def multiply(
    x: Floats, data: NDArray[Any], scales: Floats, width: int, bias: Floats | None = None
) -> Floats:
    """[rows, width] of x [rows, k], with `bias` [width].

    data [panels, groups, lines, LINE]: int8, a line holds 4 weights of each column, as [COLUMNS,
    4]; or uint8, the same of bytes of two weights of 4 bits, plus 8: the first four are in the low
    bits, the next in the high ones. scales [panels, groups, COLUMNS].
    """
    panels, groups, lines = data.shape[:3]
    rows, inner = x.shape
    packed = data.dtype == np.uint8
    group = lines * LINE // COLUMNS * (2 if packed else 1)
    x_step = groups * group + SPARE
    q, steps = np.empty(rows * x_step, np.int8), np.empty(rows * groups, np.float32)
    starts = np.empty(rows * groups, np.int32)
    middle = np.int32(8 if packed else 128)
    to_bytes(x.reshape(-1), rows, inner, q, x_step, steps, starts, groups, group, middle)
    y = np.empty((rows, width), np.float32)
    shift = np.empty(0, np.float32) if bias is None else bias
    flat = q, x_step, starts, steps, data.reshape(-1), scales.reshape(-1), shift, y.reshape(-1)
    sizes = rows, width, groups, lines
    crew = helpers().take(min(num_threads(), rows * inner * width // WORTH))
    if crew is None:
        multiply_panels(*flat, *sizes, 0, panels)
        return y
    try:
        share_product(*flat, *sizes, PACKED if packed else OF_BYTES, panels, crew)
    finally:
        helpers().let_go()
    return y


def attended(
    qkv: Floats,
    spans: NDArray[np.int64],
    sizes: Sizes,
    angles: tuple[Floats, Floats],
    slots: tuple[Floats, Floats],
) -> Floats:
    """[rows, heads * head_dim]: rotate queries and keys of qkv [rows, (heads + 2 kv_heads) *
    head_dim] in place, keep keys and values, and attend.

    spans [n, SPAN]; angles: cos and sin [positions, head_dim / 2]; slots: a layer's keys and values
    (kv_slots.py, in panels).
    """
    heads, _, dim = sizes
    rows = len(qkv)
    out = np.empty((rows, heads * dim), np.float32)
    flat, to = qkv.reshape(-1), out.reshape(-1)
    keep(flat, spans, *sizes, *angles, *slots)
    crew = helpers().take(min(num_threads(), rows))
    if crew is None:
        attend_rows(flat, spans, 0, rows, *sizes, *slots, to)
        return out
    try:
        share_attention(flat, spans, *sizes, *slots, to, rows, crew)
    finally:
        helpers().let_go()
    return out


@cache
def num_threads() -> int:
    """Threads of a product: the cores; OMP_NUM_THREADS in the environment bounds them."""
    return num_kernel_threads(num_cores())


class Helpers:
    """Threads that help with one product at a time; for another, who asks meanwhile is alone."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._board = np.zeros(BOARD_CELLS, np.int64)
        self._job = np.zeros(SHARED_CELLS, np.int64)
        self._pipe: tuple[int, int] | None = None  # where they sleep, and what wakes them
        self._num = 0

    def take(self, threads: int) -> Crew | None:
        """For so many threads with the caller's; not None: `let_go` must follow."""
        if threads < 2 or not self._busy.acquire(blocking=False):
            return None
        try:
            return self._board, self._job, self._gather(threads - 1), threads - 1
        except BaseException:  # no more threads or files: who asks again may have better luck
            self.let_go()
            raise

    def let_go(self) -> None:
        self._busy.release()

    def _gather(self, others: int) -> int:
        """So many helpers are there. Out: the pipe that wakes them."""
        if self._pipe is None:
            self._pipe = os.pipe()
            os.set_blocking(self._pipe[1], False)  # a byte per sleeper: it is never full
        while self._num < others:
            work = self._board, self._job, self._pipe[0]
            name = f"few-bits-{self._num + 1}"
            threading.Thread(target=help_others, args=work, name=name, daemon=True).start()
            self._num += 1
        return self._pipe[1]


@cache
def helpers() -> Helpers:
    """The ones of this process."""
    return Helpers()


if hasattr(os, "register_at_fork"):  # threads are the parent's: a child begins with none
    os.register_at_fork(after_in_child=helpers.cache_clear)

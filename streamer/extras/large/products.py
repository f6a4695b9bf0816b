"""Products with weights of 8 or 4 bits, and layers of a language model that has them.

Rows are float32. Each product takes as many threads as it is worth (layer.py), and a row's bits
depend on that row alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.extras.large.layer import (
    BOARD_CELLS,
    JOB_CELLS,
    OF_BYTES,
    PACKED,
    feed,
    help_others,
    times,
)
from streamer.extras.large.panels import SPARE
from streamer.extras.large.tile import COLUMNS, LINE
from streamer.model.checkpoint.shapes import TextShape
from streamer.model.devices import num_cores

Floats = NDArray[np.float32]
# A matrix: weights, scales, bias, width, groups, lines, weights of a group, and its kind
Given = tuple[NDArray[Any], Floats, Floats, int, int, int, int, int]
Room = tuple[NDArray[np.int8], Floats, NDArray[np.int32]]
# A layer: the norm before attention, qkv and out, the norm after it, gate_up and down
Weights = tuple[Floats, Given, Given, Floats, Given, Given]
# board, job, pipe, how many others, and what is worth one
Crew = tuple[NDArray[np.int64], NDArray[np.int64], int, int, int]
WORTH = 1_000_000  # multiplications that are worth a thread: 0.1 ms of it


def given(data: NDArray[Any], scales: Floats, width: int, bias: Floats | None = None) -> Given:
    """A matrix as compiled code takes it.

    data [panels, groups, lines, LINE]: int8, a line holds 4 weights of each column, as [COLUMNS,
    4]; or uint8, the same of bytes of two weights of 4 bits, plus 8: the first four are in the low
    bits, the next in the high ones. scales [panels, groups, COLUMNS]; bias [width].
    """
    _, groups, lines = data.shape[:3]
    is_packed = data.dtype == np.uint8
    group = lines * LINE // COLUMNS * (2 if is_packed else 1)
    shift = np.empty(0) if bias is None else bias
    flat = data.reshape(-1), scales.reshape(-1), np.ascontiguousarray(shift, np.float32)
    return *flat, width, groups, lines, group, PACKED if is_packed else OF_BYTES


def multiply(
    x: Floats, data: NDArray[Any], scales: Floats, width: int, bias: Floats | None = None
) -> Floats:
    """[rows, width] of x [rows, k], with `bias` [width]. data and scales: as `given` takes them."""
    rows, inner = x.shape
    matrix = given(data, scales, width, bias)
    y = np.empty((rows, width), np.float32)
    with helpers().crew(min(num_threads(), rows * inner * width // WORTH)) as crew:
        times(x.reshape(-1), rows, inner, matrix, y.reshape(-1), room_for(rows, [matrix]), crew)
    return y


def room_for(rows: int, matrices: Iterable[Given]) -> Room:
    """Memory for rows in 8 bits, their steps and their starts, before any of these matrices."""
    sizes = [(groups * group + SPARE, groups) for *_, groups, _, group, _ in matrices]
    most, most_groups = (rows * max(column) for column in zip(*sizes, strict=True))
    return (
        np.empty(most, np.int8),
        np.empty(most_groups, np.float32),
        np.empty(most_groups, np.int32),
    )


def feed_layers(
    x: Floats,
    spans: NDArray[np.int64],
    shape: TextShape,
    layers: Sequence[Weights],
    angles: tuple[Floats, Floats],
    slots: Iterable[tuple[Floats, Floats]],
    length: int,
) -> None:
    """All layers' work on x [rows, hidden], in place; keys and values go into their slots.

    spans [n, SPAN]; angles: cos and sin [positions, head_dim / 2]; slots: each layer's keys and
    values (engine.py, in panels), flat; length: positions of a slot.
    """
    heads, kv_heads, dim = shape.heads, shape.kv_heads, shape.head_dim
    hidden, ffn = shape.hidden, shape.ffn
    sizes = (heads, kv_heads, dim, hidden, ffn, length)
    rows = len(x)
    widest = max((heads + 2 * kv_heads) * dim, 2 * ffn)
    between = (max(hidden, heads * dim, ffn), widest, hidden)
    rooms = tuple(np.empty(rows * width, np.float32) for width in between)
    room = room_for(rows, [of for _, qkv, out, _, *mlp in layers for of in (qkv, out, *mlp)])
    eps = np.float32(shape.eps)
    assert x.flags.c_contiguous
    flat = x.reshape(-1)
    for layer, kept in zip(layers, slots, strict=True):
        # each anew: another caller that has the helpers now may be done by the next layer
        with helpers().crew(num_threads()) as crew:
            feed(flat, rows, spans, sizes, eps, layer, angles, kept, (*rooms, room), crew)


@cache
def num_threads() -> int:
    """Threads of a product: the cores; OMP_NUM_THREADS in the environment bounds them."""
    if os.name != "posix":  # they are woken by a pipe
        return 1
    said = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return max(1, min(num_cores(), int(said) if said.isdecimal() else num_cores()))


class Helpers:
    """Threads that help one caller at a time; another caller works alone meanwhile."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._board = np.zeros(BOARD_CELLS, np.int64)
        self._job = np.zeros(JOB_CELLS, np.int64)
        self._pipe: tuple[int, int] | None = None  # where they sleep, and what wakes them
        self._num = 0

    @contextmanager
    def crew(self, threads: int) -> Iterator[Crew]:
        """`threads` with the caller's own; while they are taken, the caller alone."""
        if threads < 2 or not self._busy.acquire(blocking=False):
            yield self._board, self._job, 0, 0, WORTH
            return
        try:
            yield self._board, self._job, self._gather(threads - 1), threads - 1, WORTH
        finally:
            self._busy.release()

    def _gather(self, others: int) -> int:
        """Start helpers until there are `others`; the pipe that wakes them."""
        if self._pipe is None:
            self._pipe = os.pipe()
            os.set_blocking(self._pipe[1], False)  # a byte per sleeper: it is never full
        while self._num < others:
            work = self._board, self._job, self._pipe[0]
            name = f"few-bits-{self._num + 1}"
            threading.Thread(target=help_others, args=work, name=name, daemon=True).start()
            self._num += 1
        return self._pipe[1]


_helpers = Helpers()


def helpers() -> Helpers:
    """The ones of this process."""
    return _helpers


def _begin_anew() -> None:
    """In a forked child: threads are the parent's."""
    global _helpers
    _helpers = Helpers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)

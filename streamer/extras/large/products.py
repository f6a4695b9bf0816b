"""Products with weights of 8 or 4 bits, and layers of a language model that has them.

Rows are float32. Threads share the work (layer.py), and a row's bits depend on that row alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.extras.large.layer import APART, PHASES, feed, times
from streamer.extras.large.panels import SPARE
from streamer.extras.large.tile import COLUMNS, LINE
from streamer.model.checkpoint.layout import TextShape
from streamer.model.devices import num_cores

Floats = NDArray[np.float32]
MOST_THREADS = 64
WORTH = 1_000_000  # multiplications that are worth a thread: 0.1 ms of it


class Given(NamedTuple):
    """A matrix as compiled code takes it, flat.

    data [panels, groups, lines, LINE]: int8, a line holds 4 weights of each column, as [COLUMNS,
    4]; or uint8, the same of bytes of two weights of 4 bits, plus 8: the first four are in the low
    bits, the next in the high ones. scales [panels, groups, COLUMNS]; bias [width], or none. form:
    weights of a group, its lines, and the number that stands for 0.
    """

    data: NDArray[Any]
    scales: Floats
    bias: Floats
    width: int
    form: tuple[int, int, np.int32]

    @classmethod
    def of(
        cls, data: NDArray[Any], scales: Floats, width: int, bias: Floats | None = None
    ) -> Given:
        lines = data.shape[2]
        is_packed = data.dtype == np.uint8
        form = (lines * LINE // COLUMNS * (1 + is_packed), lines, np.int32(8 if is_packed else 128))
        shift = np.empty(0, np.float32) if bias is None else np.ascontiguousarray(bias, np.float32)
        return cls(data.reshape(-1), scales.reshape(-1), shift, width, form)

    @property
    def addresses(self) -> list[int]:
        """As layer.py's `feed` finds it; it must stay alive meanwhile."""
        return [
            part.ctypes.data if part.size else 0 for part in (self.data, self.scales, self.bias)
        ]


# A layer: the norm before attention, qkv and out, the norm after it, gate_up and down
Weights = tuple[Floats, Given, Given, Floats, Given, Given]


def multiply(x: Floats, matrix: Given) -> Floats:
    """[rows, width] of x [rows, k]."""
    rows, inner = x.shape
    y = np.empty((rows, matrix.width), np.float32)
    threads = min(num_threads(), max(1, rows * inner * matrix.width // WORTH))
    given = x.reshape(-1), rows, inner, matrix.data, matrix.scales, matrix.bias, y.reshape(-1)
    room = _room_for(rows, [inner], matrix.form[0])
    _by_all(times, 2, threads, *given, matrix.width, room, matrix.form)
    return y


def _room_for(rows: int, inner: Iterable[int], group: int) -> tuple[NDArray[Any], ...]:
    """Memory for rows of any of these widths in 8 bits, their steps and their starts."""
    groups = rows * max(-(-width // group) for width in inner)
    q = np.empty(groups * group + rows * SPARE, np.int8)
    return q, np.empty(groups, np.float32), np.empty(groups, np.int32)


class Layers:
    """The layers of a language model."""

    def __init__(self, shape: TextShape, layers: Sequence[Weights]) -> None:
        self._shape = shape
        self._layers = layers  # their arrays must stay
        self._form = layers[0][1].form
        self._table = np.array(
            [
                [norm_in.ctypes.data, norm_mlp.ctypes.data]
                + [at for matrix in (qkv, out, *mlp) for at in matrix.addresses]
                for norm_in, qkv, out, norm_mlp, *mlp in layers
            ]
        )

    def feed(
        self,
        x: Floats,
        spans: NDArray[np.int64],
        angles: tuple[Floats, Floats],
        slots: tuple[Floats, Floats],
        length: int,
    ) -> None:
        """All layers' work on x [rows, hidden], in place; keys and values go into their slots.

        spans [n, SPAN]; angles: cos and sin [positions, head_dim / 2]; slots: keys and values
        (engine.py, in panels), flat; length: positions of a slot.
        """
        s, rows = self._shape, len(x)
        inner = s.heads * s.head_dim
        widest = max(inner + 2 * s.kv_heads * s.head_dim, 2 * s.ffn)
        given, wide = (
            np.empty(rows * width, np.float32) for width in (max(s.hidden, inner, s.ffn), widest)
        )
        change = np.zeros(rows * s.hidden, np.float32)
        room = _room_for(rows, (s.hidden, inner, s.ffn), self._form[0])
        sizes = (s.heads, s.kv_heads, s.head_dim, s.hidden, s.ffn, length)
        of = self._layers[0][1].data[:0]
        assert x.flags.c_contiguous
        given_all = x.reshape(-1), spans, sizes, np.float32(s.eps), self._table, of, angles, slots
        phases = len(self._table) * PHASES
        rooms = given, wide, change, room
        _by_all(feed, phases, num_threads(), *given_all, rooms, self._form)
        x += change.reshape(x.shape)


def _by_all(function: Callable[..., None], phases: int, threads: int, *given: Any) -> None:
    """Run a function of layer.py on `threads`, one of which is the caller's."""
    cells = np.zeros(phases * APART, np.int64)
    others = [_helpers().submit(function, cells, threads, *given) for _ in range(threads - 1)]
    function(cells, threads, *given)
    for each in others:
        each.cancel()  # it would find nothing to do


@cache
def _helpers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST_THREADS, "few-bits")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)  # threads are the parent's


@cache
def num_threads() -> int:
    """Threads of a product: the cores; OMP_NUM_THREADS in the environment bounds them."""
    said = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return max(1, min(num_cores(), int(said) if said.isdecimal() else num_cores(), MOST_THREADS))

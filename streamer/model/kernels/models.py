"""The language model and the audio tower on compiled kernels, for small models on a CPU.

They have the interfaces of `TextModel` and `AudioTower` and equal them to 1e-5, the language model
in a tenth of its time at one row, since nothing is dispatched (2026-11). A checkpoint's float16
stays float16: half the memory is read, and the bits are the same. A window's embeddings are the
same bits in any batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.model.checkpoint.layout import EMBEDDING, AudioShape, TextShape
from streamer.model.engines.engine import (
    Audio,
    Floats,
    KVSlots,
    Span,
    arrays_of,
    kv_sizes,
    rotary,
    sinusoids,
)
from streamer.model.kernels.library import (
    BLOCK,
    KEEPS_HALVES,
    PANEL,
    QUERIES,
    Kernel,
    kernel,
    table_of,
)

SIZES = 3  # place among the arguments of `run_text`: these stay from step to step


class FastText:
    """Weights in panels; `step` feeds any number of rows. Not thread-safe: one work memory."""

    def __init__(self, weights: Mapping[str, Any], shape: TextShape) -> None:
        """weights: arrays by their names in the checkpoint, all float16 or all float32."""
        self.shape = shape
        embedding = np.asarray(weights[EMBEDDING])
        head = embedding if shape.tied else np.asarray(weights["lm_head.weight"])
        self._tables = (
            *tables_of([*layers_of(weights, shape), weights["model.norm.weight"]]),
            np.ascontiguousarray(embedding, np.float32),
            bits_of(panels(head)),
        )
        self._run = kernel_for("text", self._tables[0])
        self._eps = np.array([shape.eps], np.float32)
        self._wide = up(shape.hidden)
        self._columns = up(shape.vocab)
        self._rows = 0
        self._slots: KVSlots | None = None  # for which the table of arguments is made
        self._reserve(1)

    def slots(self, num_slots: int, max_len: int) -> KVSlots:
        """KV memory in the layout that `step` reads."""
        return slots_of(self.shape, num_slots, max_len)

    def step(self, ids: Seq[int], audio: Audio, spans: Seq[Span], slots: KVSlots) -> Floats:
        """Feed packed `ids`; logits [sum of num_logits, vocab] float32, only where they are wanted.

        A row's result is the same to the last bit whatever rows stand beside it and however its ids
        are cut. Raises IndexError for an id that the model does not have.
        """
        s = self.shape
        if not 0 <= min(ids) <= max(ids) < s.vocab:
            raise IndexError(f"the model has {s.vocab} ids, not {min(ids)} or {max(ids)}")
        self._reserve(len(ids))
        table = self._table_for(slots)
        self._given[: len(ids)] = ids
        for first, embeds in audio:
            self._given[first : first + len(embeds)] = -1  # not looked up
            x = self._x[first * self._wide : (first + len(embeds)) * self._wide]
            x.reshape(-1, self._wide)[:, : s.hidden] = embeds
        self._where[: len(spans)] = spans
        logits = np.empty((sum(span.num_logits for span in spans), self._columns), np.float32)
        table[1], table[5] = len(ids), len(spans)
        table[-2], table[-1] = logits.__array_interface__["data"][0], logits.size
        self._run.run(table)
        return logits[:, : s.vocab]

    def _table_for(self, slots: KVSlots) -> Any:
        """The kernel's arguments but the logits, for `run`. To look at all arrays at each step
        would take 30 us, as long as a step of the edge."""
        if self._slots is not slots:
            s = self.shape
            sizes = (s.layers, s.heads, s.kv_heads, s.head_dim, s.hidden, s.ffn)
            length = slots.values.shape[3]
            self._sizes = np.array([*sizes, length, self._columns, *self._parts], np.int64)
            memory = slots.keys.reshape(-1), slots.values.reshape(-1), self._work
            usual = self._sizes, self._eps, *self._tables, *slots.angles, *memory
            given = self._run.numbers_of((self._given, self._x, self._where))
            self._table = table_of([*given, *self._run.numbers_of(usual, SIZES), 0, 0])
            self._slots = slots
        return self._table

    def _reserve(self, rows: int) -> None:
        """Work memory for `rows` packed rows; grows by doubling."""
        if rows <= self._rows:
            return
        s = self.shape
        self._slots = None  # the arguments change
        self._rows = rows = max(rows, 2 * self._rows)
        qkv = up((s.heads + 2 * s.kv_heads) * s.head_dim)
        inner = max(self._wide, s.heads * s.head_dim, s.ffn)
        self._given, self._where = np.zeros(rows, np.int64), np.zeros((rows, 5), np.int64)
        self._x = np.zeros(rows * self._wide, np.float32)
        queries = min(rows, QUERIES) * (s.heads // s.kv_heads)
        self._parts = rows * inner, rows * max(qkv, up(2 * s.ffn)), queries
        self._work = work_of(*self._parts, s.head_dim)


def slots_of(shape: TextShape, num_slots: int, max_len: int) -> KVSlots:
    """KV memory in float32, as the compiled attention reads it."""
    keys, values = (np.zeros(n, np.float32) for n in kv_sizes(shape, num_slots, max_len, PANEL))
    angles = rotary(max_len, shape.head_dim, shape.rope_theta)
    return KVSlots(keys, values, angles, num_slots, max_len, PANEL)


def kernel_for(name: str, weights: NDArray[Any]) -> Kernel:
    """The kernel for weights of this type."""
    return kernel(name if weights.dtype == np.uint16 else f"{name} of float32")


def work_of(a: int, b: int, queries: int, dim: int) -> Floats:
    """Work memory of layers.py and attention.py: two parts, and that of `queries` at once."""
    return np.zeros(a + b + queries * (BLOCK + dim + up(dim) + 2), np.float32)


def layers_of(weights: Mapping[str, Any], shape: TextShape | AudioShape) -> Iterator[Any]:
    """The arrays of all layers, in the order in which layers.py reads them."""
    for i in range(shape.layers):
        for _, array in arrays_of(weights.__getitem__, shape, i):
            yield array


def tables_of(arrays: Iterable[Any]) -> tuple[NDArray[Any], Floats]:
    """The matrices of a model in panels, one after another, and its vectors."""
    found = [np.asarray(array) for array in arrays]
    matrices = np.concatenate([panels(array) for array in found if array.ndim > 1])
    return bits_of(matrices), np.concatenate([padded(array) for array in found if array.ndim == 1])


def panels(matrix: NDArray[Any]) -> NDArray[Any]:
    """[out, in] -> flat [panels, in, PANEL], zeros where `out` ends. A convolution [out, in, 3] is
    the product with three frames in a row, `in` padded."""
    if matrix.ndim == 3:
        frames = np.pad(matrix.transpose(0, 2, 1), ((0, 0), (0, 0), (0, -matrix.shape[1] % PANEL)))
        matrix = frames.reshape(len(matrix), -1)
    out, depth = matrix.shape
    padded = np.pad(matrix, ((0, -out % PANEL), (0, 0))).reshape(-1, PANEL, depth)
    return np.ascontiguousarray(padded.transpose(0, 2, 1)).reshape(-1)


def padded(vector: NDArray[Any]) -> Floats:
    """The vector as float32, with zeros after it up to a whole panel."""
    return np.pad(vector, (0, -len(vector) % PANEL)).astype(np.float32)


def bits_of(matrices: NDArray[Any]) -> NDArray[Any]:
    """As kernels read them: float16 by its bits, float32 as it is."""
    if matrices.dtype == np.float16 and KEEPS_HALVES:
        return matrices.view(np.uint16)
    return matrices.astype(np.float32, copy=False)


def up(width: int) -> int:
    """`width`, rounded up to whole panels."""
    return -(-width // PANEL) * PANEL


class FastTower:
    """`encode` gives 25 embeddings per second of audio. Threads may share it."""

    # each is a product large enough: together they take as long as one after the other
    windows_at_once = 1

    def __init__(self, weights: Mapping[str, Any], shape: AudioShape) -> None:
        """weights: arrays by their names in the checkpoint, all float16 or all float32."""
        self.shape = shape
        self.window_frames = 2 * shape.n_window
        self._wide = up(shape.width)

        def named(*names: str) -> Iterator[Any]:
            for name in names:
                yield weights[f"{shape.prefix}{name}.weight"]
                yield weights[f"{shape.prefix}{name}.bias"]

        begin, end = named("conv1", "conv2"), named("ln_post", "proj")
        places = sinusoids(shape.n_window, shape.width)
        places = np.pad(places, ((0, 0), (0, -shape.width % PANEL))).reshape(-1)
        self._tables = (*tables_of([*begin, *layers_of(weights, shape), *end]), places)
        self._run = kernel_for("tower", self._tables[0])

    def encode(self, features: Floats) -> Floats:
        """[B, mels, T] float32 -> [B, n, output]. Raises ValueError for T > window_frames."""
        batch, _, frames = features.shape
        if frames > self.window_frames:
            raise ValueError(f"a window has at most {self.window_frames} frames, not {frames}")
        s = self.shape
        rows = (frames + 1) // 2
        dim = s.width // s.heads
        length = up(rows)
        heard = np.zeros((frames + 2, s.num_mels), np.float32)
        # zeros where nothing is written
        hidden = np.zeros((frames + 2) * self._wide, np.float32)
        keys = np.zeros(s.heads * length * dim, np.float32)
        values = np.zeros(s.heads * length * up(dim), np.float32)
        both = max(up(3 * s.width), up(s.ffn))
        x = np.empty(rows * self._wide, np.float32)
        parts = rows * self._wide, rows * both, min(rows, QUERIES)
        work = work_of(*parts, dim)
        sizes = s.layers, s.heads, s.width, s.ffn, s.num_mels, s.output, *parts
        spans = np.array([(0, 0, 0, rows, 0)], np.int64)
        out = np.empty((batch, rows // 2, up(s.output)), np.float32)
        for window, embeddings in zip(np.asarray(features), out, strict=True):
            heard[1:-1] = window.T
            given = heard.reshape(-1), spans, np.array(sizes), *self._tables
            self._run(*given, hidden, keys, values, x, work, embeddings.reshape(-1))
        return out[..., : s.output]

"""The language model and the audio tower on compiled kernels, for small models on a CPU.

They have the interfaces of `TextModel` and `AudioTower` and equal them to 1e-5, the language model
in a tenth of its time at one row, since nothing is dispatched (2026-11). A checkpoint's float16
stays float16: half the memory is read, and the bits are the same. A window's embeddings are the
same bits in any batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.model.checkpoint.layout import EMBEDDING, AudioShape, TextShape
from streamer.model.engines.engine import Audio, Floats, KVSlots, Span, arrays_of, rotary, sinusoids
from streamer.model.kernels.library import BLOCK, KEEPS_HALVES, PANEL, QUERIES, Table, kernel


class FastText:
    """Weights in panels; `step` feeds any number of rows. Not thread-safe: one work memory."""

    def __init__(self, weights: Mapping[str, Any], shape: TextShape) -> None:
        """weights: arrays by their names in the checkpoint, all float16 or all float32."""
        self.shape = shape
        embedding = np.asarray(weights[EMBEDDING])
        head = embedding if shape.tied else np.asarray(weights["lm_head.weight"])
        norm = padded(weights["model.norm.weight"])
        self._embedding = embedding.astype(np.float32, copy=False)
        self._tables = *tables_of(weights, shape), norm, panels(head)
        self._run = kernel(f"text {self._tables[0].dtype}")
        self._columns = up(shape.vocab)
        self._rows = 0
        self._slots: KVSlots | None = None
        self._table: Table

    def slots(self, num_slots: int, max_len: int) -> KVSlots:
        """KV memory in the layout that `step` reads."""
        return compiled_slots(self.shape, num_slots, max_len)

    def step(self, ids: Seq[int], audio: Audio, spans: Seq[Span], slots: KVSlots) -> Floats:
        """Feed packed `ids`; logits [sum of num_logits, vocab] float32, only where they are wanted.

        A row's result is the same to the last bit whatever rows stand beside it and however its ids
        are cut. Raises IndexError for an id that the model does not have.
        """
        n, hidden = len(ids), self.shape.hidden
        table = self._table_for(n, slots)
        self._x[:n, :hidden] = self._embedding.take(ids, 0)
        for first, embeds in audio:
            self._x[first : first + len(embeds), :hidden] = embeds
        self._where[: len(spans)] = spans
        logits = np.empty((sum(span.num_logits for span in spans), self._columns), np.float32)
        table[1] = len(spans)
        table[-2:] = [logits.__array_interface__["data"][0], logits.size]
        self._run.run(table)
        return logits[:, : self.shape.vocab]

    def _table_for(self, rows: int, slots: KVSlots) -> Table:
        """The kernel's arguments, with work memory for `rows` packed rows, which grows by doubling;
        the logits are dummies. To look at all arrays at each step would take 30 us, as long as a
        step of the edge."""
        if rows <= self._rows and slots is self._slots:
            return self._table
        s = self.shape
        self._slots, self._rows = slots, max(rows, 2 * self._rows)
        rows, wide, inner = self._rows, up(s.hidden), s.heads * s.head_dim
        self._where, self._x = np.zeros((rows, 5), np.int64), np.zeros((rows, wide), np.float32)
        widest = max(up(inner + 2 * s.kv_heads * s.head_dim), up(2 * s.ffn))
        queries = max(min(rows, QUERIES), s.heads // s.kv_heads) * (BLOCK + up(s.head_dim) + PANEL)
        numbers = rows * max(wide, inner, s.ffn), rows * widest, queries
        work = [np.zeros(n, np.float32) for n in numbers]
        sizes = s.layers, s.heads, s.kv_heads, s.head_dim, s.hidden, s.ffn, slots.values.shape[3]
        given = self._where, np.array([*sizes, self._columns])
        kept = (array.reshape(s.layers, -1) for array in (slots.keys, slots.values))
        rest = *self._tables, *slots.angles, *kept, self._x.reshape(-1), *work, work[0]
        # the table holds addresses alone
        self._arguments = *given, np.array([s.eps], np.float32), *rest
        self._table = self._run.table(*self._arguments)
        return self._table


def compiled_slots(shape: TextShape, num_slots: int, max_len: int) -> KVSlots:
    """KV memory in float32, as the compiled attention reads it."""
    angles = rotary(max_len, shape.head_dim, shape.rope_theta)
    return KVSlots(shape, num_slots, max_len, partial(np.zeros, dtype=np.float32), angles, PANEL)


def tables_of(
    weights: Mapping[str, Any], shape: TextShape | AudioShape
) -> tuple[NDArray[Any], Floats]:
    """The matrices of each layer in panels, one after another, and its vectors."""
    matrices, vectors = [], []
    for i in range(shape.layers):
        own = [np.asarray(array) for _, array in arrays_of(weights.__getitem__, shape, i)]
        matrices.append(np.concatenate([panels(each) for each in own if each.ndim > 1]))
        vectors.append(np.concatenate([padded(each) for each in own if each.ndim == 1]))
    return np.stack(matrices), np.stack(vectors)


def padded(vector: Any) -> Floats:
    """The vector as float32, with zeros after it up to a whole panel."""
    return np.pad(np.asarray(vector, np.float32), (0, -len(vector) % PANEL))


def panels(matrix: NDArray[Any]) -> NDArray[Any]:
    """[out, in] -> flat [panels, in, PANEL], zeros where `out` ends; float16 by its bits. A
    convolution [out, in, 3] is the product with three frames in a row, `in` padded."""
    if matrix.ndim == 3:
        frames = np.pad(matrix.transpose(0, 2, 1), ((0, 0), (0, 0), (0, -matrix.shape[1] % PANEL)))
        matrix = frames.reshape(len(matrix), -1)
    out, depth = matrix.shape
    padded = np.pad(matrix, ((0, -out % PANEL), (0, 0))).reshape(-1, PANEL, depth)
    found = np.ascontiguousarray(padded.transpose(0, 2, 1)).reshape(-1)
    if found.dtype == np.float16 and KEEPS_HALVES:
        return found.view(np.uint16)
    return found.astype(np.float32, copy=False)


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
        own = {name.removeprefix(shape.prefix): np.asarray(weights[name]) for name in shape.ends()}
        outer = np.concatenate([panels(own[f"{n}.weight"]) for n in ("conv1", "conv2", "proj")])
        names = "conv1.bias", "conv2.bias", "ln_post.weight", "ln_post.bias", "proj.bias"
        ends = np.concatenate([padded(own[name]) for name in names])
        places = np.concatenate([padded(row) for row in sinusoids(shape.n_window, shape.width)])
        self._tables = outer, *tables_of(weights, shape), ends, places
        self._run = kernel(f"tower {outer.dtype}")

    def encode(self, features: Floats) -> Floats:
        """[B, mels, T] float32 -> [B, n, output]. Raises ValueError for more than a window."""
        s = self.shape
        batch, mels, frames = features.shape
        if frames > 2 * s.n_window:
            raise ValueError(f"a window has at most {2 * s.n_window} frames, not {frames}")
        rows, wide, dim = (frames + 1) // 2, up(s.width), s.width // s.heads
        heard, hidden = (frames + 2) * mels, (frames + 2) * wide
        keys, values = (s.heads * up(rows) * size for size in (dim, up(dim)))
        widest, queries = max(up(3 * s.width), up(s.ffn)), min(rows, QUERIES)
        work = rows * wide, rows * widest, queries * (BLOCK + up(dim) + PANEL)
        # zeros where nothing is written
        numbers = heard, hidden, keys, values, rows * wide, *work
        given, *rest = (np.zeros(n, np.float32) for n in numbers)
        sizes = np.array([s.layers, s.heads, s.width, s.ffn, s.num_mels, s.output])
        spans = np.array([(0, 0, 0, rows, 0)])
        out = np.empty((batch, rows // 2, up(s.output)), np.float32)
        for window, embeddings in zip(np.asarray(features), out, strict=True):
            given.reshape(-1, mels)[1:-1] = window.T
            self._run(given, spans, sizes, *self._tables, *rest, embeddings.reshape(-1))
        return out[..., : s.output]

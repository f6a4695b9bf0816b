"""The language model on compiled kernels, for small models on a CPU. In: embeddings of packed rows.
Out: hidden.

The same interface as `TextModel`, and equal to it to 1e-5; a tenth of its time at one row, since
nothing is dispatched (2026-11). Weights that float16 holds exactly are kept as float16: half the
memory to stream, the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from streamer.model.checkpoint.shapes import TextShape
from streamer.model.engines.kv_slots import KVSlots
from streamer.model.engines.text import Audio, Span
from streamer.model.kernels.helpers import Crew
from streamer.model.kernels.job import Job, address, attention_room, num_queries, up
from streamer.model.kernels.lane import WANTED, Writer
from streamer.model.kernels.simd import PANEL
from streamer.model.kernels.threads import the_crew
from streamer.model.kernels.work import MOST_CHUNKS

Floats = NDArray[np.float32]
SHARED_ROWS = 8  # fewer are not worth a second thread: each reads all weights


class FastText:
    """Weights packed in panels; `step` feeds any number of rows at once. Not thread-safe: its work
    memory is one."""

    writes = True  # rows may bring writers

    def __init__(
        self, weights: dict[str, Tensor], shape: TextShape, crew: Crew | None = None
    ) -> None:
        self.shape = shape
        self.embedding = weights["model.embed_tokens.weight"]
        head = self.embedding if shape.tied else weights["lm_head.weight"]
        packed = []
        vectors = []
        for i in range(shape.layers):
            of_layer, small = _take_layer(weights, f"model.layers.{i}.")
            packed += [panels(matrix) for matrix in of_layer]
            vectors += [padded(vector) for vector in small]
        self._vectors = np.concatenate([*vectors, padded(weights["model.norm.weight"])])
        self._weights, self._head = halved([np.concatenate(packed), panels(head)])
        self._table = np.ascontiguousarray(self.embedding.numpy())
        self._eps = np.array([shape.eps], np.float32)
        self._wide = up(shape.hidden)
        self._columns = up(shape.vocab)
        self._sizes = (
            shape.layers,
            shape.heads,
            shape.kv_heads,
            shape.head_dim,
            shape.hidden,
            shape.ffn,
        )
        self._crew = crew or the_crew()
        self._slots: KVSlots | None = None  # those that the job points to
        self._job = Job(shape.layers + 1, False, self._weights)
        self._make_books(8)
        fixed = (self._weights, self._head, self._vectors, self._eps)
        self._job.put(6, *self._sizes, *(address(array) for array in fixed))
        self._job.put(30, self._columns, address(self._table))
        self._rows = self._length = 0
        self._later = np.zeros((1, self._columns), np.float32)
        self._reserve(1, PANEL)

    @property
    def is_half(self) -> bool:
        """Whether the weights are kept as float16."""
        return bool(self._weights.dtype == np.uint16)

    def slots(self, num_slots: int, max_len: int) -> KVSlots:
        """KV memory in the layout that `step` reads."""
        return KVSlots(self.shape, num_slots, max_len, torch.float32, "cpu", panel=PANEL)

    def embed(self, ids: Seq[int]) -> Tensor:
        """[n, hidden] of `ids`."""
        return F.embedding(torch.tensor(ids), self.embedding)

    def step(
        self,
        ids: Seq[int],
        audio: Audio,
        spans: Seq[Span],
        slots: KVSlots,
        writers: Seq[Writer | None] = (),
    ) -> Tensor:
        """Feed packed `ids`; logits [sum of num_logits, vocab] float32, only where they are asked
        for.

        A row's result is the same to the last bit whatever rows stand beside it, however its ids
        are cut, and on any number of threads. Raises IndexError for an id that is none of the
        model's.

        writers: one or None per span. A span with one goes on, step after step, until its writer
        has what it wants; its one row of logits is then that of the id which is to be chosen the
        readable way, where there is one.
        """
        if not 0 <= min(ids) <= max(ids) < self.shape.vocab:
            raise IndexError(
                f"an id is none of the model's {self.shape.vocab}: {min(ids)} or {max(ids)}"
            )
        rows = len(ids)
        end = max(span.start + span.n for span in spans)
        end += max((int(writer.lane[WANTED]) for writer in writers if writer), default=0)
        self._reserve(rows, end)
        given = list(ids)
        for first, embeds in audio:
            given[first : first + len(embeds)] = [-1] * len(embeds)  # not looked up
            x = self._x[first * self._wide : (first + len(embeds)) * self._wide].reshape(
                -1, self._wide
            )
            x[:, : self.shape.hidden] = embeds.numpy()
        self._ids[:rows] = given
        if len(spans) >= len(self._where):
            self._make_books(2 * len(spans))
        self._where[: len(spans)] = [(s.slot, s.start, s.first, s.n, s.num_logits) for s in spans]
        logits = torch.empty((sum(span.num_logits for span in spans), self._columns))
        if slots is not self._slots:
            self._point_at(slots)
        self._job.put(3, len(spans), logits.data_ptr(), len(logits))
        self._job.put(32, *self._hold(writers))
        self._job.run(rows, self._crew, self._products(rows, spans))
        return logits[:, : self.shape.vocab]

    def _hold(self, writers: Seq[Writer | None]) -> tuple[int, int]:
        """Addresses of the writers' lanes and of the logits behind the first step's; zeros where
        nobody writes."""
        if not writers:
            return 0, 0
        self._lanes = np.array([address(writer.lane) if writer else 0 for writer in writers])
        if len(writers) > len(self._later):
            self._later = np.zeros((2 * len(writers), self._columns), np.float32)
        return address(self._lanes), address(self._later)

    def _make_books(self, num_spans: int) -> None:
        """Where spans are written, whole and cut."""
        self._where = np.zeros((num_spans, 5), np.int64)
        self._parts = np.zeros((MOST_CHUNKS, num_spans + 1, 5), np.int64)
        self._job.put(0, address(self._where), address(self._parts))

    def _products(self, rows: int, spans: Seq[Span]) -> float:
        """Multiplications of a step, for the crew; none where there are but few rows to share."""
        if rows < SHARED_ROWS:
            return 0
        s = self.shape
        seen = sum(span.n * (span.start + span.n) for span in spans)
        return rows * self._weights.size + 2 * s.layers * s.heads * s.head_dim * seen

    def _reserve(self, rows: int, length: int) -> None:
        """Work memory for `rows` packed rows and slots read up to `length`; grows by doubling,
        never shrinks."""
        s = self.shape
        threads = self._crew.num_threads
        if rows <= self._rows and length <= self._length:
            return
        if rows > self._rows:
            self._rows = rows = max(rows, 2 * self._rows)
            qkv = up((s.heads + 2 * s.kv_heads) * s.head_dim)
            self._x = np.zeros(rows * self._wide, np.float32)
            inner = max(self._wide, s.heads * s.head_dim, s.ffn)
            self._halves = _room(rows * inner, rows * max(qkv, up(2 * s.ffn)))
            queries = num_queries(rows, s.heads // s.kv_heads)
            self._room = attention_room(queries, s.head_dim, threads if rows >= SHARED_ROWS else 1)
            self._ids = np.zeros(rows, np.int64)
            self._job.put(2, address(self._ids))
            self._job.put(23, *(address(array) for array in (self._x, *self._halves)))
            self._job.put(
                26, *(len(half) // rows for half in self._halves), address(self._room), queries
            )
        if length > self._length:
            self._length = length = up(max(length, 2 * self._length, 1024))
            self._angles = self._rotary(length)
            self._job.put(16, *(address(array) for array in self._angles), length)

    def _point_at(self, slots: KVSlots) -> None:
        keys, values = slots.arrays
        self._job.put(19, address(keys), address(values), keys.shape[1], values.shape[3])
        self._slots = slots

    def _rotary(self, length: int) -> tuple[Floats, Floats]:
        """cos and sin [length, head_dim / 2] of every position."""
        d = self.shape.head_dim
        inverse = 1.0 / (self.shape.rope_theta ** (torch.arange(0, d, 2, dtype=torch.float) / d))
        angle = torch.arange(length, dtype=torch.float)[:, None] * inverse
        return angle.cos().numpy(), angle.sin().numpy()


def _room(*sizes: int) -> tuple[Floats, ...]:
    return tuple(np.zeros(size, np.float32) for size in sizes)


def _take_layer(weights: dict[str, Tensor], p: str) -> tuple[list[Tensor], list[Tensor]]:
    """One layer's matrices and vectors, in the order in which `kernels.step` reads them."""

    def take(*names: str) -> Tensor:
        return torch.cat([weights.pop(p + name) for name in names])

    matrices = [
        take(*(f"self_attn.{name}_proj.weight" for name in "qkv")),
        take("self_attn.o_proj.weight"),
        take("mlp.gate_proj.weight", "mlp.up_proj.weight"),
        take("mlp.down_proj.weight"),
    ]
    bias = take(*(f"self_attn.{name}_proj.bias" for name in "qkv"))
    return matrices, [take("input_layernorm.weight"), bias, take("post_attention_layernorm.weight")]


def panels(matrix: Tensor) -> Floats:
    """[out, in] -> flat [panels, in, PANEL], zeros where `out` ends."""
    out, depth = matrix.shape
    padded = np.zeros((up(out), depth), np.float32)
    padded[:out] = matrix.numpy()
    return np.ascontiguousarray(padded.reshape(-1, PANEL, depth).transpose(0, 2, 1)).reshape(-1)


def padded(vector: Tensor) -> Floats:
    padded = np.zeros(up(len(vector)), np.float32)
    padded[: len(vector)] = vector.numpy()
    return padded


def halved(matrices: list[Floats]) -> list[Any]:
    """As float16 bits where that loses nothing in any of them, else as they are."""
    with np.errstate(over="ignore"):
        halves = [m.astype(np.float16) for m in matrices]
    if all(np.array_equal(h.astype(np.float32), m) for h, m in zip(halves, matrices, strict=True)):
        return [h.view(np.uint16) for h in halves]
    return matrices

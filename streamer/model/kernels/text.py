"""The language model on compiled kernels, for small models on a CPU. In: ids and embeddings of
packed rows. Out: logits.

It has the interface of `TextModel` and equals it to 1e-5, in a tenth of its time at one row, since
nothing is dispatched (2026-11). Weights that float16 holds exactly are kept as float16: half the
memory is read, and the bits are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np

from streamer.model.checkpoint.shapes import TextShape
from streamer.model.engines.engine import Audio, Floats, Span
from streamer.model.engines.kv_slots import KVSlots, kv_sizes
from streamer.model.engines.rotary import rotary
from streamer.model.kernels.cells import MOST_CHUNKS, SPAN, TEXT, address
from streamer.model.kernels.helpers import Crew
from streamer.model.kernels.job import Job, attention_room, num_queries, up
from streamer.model.kernels.simd import PANEL
from streamer.model.kernels.threads import the_crew

SHARED_ROWS = 8  # fewer are not worth a second thread: each reads all weights


class FastText:
    """Weights in panels; `step` feeds any number of rows. Not thread-safe: one work memory."""

    def __init__(
        self, weights: Mapping[str, Any], shape: TextShape, crew: Crew | None = None
    ) -> None:
        """weights: float32 arrays by their names in the checkpoint."""
        self.shape = shape
        embedding = np.asarray(weights["model.embed_tokens.weight"])
        head = embedding if shape.tied else np.asarray(weights["lm_head.weight"])
        packed = []
        vectors = []
        for i in range(shape.layers):
            matrices, small = _take_layer(weights, f"model.layers.{i}.")
            packed += [panels(matrix) for matrix in matrices]
            vectors += [padded(vector) for vector in small]
        self._vectors = np.concatenate([*vectors, padded(weights["model.norm.weight"])])
        self._weights, self._head = halved([np.concatenate(packed), panels(head)])
        self._table = np.ascontiguousarray(embedding)
        self._eps = np.array([shape.eps], np.float32)
        self._wide = up(shape.hidden)
        self._columns = up(shape.vocab)
        self._crew = crew or the_crew()
        self._slots: KVSlots | None = None  # those that the job points to
        self._job = Job(shape.layers + 1, TEXT, self._weights)
        self._make_books(8)
        self._job.put(
            layers=shape.layers,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            hidden=shape.hidden,
            ffn=shape.ffn,
            weights=address(self._weights),
            head=address(self._head),
            vectors=address(self._vectors),
            eps=address(self._eps),
            columns=self._columns,
            table=address(self._table),
        )
        self._rows = self._length = 0
        self._reserve(1, PANEL)

    @property
    def is_half(self) -> bool:
        """Whether the weights are kept as float16."""
        return bool(self._weights.dtype == np.uint16)

    def slots(self, num_slots: int, max_len: int) -> KVSlots:
        """KV memory in the layout that `step` reads."""
        sizes = kv_sizes(self.shape, num_slots, max_len, PANEL)
        keys, values = (np.zeros(size, np.float32) for size in sizes)
        return KVSlots(keys, values, num_slots, max_len, PANEL)

    def step(self, ids: Seq[int], audio: Audio, spans: Seq[Span], slots: KVSlots) -> Floats:
        """Feed packed `ids`; logits [sum of num_logits, vocab] float32, only where they are asked
        for.

        A row's result is the same to the last bit whatever rows stand beside it, however its ids
        are cut, and on any number of threads. Raises IndexError for an id that is none of the
        model's.
        """
        if not 0 <= min(ids) <= max(ids) < self.shape.vocab:
            raise IndexError(
                f"an id is none of the model's {self.shape.vocab}: {min(ids)} or {max(ids)}"
            )
        rows = len(ids)
        end = max(span.start + span.n for span in spans)
        self._reserve(rows, end)
        given = list(ids)
        for first, embeds in audio:
            given[first : first + len(embeds)] = [-1] * len(embeds)  # not looked up
            x = self._x[first * self._wide : (first + len(embeds)) * self._wide].reshape(
                -1, self._wide
            )
            x[:, : self.shape.hidden] = embeds
        self._ids[:rows] = given
        if len(spans) >= len(self._where):
            self._make_books(2 * len(spans))
        self._where[: len(spans)] = [(s.slot, s.start, s.first, s.n, s.num_logits) for s in spans]
        num_logits = sum(span.num_logits for span in spans)
        logits = np.empty((num_logits, self._columns), np.float32)
        if slots is not self._slots:
            self._point_at(slots)
        self._job.put(num_spans=len(spans), logits=address(logits), num_logits=num_logits)
        self._job.run(rows, self._crew, self._products(rows, spans))
        return logits[:, : self.shape.vocab]

    def _make_books(self, num_spans: int) -> None:
        """Where spans are written, whole and cut."""
        self._where = np.zeros((num_spans, len(SPAN)), np.int64)
        self._parts = np.zeros((MOST_CHUNKS, num_spans + 1, len(SPAN)), np.int64)
        self._job.put(spans=address(self._where), parts=address(self._parts))

    def _products(self, rows: int, spans: Seq[Span]) -> float:
        """Multiplications of a step, for the crew; none where there are but few rows to share."""
        if rows < SHARED_ROWS:
            return 0
        s = self.shape
        seen = sum(span.n * (span.start + span.n) for span in spans)
        return rows * self._weights.size + 2 * s.layers * s.heads * s.head_dim * seen

    def _reserve(self, rows: int, length: int) -> None:
        """Work memory for `rows` packed rows and slots up to `length`; grows by doubling."""
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
            a_width, b_width = (len(half) // rows for half in self._halves)
            self._job.put(
                ids=address(self._ids),
                x=address(self._x),
                a=address(self._halves[0]),
                b=address(self._halves[1]),
                a_width=a_width,
                b_width=b_width,
                room=address(self._room),
                num_queries=queries,
            )
        if length > self._length:
            self._length = length = up(max(length, 2 * self._length, 1024))
            self._angles = rotary(length, s.head_dim, s.rope_theta)
            cos, sin = map(address, self._angles)
            self._job.put(cos=cos, sin=sin, num_angles=length)

    def _point_at(self, slots: KVSlots) -> None:
        num_slots, length = slots.keys.shape[1], slots.values.shape[3]
        self._job.put(
            keys=address(slots.keys),
            values=address(slots.values),
            num_slots=num_slots,
            length=length,
        )
        self._slots = slots


def _room(*sizes: int) -> tuple[Floats, ...]:
    return tuple(np.zeros(size, np.float32) for size in sizes)


def _take_layer(weights: Mapping[str, Any], p: str) -> tuple[list[Floats], list[Floats]]:
    """One layer's matrices and vectors, in the order in which arithmetic.py reads them."""

    def take(*names: str) -> Floats:
        return np.concatenate([np.asarray(weights[p + name]) for name in names])

    matrices = [
        take(*(f"self_attn.{name}_proj.weight" for name in "qkv")),
        take("self_attn.o_proj.weight"),
        take("mlp.gate_proj.weight", "mlp.up_proj.weight"),
        take("mlp.down_proj.weight"),
    ]
    bias = take(*(f"self_attn.{name}_proj.bias" for name in "qkv"))
    return matrices, [take("input_layernorm.weight"), bias, take("post_attention_layernorm.weight")]


def panels(matrix: Floats) -> Floats:
    """[out, in] -> flat [panels, in, PANEL], zeros where `out` ends."""
    out, depth = matrix.shape
    padded = np.zeros((up(out), depth), np.float32)
    padded[:out] = matrix
    return np.ascontiguousarray(padded.reshape(-1, PANEL, depth).transpose(0, 2, 1)).reshape(-1)


def padded(vector: Floats) -> Floats:
    """The vector, with zeros behind it up to a whole panel."""
    padded = np.zeros(up(len(vector)), np.float32)
    padded[: len(vector)] = vector
    return padded


def halved(matrices: list[Floats]) -> list[Any]:
    """As float16 bits where that loses nothing in any of them, else as they are."""
    with np.errstate(over="ignore"):
        halves = [m.astype(np.float16) for m in matrices]
    if all(np.array_equal(h.astype(np.float32), m) for h, m in zip(halves, matrices, strict=True)):
        return [h.view(np.uint16) for h in halves]
    return matrices

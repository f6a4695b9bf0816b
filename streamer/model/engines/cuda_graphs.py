"""The language model in fixed shapes, for a GPU. In: short rows. Out: logits, by a CUDA graph.

A step of few rows is over on a GPU before Python has sent off half of its 400 operations. So every
length, position and slot is a number in device memory, nothing waits for the host, and each shape
is captured once, then replayed. A row that is shorter than its shape, or a place without a row,
writes into a spare slot that nobody reads.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from streamer.model.checkpoint.shapes import TextShape
from streamer.model.engines.engine import Audio, Floats, Span
from streamer.model.engines.kv_slots import KVSlots
from streamer.model.engines.text import TextModel, torch_slots

NUM_ROWS = (1, 4, 16, 64)
# per row: a draft's step; k + 1 for k = 4 and, with two to spare, for k = 6
NUM_IDS = (1, 5, 9)
SHORTEST = 256  # positions read at least; then twice as many, and so on
WARM_UP = 2  # runs before a capture, in which libraries make what they keep


@dataclass(frozen=True, slots=True)
class Fixed:
    """A shape: `num_rows` places of `num_ids` ids, each reading `length` positions.

    is_compact: place i is slot i, so that keys and values are read where they lie; else they are
    gathered.
    """

    num_rows: int
    num_ids: int
    length: int
    is_compact: bool


class GraphText(TextModel):
    """`TextModel` whose short steps run in fixed shapes, captured where the device is a GPU. Not
    thread-safe.

    Steps that hold embeddings, or more ids in a row than `num_ids` has, run as in `TextModel`. A
    row's result depends on the shape, not on what stands in the other places; `num_ids` of one
    entry makes drafting and verifying alike.
    """

    def __init__(
        self, weights: dict[str, Tensor], shape: TextShape, num_ids: Seq[int] = NUM_IDS
    ) -> None:
        super().__init__(weights, shape)
        self.num_ids = tuple(sorted(num_ids))
        self._steps: dict[Fixed, _Step] = {}
        self._pool: Any = None  # all graphs share their working memory: they never run at once

    def slots(self, num_slots: int, max_len: int) -> KVSlots:
        """KV memory with one spare slot. A model has one: what is captured holds its address."""
        self._steps.clear()
        # graphs hold their address too: they never grow
        self._cos, self._sin = self._rotary(max_len)
        self._slots = torch_slots(self.shape, num_slots, max_len, self.embedding, num_spare=1)
        return self._slots

    def fixed(self, audio: Audio, spans: Seq[Span]) -> Fixed | None:
        """The smallest shape that holds these rows, None where there is none."""
        q = next((n for n in self.num_ids if n >= max(span.n for span in spans)), None)
        if audio or q is None or len(spans) > NUM_ROWS[-1]:
            return None
        rows = next(n for n in self._row_counts() if n >= len(spans))
        length = next(n for n in self._lengths() if n >= max(span.start + span.n for span in spans))
        return Fixed(rows, q, length, max(span.slot for span in spans) < rows)

    def prepare(self) -> int:
        """Capture every shape, so that no stream waits for it. Returns how many there are."""
        *fewer, most = self._row_counts()
        places = [(rows, is_compact) for rows in fewer for is_compact in (True, False)] + [
            (most, True)
        ]
        for rows, is_compact in places:
            for q in self.num_ids:
                for length in self._lengths():
                    self._step_of(Fixed(rows, q, length, is_compact))
        return len(self._steps)

    @torch.inference_mode()
    def step(self, ids: Seq[int], audio: Audio, spans: Seq[Span], slots: KVSlots) -> Floats:
        """Feed packed `ids`; logits [sum of num_logits, vocab] float32."""
        fixed = self.fixed(audio, spans) if slots is self._slots else None
        if fixed is None:
            return super().step(ids, audio, spans, slots)
        places = [span.slot if fixed.is_compact else i for i, span in enumerate(spans)]
        table = [[0] * fixed.num_ids + [slots.spare, 0, 0] for _ in range(fixed.num_rows)]
        for place, s in zip(places, spans, strict=True):
            padding = [0] * (fixed.num_ids - s.n)
            table[place] = [*ids[s.first : s.first + s.n], *padding, s.slot, s.start, s.n]
        logits = self._step_of(fixed).run(torch.tensor(table))
        wanted = [
            logits[p, s.n - s.num_logits : s.n]
            for p, s in zip(places, spans, strict=True)
            if s.num_logits
        ]
        # copies: the next replay overwrites them
        return (torch.cat(wanted) if wanted else logits.new_empty((0, 0))).float().cpu().numpy()

    def forward_fixed(self, table: Tensor, fixed: Fixed) -> Tensor:
        """Logits [rows, q, vocab] float32 of `table` [rows, q + 3] int64: q ids, slot, start, how
        many ids are real.

        Only operations whose shapes are known beforehand, and none that waits for the host.
        """
        q = fixed.num_ids
        s = self.shape
        slots = self._slots
        ids = table[:, :q]
        slot = table[:, q]
        start = table[:, q + 1, None]
        n = table[:, q + 2, None]
        place = torch.arange(q, device=table.device)
        position = (start + place).clamp(max=fixed.length - 1)
        into = torch.where(place < n, slot[:, None], slots.spare)
        at = torch.where(place < n, position, place)
        mask = self._mask(position, fixed.length)
        cos = self._cos[position].flatten(0, 1)
        sin = self._sin[position].flatten(0, 1)
        x = F.embedding(ids, self.embedding).flatten(0, 1)
        for i, layer in enumerate(self.layers):
            normed = self._rms(x, layer.norm_in)
            queries, k, v = self._heads(F.linear(normed, layer.qkv, layer.qkv_bias), cos, sin)
            slots.keys[i][into, :, at] = k.view(-1, q, s.kv_heads, s.head_dim)
            slots.values[i][into, :, at] = v.view(-1, q, s.kv_heads, s.head_dim)
            keys, values = (_of(part[i], slot, fixed) for part in (slots.keys, slots.values))
            x = x + F.linear(self._attend_all(queries, keys, values, mask, q), layer.out)
            gate, up = F.linear(self._rms(x, layer.norm_mlp), layer.gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return self.logits(x).view(-1, q, s.vocab)

    def _attend_all(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, q: int
    ) -> Tensor:
        """[rows * q, heads * head_dim]; head groups are folded into queries: no copies of keys."""
        s = self.shape
        group = self._group
        folded = queries.reshape(-1, q, s.kv_heads, group, s.head_dim).permute(0, 2, 3, 1, 4)
        folded = folded.reshape(-1, s.kv_heads, group * q, s.head_dim)
        out = F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask)
        out = out.view(-1, s.kv_heads, group, q, s.head_dim).permute(0, 3, 1, 2, 4)
        return out.reshape(-1, s.heads * s.head_dim)

    def _mask(self, position: Tensor, length: int) -> Tensor:
        """[rows, 1, group * q, length], added to scores: 0 up to the position, else -inf."""
        later = torch.arange(length, device=position.device) > position[..., None]
        mask = torch.zeros(later.shape, dtype=self.embedding.dtype, device=position.device)
        return mask.masked_fill_(later, -torch.inf).repeat(1, self._group, 1)[:, None]

    def _row_counts(self) -> list[int]:
        """Up to as many as there are slots: then every place is a slot."""
        most = min(self._slots.num_slots, NUM_ROWS[-1])
        return [rows for rows in NUM_ROWS if rows < most] + [most]

    def _lengths(self) -> list[int]:
        lengths = []
        most = self._slots.max_len
        length = SHORTEST
        while length < most:
            lengths.append(length)
            length *= 2
        return [*lengths, most]

    def _step_of(self, fixed: Fixed) -> _Step:
        if fixed not in self._steps:
            self._steps[fixed] = _Step(self, fixed, self._pool)
            self._pool = self._steps[fixed].pool
        return self._steps[fixed]


class _Step:
    """One shape: its input on the device and, on a GPU, its graph."""

    def __init__(self, text: GraphText, fixed: Fixed, pool: Any) -> None:
        self._text = text
        self._fixed = fixed
        self.pool = pool
        empty = torch.tensor([[0] * fixed.num_ids + [text._slots.spare, 0, 0]])
        self._table = empty.repeat(fixed.num_rows, 1).to(text.embedding.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        if self._table.is_cuda:
            self._capture()

    def run(self, table: Tensor) -> Tensor:
        """Logits [rows, q, vocab] float32 of `table`; those of a GPU stand until the next run."""
        # from pageable memory: it is read before this returns
        self._table.copy_(table, non_blocking=True)
        if self._graph is None:
            return self._text.forward_fixed(self._table, self._fixed)
        self._graph.replay()
        return self._logits

    @torch.inference_mode()
    def _capture(self) -> None:
        """As torch.cuda.graph asks: first on another stream, with no real row in it."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                self._text.forward_fixed(self._table, self._fixed)
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=self.pool, capture_error_mode="thread_local"):
            self._logits = self._text.forward_fixed(self._table, self._fixed)
        self.pool = self._graph.pool()


def _of(part: Tensor, slot: Tensor, fixed: Fixed) -> Tensor:
    """[rows, kv_heads, length, head_dim] of one layer's keys or values [slots, ...]."""
    read = part[:, :, : fixed.length]
    return read[: fixed.num_rows] if fixed.is_compact else read.index_select(0, slot)

"""Language model and audio tower in 8 or 4 bits per weight.

They are for models that spend a step on reading their weights. The language model's layers and the
tower's products run on compiled kernels (layers.py), and torch runs the rest. A row's bits depend
on that row alone, so mode `exact` equals `cloud` to the last bit, as with engine `stable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
from torch import Tensor

from streamer.extras.large.layers import PHASES, feed
from streamer.extras.large.matrix import Matrix, by_all, num_threads, room_for
from streamer.model.checkpoint.layout import EMBEDDING, TextShape
from streamer.model.engines.engine import KVSlots, Span
from streamer.model.engines.models import AudioTower, TextModel
from streamer.model.kernels.models import slots_of

Part = Mapping[str, Any]  # of a model: tensors, and matrices in few bits
REST = "rest"  # the part without matrices: embedding, convolutions, the tower's ends


class FewBitsText(TextModel):
    """A row's bits depend on its own ids alone: not on their cut, nor on the rows beside it."""

    def __init__(self, parts: Mapping[str, Part], shape: TextShape) -> None:
        self.shape = shape
        self.embedding = parts[REST][EMBEDDING]
        self.norm, self.head = parts["head"]["norm"], parts["head"]["head"]
        self.layers = [parts[f"text.{i}"] for i in range(shape.layers)]
        # it holds addresses: `layers` keeps the arrays alive
        self._table = np.array(
            [
                [of["norm_in"].data_ptr(), of["norm_mlp"].data_ptr()]
                + of["qkv"].addresses(of["qkv_bias"])
                + [at for name in ("out", "gate_up", "down") for at in of[name].addresses()]
                for of in self.layers
            ]
        )

    def slots(self, num_slots: int, max_len: int) -> KVSlots:
        """KV memory in float32, as the compiled attention reads it."""
        return slots_of(self.shape, num_slots, max_len)

    def embed(self, ids: Seq[int]) -> Tensor:
        """[n, hidden] float32 of `ids`."""
        return super().embed(ids).float()

    def forward(self, x: Tensor, spans: Seq[Span], slots: KVSlots) -> Tensor:
        """As `TextModel.forward`, in place."""
        s, rows, first = self.shape, len(x), self.layers[0]["qkv"]
        where = np.array([(at.slot, at.start, at.first, at.n, at.num_logits) for at in spans])
        inner = s.heads * s.head_dim
        widest = max(inner + 2 * s.kv_heads * s.head_dim, 2 * s.ffn)
        given, wide = (
            np.empty(rows * width, np.float32) for width in (max(s.hidden, inner, s.ffn), widest)
        )
        change = np.zeros(rows * s.hidden, np.float32)
        rooms = given, wide, change, room_for(rows, (s.hidden, inner, s.ffn), first.form[0])
        sizes = (s.heads, s.kv_heads, s.head_dim, s.hidden, s.ffn, slots.values.shape[3])
        own = x.numpy()
        assert own.flags.c_contiguous
        of, eps = first.data.numpy().reshape(-1)[:0], np.float32(s.eps)
        kept = slots.keys.reshape(-1), slots.values.reshape(-1)
        all_given = own.reshape(-1), where, sizes, eps, self._table, of, slots.angles, kept, rooms
        by_all(feed, len(self.layers) * PHASES, num_threads(), *all_given, first.form)
        own += change.reshape(own.shape)
        return x

    def _linear(self, x: Tensor, weight: Matrix, bias: Tensor | None = None) -> Tensor:
        return weight.times(x, bias)


class FewBitsTower(AudioTower):
    """`encode` turns windows into embeddings; convolutions and the projection are float32."""

    windows_at_once = 1  # a window has rows enough for every thread

    def _linear(self, x: Tensor, weight: Matrix, bias: Tensor) -> Tensor:
        return weight.times(x.flatten(0, -2), bias).view(*x.shape[:-1], -1)

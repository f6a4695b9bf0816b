"""Language model and audio tower in 8 or 4 bits per weight.

They are for models that spend a step on reading their weights. The language model's layers and the
tower's products run on compiled kernels (products.py), and torch runs the rest. A row's bits depend
on that row alone, so mode `exact` equals `cloud` to the last bit, as with engine `stable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import torch
from torch import Tensor

from streamer.extras.large.matrix import Matrix
from streamer.extras.large.parts import REST, Part
from streamer.extras.large.products import Layers, Weights
from streamer.model.checkpoint.layout import EMBEDDING, AudioShape, TextShape
from streamer.model.engines.engine import Floats, KVSlots, Span, kv_sizes, rotary, sinusoids
from streamer.model.engines.models import AudioTower, Layer, TextModel, own_weights
from streamer.model.kernels.attention import COUNT, START
from streamer.model.kernels.library import PANEL

Parts = Mapping[str, Part]


class FewBitsText(TextModel):
    """A row's bits depend on its own ids alone: not on their cut, nor on the rows beside it."""

    def __init__(self, parts: Parts, shape: TextShape) -> None:
        self.shape = shape
        self.embedding = parts[REST][EMBEDDING]
        self.norm, self.head = parts["head"]["norm"], parts["head"]["head"]
        layers = [_weights(Layer(**parts[f"text.{i}"])) for i in range(shape.layers)]
        self._layers = Layers(shape, layers)
        self._angles_of = rotary(0, shape.head_dim, shape.rope_theta)

    def slots(self, num_slots: int, max_len: int) -> KVSlots:
        """KV memory in float32, as the compiled attention reads it."""
        keys, values = kv_sizes(self.shape, num_slots, max_len, PANEL)
        return KVSlots(
            np.zeros(keys, np.float32), np.zeros(values, np.float32), num_slots, max_len, PANEL
        )

    def embed(self, ids: Seq[int]) -> Tensor:
        """[n, hidden] float32 of `ids`."""
        return super().embed(ids).float()

    def forward(self, x: Tensor, spans: Seq[Span], slots: KVSlots) -> Tensor:
        """As `TextModel.forward`, in place."""
        where = np.array([(s.slot, s.start, s.first, s.n, s.num_logits) for s in spans])
        angles = self._angles_to(int((where[:, START] + where[:, COUNT]).max()))
        kept = slots.keys.reshape(-1), slots.values.reshape(-1)
        self._layers.feed(x.numpy(), where, angles, kept, slots.values.shape[3])
        return x

    def _linear(self, x: Tensor, weight: Matrix, bias: Tensor | None = None) -> Tensor:
        return weight.times(x, bias)

    def _angles_to(self, end: int) -> tuple[Floats, Floats]:
        """cos and sin of positions up to `end`; the tables grow by doubling."""
        length = len(self._angles_of[0])
        if end > length:
            shape = self.shape
            self._angles_of = rotary(max(end, 2 * length, 1024), shape.head_dim, shape.rope_theta)
        return self._angles_of


def _weights(of: Layer) -> Weights:
    norm_in, norm_mlp = of.norm_in.numpy(), of.norm_mlp.numpy()
    matrices = of.out.given(), norm_mlp, of.gate_up.given(), of.down.given()
    return norm_in, of.qkv.given(of.qkv_bias), *matrices


class FewBitsTower(AudioTower):
    """`encode` turns windows into embeddings; convolutions and the projection are float32."""

    windows_at_once = 1  # a window has rows enough for every thread

    def __init__(self, parts: Parts, shape: AudioShape) -> None:
        self.shape = shape
        self.window_frames = 2 * shape.n_window
        self._w = own_weights(parts[REST])
        for i in range(shape.layers):
            self._w |= {f"layers.{i}.{name}": of for name, of in parts[f"tower.{i}"].items()}
        self._positions = torch.from_numpy(sinusoids(shape.n_window, shape.width))

    def _linear(self, x: Tensor, weight: str, bias: str) -> Tensor:
        matrix: Any = self._w[weight]
        found: Tensor = matrix.times(x.flatten(0, -2), self._w[bias])
        return found.view(*x.shape[:-1], -1)

"""Language model and tower in 8 or 4 bits per weight, `--engine int8`, `int4`. In: rows, windows.
Out: hidden states, embeddings.

For models so large that reading the weights is the step. Products are the compiled kernel's
(kernels/few_bits.py), the rest is torch's. A row's bits depend on that row alone, so, as in engine
`stable`, exact mode equals the cloud to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

import torch
from torch import Tensor

from streamer.model.checkpoint.room import EMBEDDING
from streamer.model.checkpoint.shapes import AudioShape, TextShape
from streamer.model.engines.kv_slots import KVSlots
from streamer.model.engines.rotary import rotary, sinusoids
from streamer.model.engines.stable import one_by_one
from streamer.model.engines.text import Layer, TextModel, torch_slots
from streamer.model.engines.tower import AudioTower, own_weights
from streamer.model.few_bits.matrix import Matrix
from streamer.model.few_bits.parts import REST, Part

Parts = Mapping[str, Part]


class FewBitsText(TextModel):
    """A row's bits depend on its own ids alone: not on their cut, nor on the rows beside it."""

    def __init__(self, parts: Parts, shape: TextShape) -> None:
        self.shape = shape
        self.embedding = parts[REST][EMBEDDING]
        self.norm, self.head = parts["head"]["norm"], parts["head"]["head"]
        self.layers = [Layer(**parts[f"text.{i}"]) for i in range(shape.layers)]
        self._group = shape.heads // shape.kv_heads
        self._cos, self._sin = self._rotary(0)

    def slots(self, num_slots: int, max_len: int) -> KVSlots:
        """KV memory in float32."""
        return torch_slots(self.shape, num_slots, max_len, self.norm)

    def embed(self, ids: Seq[int]) -> Tensor:
        """[n, hidden] float32 of `ids`."""
        return super().embed(ids).float()

    def _linear(self, x: Tensor, weight: Matrix, bias: Tensor | None = None) -> Tensor:
        return weight.times(x, bias)

    def _weigh(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, n: int
    ) -> Tensor:
        return one_by_one(queries, keys, values, n)

    def _rotary(self, length: int) -> tuple[Tensor, Tensor]:
        tables = rotary(length, self.shape.head_dim, self.shape.rope_theta)
        cos, sin = (torch.from_numpy(table).repeat(1, 2)[:, None] for table in tables)
        return cos, sin


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

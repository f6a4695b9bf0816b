"""Language model and tower in 8 or 4 bits per weight, `--engine int8`, `int4`. In: rows, windows.
Out: hidden states, embeddings.

For models so large that reading the weights is the step. ONNX Runtime does the products
(engines/few_bits_graphs.py); attention is torch's. Its kernels give
a row the same bits whatever rows stand beside it, so long as their number is even: rows are filled
up to that. So, as in engine `stable`, exact mode equals the cloud to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq

import torch
import torch.nn.functional as F
from torch import Tensor

from streamer.model.checkpoint.shapes import AudioShape, TextShape
from streamer.model.engines.engine import Span
from streamer.model.engines.kv_slots import KVSlots
from streamer.model.engines.rotary import rotary, sinusoids
from streamer.model.engines.stable import one_by_one
from streamer.model.engines.text import TextModel, torch_slots
from streamer.model.engines.tower import AudioTower, own_weights
from streamer.model.runtime.onnx import with_shared_threads

_NUM_THREADS = torch.get_num_threads()


class Part:
    """A graph that runs. Raises what ONNX Runtime raises for bytes that are no model of its."""

    def __init__(self, model: bytes) -> None:
        runtime = with_shared_threads(_NUM_THREADS)
        options = runtime.SessionOptions()
        options.enable_cpu_mem_arena = False  # it would keep what the longest step took
        options.log_severity_level = 4
        self._session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def run(self, **inputs: Tensor) -> Tensor:
        """[n, columns] of inputs [n, ...], n even."""
        given = {name: x.numpy() for name, x in inputs.items()}
        return torch.from_numpy(self._session.run(None, given)[0])


Parts = Mapping[str, Part]


def even(x: Tensor) -> Tensor:
    """One row of zeros more where their number is odd."""
    return F.pad(x, (0, 0, 0, len(x) % 2)).contiguous()


class FewBitsText(TextModel):
    """A row's bits depend on its own ids alone: not on their cut, nor on the rows beside it."""

    def __init__(self, parts: Parts, embedding: Tensor, shape: TextShape) -> None:
        self.shape = shape
        self.embedding = embedding
        self._head = parts["head"]
        self._layers = [
            (parts[f"text.{i}.before"], parts[f"text.{i}.after"]) for i in range(shape.layers)
        ]
        self._group = shape.heads // shape.kv_heads
        self._cos, self._sin = self._rotary(0)

    def slots(self, num_slots: int, max_len: int) -> KVSlots:
        """KV memory in float32."""
        return torch_slots(self.shape, num_slots, max_len, torch.empty(0))

    def embed(self, ids: Seq[int]) -> Tensor:
        """[n, hidden] float32 of `ids`."""
        return super().embed(ids).float()

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, vocab] float32 of hidden states [n, hidden] that `forward` returned."""
        return self._head.run(x=even(hidden))[: len(hidden)]

    def forward(self, x: Tensor, spans: Seq[Span], slots: KVSlots) -> Tensor:
        """As `TextModel.forward`."""
        num = len(x)
        x = even(x)
        cos, sin = self._angles(spans)
        for i, (before, after) in enumerate(self._layers):
            q, k, v = self._heads(before.run(x=x)[:num], cos, sin)
            attended = [
                self._attend(q, k, v, span, None, slots.keys[i], slots.values[i]) for span in spans
            ]
            x = after.run(attended=even(torch.cat(attended)), x=x)
        return x[:num]

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

    def __init__(self, parts: Parts, weights: Mapping[str, Tensor], shape: AudioShape) -> None:
        self.shape = shape
        self.window_frames = 2 * shape.n_window
        self._w = own_weights(weights)
        self._layers = {
            f"layers.{i}.": (parts[f"tower.{i}.before"], parts[f"tower.{i}.after"])
            for i in range(shape.layers)
        }
        self._positions = torch.from_numpy(sinusoids(shape.n_window, shape.width))

    def _layer(self, x: Tensor, p: str) -> Tensor:
        before, after = self._layers[p]
        batch, length, width = x.shape
        num = batch * length
        flat = even(x.reshape(num, width))
        qkv = before.run(x=flat)[:num].view(batch, length, 3, self.shape.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(num, width)
        return after.run(attended=even(attended), x=flat)[:num].view(batch, length, width)

"""The audio tower as a function of its weights. In: log-mel [B, mels, T]. Out: embeddings.

Equal to `Qwen2_5OmniAudioEncoder` window by window
(transformers/models/qwen2_5_omni/modeling_qwen2_5_omni.py); windows of 2 * n_window frames never
see each other, so they may be encoded as they come or in one batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from streamer.model.checkpoint.shapes import AudioShape
from streamer.model.engines.engine import Floats, sinusoids


def own_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tower's among a model's, without their prefix."""
    prefix = "audio_tower."
    return {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}


class AudioTower:
    """`encode` turns windows into embeddings, 25 per second of audio."""

    windows_at_once = 8  # four cost 2.8 times one (2026-11, one thread)

    def __init__(self, weights: dict[str, Tensor], shape: AudioShape) -> None:
        self.shape = shape
        self.window_frames = 2 * shape.n_window
        self._w = own_weights(weights)
        for i in range(shape.layers):
            self._fuse(f"layers.{i}.self_attn.")
        self._positions = torch.from_numpy(sinusoids(shape.n_window, shape.width)).to(
            self._w["conv1.weight"]
        )

    @torch.inference_mode()
    def encode(self, features: Floats) -> Tensor:
        """[B, mels, T] float32, T <= window_frames -> [B, n, output], on the model's device."""
        w = self._w
        x = torch.as_tensor(features).to(w["conv1.weight"])
        x = F.gelu(F.conv1d(x, w["conv1.weight"], w["conv1.bias"], padding=1))
        x = F.gelu(F.conv1d(x, w["conv2.weight"], w["conv2.bias"], stride=2, padding=1)).transpose(
            1, 2
        )
        x = x + self._positions[: x.shape[1]]
        for i in range(self.shape.layers):
            x = self._layer(x, f"layers.{i}.")
        n = x.shape[1] // 2
        x = (x[:, 0 : 2 * n : 2] + x[:, 1 : 2 * n : 2]) / 2
        return F.linear(self._norm(x, "ln_post"), w["proj.weight"], w["proj.bias"])

    def _layer(self, x: Tensor, p: str) -> Tensor:
        batch, length, _ = x.shape
        normed = self._norm(x, p + "self_attn_layer_norm")
        qkv = self._linear(normed, p + "self_attn.qkv", p + "self_attn.bias")
        q, k, v = qkv.view(batch, length, 3, self.shape.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        out = p + "self_attn.out_proj"
        flat = attended.reshape(batch, length, -1)
        x = x + self._linear(flat, out + ".weight", out + ".bias")
        normed = self._norm(x, p + "final_layer_norm")
        inner = F.gelu(self._linear(normed, p + "fc1.weight", p + "fc1.bias"))
        return x + self._linear(inner, p + "fc2.weight", p + "fc2.bias")

    def _linear(self, x: Tensor, weight: str, bias: str) -> Tensor:
        return F.linear(x, self._w[weight], self._w[bias])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (x.shape[-1],), self._w[name + ".weight"], self._w[name + ".bias"])

    def _fuse(self, p: str) -> None:
        """q, k and v as one matrix; k has no bias in the checkpoint."""
        w = self._w
        q_bias = w.pop(p + "q_proj.bias")
        v_bias = w.pop(p + "v_proj.bias")
        w[p + "qkv"] = torch.cat([w.pop(f"{p}{name}_proj.weight") for name in "qkv"])
        w[p + "bias"] = torch.cat([q_bias, torch.zeros_like(q_bias), v_bias])

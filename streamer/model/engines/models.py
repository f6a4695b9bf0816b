"""The language model and the audio tower as functions of their weights, on torch.

Equal to `Qwen2_5OmniThinkerTextModel` and `Qwen2_5OmniAudioEncoder`
(transformers/models/qwen2_5_omni/modeling_qwen2_5_omni.py) to 1e-5 in fp32. They leave out module
calls, mask building, cache objects and copies of the grouped keys. Measured 2026-11 on a model of
4 M parameters: a step of one id takes 1.6 to 2.2 ms against 3.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

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

Weights = dict[str, Tensor]
Layer = Mapping[str, Any]  # of TextShape.layer or AudioShape.layer; matrices may have another form


class TextModel:
    """Weights of the text model, fused per layer; `forward` feeds any number of rows at once."""

    def __init__(self, weights: Weights, shape: TextShape) -> None:
        self.shape = shape
        self.embedding = weights[EMBEDDING]
        self.norm = weights["model.norm.weight"]
        self.head = self.embedding if shape.tied else weights["lm_head.weight"]
        self.layers: list[Layer] = layers_of(weights, shape)
        self._group = shape.heads // shape.kv_heads

    def slots(self, num_slots: int, max_len: int) -> KVSlots:
        """KV memory of the weights' type, in the layout that `forward` reads."""
        sizes = kv_sizes(self.shape, num_slots, max_len)
        keys, values = (self.embedding.new_zeros(size) for size in sizes)
        tables = rotary(max_len, self.shape.head_dim, self.shape.rope_theta)
        cos, sin = (
            torch.from_numpy(table).repeat(1, 2)[:, None].to(self.embedding) for table in tables
        )
        return KVSlots(keys, values, (cos, sin), num_slots, max_len)

    def embed(self, ids: Seq[int]) -> Tensor:
        """[n, hidden] of `ids`."""
        return F.embedding(torch.tensor(ids, device=self.embedding.device), self.embedding)

    @torch.inference_mode()
    def step(self, ids: Seq[int], audio: Audio, spans: Seq[Span], slots: KVSlots) -> Floats:
        """Feed packed `ids`; logits [sum of num_logits, vocab] float32."""
        x = self.embed(ids)
        for first, embeds in audio:
            x[first : first + len(embeds)] = embeds
        x = self.forward(x, spans, slots)
        wanted = [slice(s.first + s.n - s.num_logits, s.first + s.n) for s in spans if s.num_logits]
        if not wanted:
            return np.empty((0, 0), np.float32)
        # [:1] of one row or a gather of many: the head is the widest product.
        x = x[wanted[0]] if len(wanted) == 1 else torch.cat([x[rows] for rows in wanted])
        return self._linear(self._rms(x, self.norm), self.head).float().cpu().numpy()

    def forward(self, x: Tensor, spans: Seq[Span], slots: KVSlots) -> Tensor:
        """Feed packed embeddings `x` [N, hidden]; writes keys and values into `slots`; returns [N,
        hidden].

        Positions are a plain arange per row (audio-only: the three mrope rows are equal). Each row
        attends to its own slot alone, so its result does not depend on the company it keeps beyond
        matrix rounding.
        """
        at = torch.cat([torch.arange(span.start, span.start + span.n) for span in spans])
        cos, sin = (table[at.to(table.device)] for table in slots.angles)
        masks = [_mask(span, x, self._group) for span in spans]
        for i, layer in enumerate(self.layers):
            normed = self._rms(x, layer["norm_in"])
            qkv = self._linear(normed, layer["qkv"], layer["qkv_bias"])
            q, k, v = self._heads(qkv, cos, sin)
            attended = [
                self._attend(q, k, v, span, mask, slots.keys[i], slots.values[i])
                for span, mask in zip(spans, masks, strict=True)
            ]
            both = attended[0] if len(attended) == 1 else torch.cat(attended)
            x = x + self._linear(both, layer["out"])
            mixed = self._linear(self._rms(x, layer["norm_mlp"]), layer["gate_up"])
            gate, up = mixed.chunk(2, dim=-1)
            x = x + self._linear(F.silu(gate) * up, layer["down"])
        return x

    def _linear(self, x: Tensor, weight: Any, bias: Tensor | None = None) -> Tensor:
        return F.linear(x, weight, bias)

    def _rms(self, x: Tensor, weight: Tensor) -> Tensor:
        """As Qwen2RMSNorm; on a CPU F.rms_norm takes three times as long for a row (2026-11)."""
        wide = x.float()
        scale = (wide * wide).mean(-1, keepdim=True).add_(self.shape.eps).rsqrt_()
        return weight * (wide * scale).to(x.dtype)

    def _heads(self, qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[N, (h + 2 kv) * d] -> q [N, h, d], k and v [N, kv, d]; q and k rotated, in one go."""
        s = self.shape
        qk, v = qkv.view(qkv.shape[0], -1, s.head_dim).split(
            (s.heads + s.kv_heads, s.kv_heads), dim=1
        )
        q, k = _rotate(qk, cos, sin).split((s.heads, s.kv_heads), dim=1)
        return q, k, v

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        span: Span,
        mask: Tensor | None,
        keys: Tensor,
        values: Tensor,
    ) -> Tensor:
        """One row's attention, [n, heads * head_dim]; head groups are folded: no copies."""
        s = self.shape
        end = span.start + span.n
        here = slice(span.first, span.first + span.n)
        keys[span.slot, :, span.start : end] = k[here].transpose(0, 1)
        values[span.slot, :, span.start : end] = v[here].transpose(0, 1)
        group = self._group
        folded = q[here].view(span.n, s.kv_heads, group, s.head_dim).permute(1, 2, 0, 3)
        folded = folded.reshape(1, s.kv_heads, group * span.n, s.head_dim)
        out = self._weigh(
            folded, keys[span.slot, None, :, :end], values[span.slot, None, :, :end], mask, span.n
        )
        out = out.view(s.kv_heads, group, span.n, s.head_dim).permute(2, 0, 1, 3)
        return out.reshape(span.n, s.heads * s.head_dim)

    def _weigh(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, n: int
    ) -> Tensor:
        """Attention of the last `n` positions; queries [1, kv_heads, group * n, head_dim]."""
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)


def layers_of(weights: Weights, shape: TextShape | AudioShape) -> list[Layer]:
    """Each layer's arrays; its tensors go from `weights` as they are joined."""
    return [dict(arrays_of(weights.pop, shape, i)) for i in range(shape.layers)]


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of [N, h, d] (the "rotate half" form of Qwen2)."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def _mask(span: Span, x: Tensor, group: int) -> Tensor | None:
    """[group * n, start + n], added to the scores: 0 where kv_index <= position, else -inf; none
    for n = 1.

    Once per step, not once per layer, and not boolean: the attention would turn that into this,
    every time.
    """
    if span.n == 1:
        return None
    end = span.start + span.n
    later = (
        torch.arange(end, device=x.device) > torch.arange(span.start, end, device=x.device)[:, None]
    )
    return (
        torch.zeros(later.shape, dtype=x.dtype, device=x.device)
        .masked_fill_(later, -torch.inf)
        .repeat(group, 1)
    )


SIZES = (15, 7, 3)  # rows at once, tried in this order; one by one where none of them holds


class StableText(TextModel):
    """A row's bits depend on its own ids alone: not on their cut, nor on the rows beside it."""

    def __init__(self, weights: Weights, shape: TextShape) -> None:
        super().__init__(weights, shape)
        first = self.layers[0]
        products = [*(w for w in first.values() if w.ndim == 2), self.head]
        self.rows_at_once = next((n for n in SIZES if all(agree(m, n) for m in products)), 1)

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.rows_at_once > 1 and 2 <= len(x) <= self.rows_at_once:
            return F.linear(x, weight, bias)
        return torch.cat([self._few(part, weight, bias) for part in x.split(self.rows_at_once)])

    def _few(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """One row stands twice: alone it would be a product of another kind."""
        if self.rows_at_once > 1 and len(x) == 1:
            return F.linear(x.repeat(2, 1), weight, bias)[:1]
        return F.linear(x, weight, bias)

    def _weigh(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, n: int
    ) -> Tensor:
        return one_by_one(queries, keys, values, n)


def one_by_one(queries: Tensor, keys: Tensor, values: Tensor, n: int) -> Tensor:
    """Attention of the last `n` positions, each as if it were the last, as `_weigh` takes it."""
    if n == 1:
        return F.scaled_dot_product_attention(queries, keys, values)
    end = keys.shape[2]
    by_position = queries.unflatten(2, (-1, n))
    parts = []
    for i in range(n):
        read = slice(0, end - n + i + 1)
        one = by_position[:, :, :, i].contiguous()
        parts.append(F.scaled_dot_product_attention(one, keys[:, :, read], values[:, :, read]))
    return torch.stack(parts, dim=3).flatten(2, 3)


@torch.inference_mode()
def agree(weight: Tensor, most: int) -> bool:
    """Whether 2 to `most` rows give each row the same bits."""
    x = torch.randn(most, weight.shape[1], generator=torch.Generator().manual_seed(0)).to(weight)
    wanted = torch.cat([F.linear(x[[i, i]], weight)[:1] for i in range(most)])
    return all(torch.equal(F.linear(x[:n], weight), wanted[:n]) for n in range(2, most + 1))


class AudioTower:
    """`encode` turns windows into embeddings, 25 per second of audio. Windows never see each other,
    so they may be encoded as they come or in one batch."""

    windows_at_once = 8  # four cost 2.8 times one (2026-11, one thread)

    def __init__(
        self, weights: Weights, shape: AudioShape, layers: Seq[Layer] | None = None
    ) -> None:
        """layers: those that are not in `weights`."""
        self.shape = shape
        self.window_frames = 2 * shape.n_window
        self._ends = {name.removeprefix(shape.prefix): weights[name] for name in shape.ends()}
        self._layers = layers or layers_of(weights, shape)
        positions = torch.from_numpy(sinusoids(shape.n_window, shape.width))
        self._positions = positions.to(self._ends["conv1.weight"])

    @torch.inference_mode()
    def encode(self, features: Floats) -> Tensor:
        """[B, mels, T] float32, T <= window_frames -> [B, n, output], on the model's device."""
        w = self._ends
        x = torch.as_tensor(features).to(w["conv1.weight"])
        x = F.gelu(F.conv1d(x, w["conv1.weight"], w["conv1.bias"], padding=1))
        x = F.gelu(F.conv1d(x, w["conv2.weight"], w["conv2.bias"], stride=2, padding=1))
        x = x.transpose(1, 2)
        x = x + self._positions[: x.shape[1]]
        for layer in self._layers:
            x = self._layer(x, layer)
        n = x.shape[1] // 2
        x = (x[:, 0 : 2 * n : 2] + x[:, 1 : 2 * n : 2]) / 2
        x = F.layer_norm(x, x.shape[-1:], w["ln_post.weight"], w["ln_post.bias"])
        return F.linear(x, w["proj.weight"], w["proj.bias"])

    def _layer(self, x: Tensor, w: Layer) -> Tensor:
        batch, length, width = x.shape
        normed = F.layer_norm(x, (width,), w["norm_in"], w["norm_in_bias"])
        qkv = self._linear(normed, w["qkv"], w["qkv_bias"])
        q, k, v = qkv.view(batch, length, 3, self.shape.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = x + self._linear(attended.reshape(batch, length, -1), w["out"], w["out_bias"])
        normed = F.layer_norm(x, (width,), w["norm_mlp"], w["norm_mlp_bias"])
        inner = F.gelu(self._linear(normed, w["up"], w["up_bias"]))
        return x + self._linear(inner, w["down"], w["down_bias"])

    def _linear(self, x: Tensor, weight: Any, bias: Tensor) -> Tensor:
        return F.linear(x, weight, bias)

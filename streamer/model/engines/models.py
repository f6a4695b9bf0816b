"""The language model and the audio tower as functions of their weights, on torch.

Equal to `Qwen2_5OmniThinkerTextModel` and `Qwen2_5OmniAudioEncoder`
(transformers/models/qwen2_5_omni/modeling_qwen2_5_omni.py) to 1e-5 in fp32. They leave out module
calls, mask building, cache objects and copies of the grouped keys. Measured 2026-11 on a model of
4 M parameters: a step of one id takes 1.6 to 2.2 ms against 3.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from streamer.model.checkpoint.layout import AudioShape, TextShape
from streamer.model.engines.engine import Audio, Floats, KVSlots, Span, kv_sizes, rotary, sinusoids


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of the text model; a subclass may keep its matrices in a form of its own."""

    norm_in: Tensor
    # [(heads + 2 kv_heads) * head_dim, hidden], as `_pack` keeps it; so are out, gate_up and
    # down
    qkv: Any
    qkv_bias: Tensor
    out: Any
    norm_mlp: Tensor
    gate_up: Any  # [2 * ffn, hidden]
    down: Any


class TextModel:
    """Weights of the text model, fused per layer; `forward` feeds any number of rows at once."""

    def __init__(self, weights: dict[str, Tensor], shape: TextShape) -> None:
        self.shape = shape
        self.embedding = weights["model.embed_tokens.weight"]
        self.norm = weights["model.norm.weight"]
        self.head = self._pack(self.embedding if shape.tied else weights["lm_head.weight"])
        self.layers = [self._fuse(weights, f"model.layers.{i}.") for i in range(shape.layers)]
        self._group = shape.heads // shape.kv_heads
        self._cos, self._sin = self._rotary(0)

    def slots(self, num_slots: int, max_len: int) -> KVSlots:
        """KV memory of the weights' type, in the layout that `forward` reads."""
        sizes = kv_sizes(self.shape, num_slots, max_len)
        keys, values = (self.embedding.new_zeros(size) for size in sizes)
        return KVSlots(keys, values, num_slots, max_len)

    def embed(self, ids: Seq[int]) -> Tensor:
        """[n, hidden] of `ids`."""
        return F.embedding(torch.tensor(ids, device=self.embedding.device), self.embedding)

    @torch.inference_mode()
    def step(self, ids: Seq[int], audio: Audio, spans: Seq[Span], slots: KVSlots) -> Floats:
        """Feed packed `ids`; logits [sum of num_logits, vocab] float32."""
        return self.fed(ids, audio, spans, slots).float().cpu().numpy()

    def fed(self, ids: Seq[int], audio: Audio, spans: Seq[Span], slots: KVSlots) -> Tensor:
        """The logits of `step`, on the model's device."""
        x = self.embed(ids)
        for first, embeds in audio:
            x[first : first + len(embeds)] = embeds
        hidden = self.forward(x, spans, slots)
        wanted = [slice(s.first + s.n - s.num_logits, s.first + s.n) for s in spans if s.num_logits]
        if not wanted:
            return hidden.new_empty((0, 0))
        # [:1] of one row or a gather of many: the head is the widest product.
        return self.logits(
            hidden[wanted[0]] if len(wanted) == 1 else torch.cat([hidden[w] for w in wanted])
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, vocab] float32 of hidden states [n, hidden] that `forward` returned."""
        return self._linear(self._rms(hidden, self.norm), self.head).float()

    def forward(self, x: Tensor, spans: Seq[Span], slots: KVSlots) -> Tensor:
        """Feed packed embeddings `x` [N, hidden]; writes keys and values into `slots`; returns [N,
        hidden].

        Positions are a plain arange per row (audio-only: the three mrope rows are equal). Each row
        attends to its own slot alone, so its result does not depend on the company it keeps beyond
        matrix rounding.
        """
        cos, sin = self._angles(spans)
        masks = [_mask(span, x, self._group) for span in spans]
        for i, layer in enumerate(self.layers):
            normed = self._rms(x, layer.norm_in)
            q, k, v = self._heads(self._linear(normed, layer.qkv, layer.qkv_bias), cos, sin)
            attended = [
                self._attend(q, k, v, span, mask, slots.keys[i], slots.values[i])
                for span, mask in zip(spans, masks, strict=True)
            ]
            x = x + self._linear(
                attended[0] if len(attended) == 1 else torch.cat(attended), layer.out
            )
            gate, up = self._linear(self._rms(x, layer.norm_mlp), layer.gate_up).chunk(2, dim=-1)
            x = x + self._linear(F.silu(gate) * up, layer.down)
        return x

    def _pack(self, weight: Tensor) -> Any:
        """A matrix [out, in] as `_linear` takes it."""
        return weight

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

    def _angles(self, spans: Seq[Span]) -> tuple[Tensor, Tensor]:
        """cos and sin [N, 1, head_dim] of packed positions; the tables grow by doubling."""
        end = max(span.start + span.n for span in spans)
        if end > len(self._cos):
            self._cos, self._sin = self._rotary(max(end, 2 * len(self._cos), 1024))
        if len(spans) == 1:
            here = slice(spans[0].start, end)
            return self._cos[here], self._sin[here]
        where = torch.cat(
            [torch.arange(s.start, s.start + s.n, device=self._cos.device) for s in spans]
        )
        return self._cos[where], self._sin[where]

    def _rotary(self, length: int) -> tuple[Tensor, Tensor]:
        tables = rotary(length, self.shape.head_dim, self.shape.rope_theta)
        cos, sin = (torch.from_numpy(table).repeat(1, 2)[:, None] for table in tables)
        return cos.to(self.embedding), sin.to(self.embedding)

    def _fuse(self, weights: dict[str, Tensor], prefix: str) -> Layer:
        """One layer's weights; q, k, v and gate, up are one matrix each: fewer products."""

        def take(*names: str) -> Tensor:
            return torch.cat([weights.pop(prefix + name) for name in names]).contiguous()

        return Layer(
            norm_in=take("input_layernorm.weight"),
            qkv=self._pack(take(*(f"self_attn.{p}_proj.weight" for p in "qkv"))),
            qkv_bias=take(*(f"self_attn.{p}_proj.bias" for p in "qkv")),
            out=self._pack(take("self_attn.o_proj.weight")),
            norm_mlp=take("post_attention_layernorm.weight"),
            gate_up=self._pack(take("mlp.gate_proj.weight", "mlp.up_proj.weight")),
            down=self._pack(take("mlp.down_proj.weight")),
        )


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

    def __init__(self, weights: dict[str, Tensor], shape: TextShape) -> None:
        super().__init__(weights, shape)
        first = self.layers[0]
        products = (first.qkv, first.out, first.gate_up, first.down, self.head)
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


def own_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tower's among a model's, without their prefix."""
    prefix = "audio_tower."
    return {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}


class AudioTower:
    """`encode` turns windows into embeddings, 25 per second of audio. Windows never see each other,
    so they may be encoded as they come or in one batch."""

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

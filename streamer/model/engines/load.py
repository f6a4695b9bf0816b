"""Models that torch runs: larger ones, other devices, and transformers' own for comparison.

The language model and the audio tower are functions of their weights, equal to
`Qwen2_5OmniThinkerTextModel` and `Qwen2_5OmniAudioEncoder`
(transformers/models/qwen2_5_omni/modeling_qwen2_5_omni.py) to 1e-5 in fp32. They leave out module
calls, mask building, cache objects and copies of the grouped keys. Measured 2026-11 on a model of
4 M parameters: a step of one id takes 1.6 to 2.2 ms against 3.7.

Importing this costs a second and 200 MB, so that the embedded pair does without.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor

from streamer.extras import load as load_extra
from streamer.model.checkpoint.weights import (
    EMBEDDING,
    AudioShape,
    ModelError,
    Shapes,
    TextShape,
    Told,
    check_finite,
    entries,
    reading,
)
from streamer.model.engines.engine import Floats, KVSlots, Span, arrays_of, rotary, sinusoids
from streamer.model.thinker import BITS

Weights = dict[str, Tensor]
Layer = Mapping[str, Any]  # of TextShape.layer or AudioShape.layer; matrices may have another form
SMALL = 50_000_000  # parameters, up to which a product is too small to be worth a second thread


def load_torch(
    directory: Path, shapes: Shapes, device: str, engine: str, told: Told
) -> tuple[Any, Any]:
    """Tower and language model, fp32 on a CPU, bf16 on a GPU, or few bits. Raises ModelError."""
    check_device(device)
    if engine in BITS:
        return load_extra("large")(directory, shapes, engine, told)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    tensors, weights = Tensors(directory), {}
    for name in tensors.names:
        weights[name] = tensors.take(name, dtype).to(device)
        told(len(weights), len(tensors.names))
    kind = StableText if engine == "stable" else TextModel
    return AudioTower(weights, shapes.audio), kind(weights, shapes.text)


def check_device(device: str) -> None:
    """Raise ModelError where torch cannot use `device`."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        why = f"there is no GPU that torch {torch.__version__} can use"
        way = "take --device cpu, or a CUDA build of torch and a GPU"
        raise ModelError(f"device {device}", f"{why}; {way}")


class Tensors:
    """By their transformers 4.x names. Raises ModelError for what cannot be read."""

    def __init__(self, directory: Path) -> None:
        self._at = {name: at for name, _, _, at in entries(directory)}
        self.names = list(self._at)

    def take(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """A copy, in `dtype` or as it is stored. Raises ModelError, also where it is not finite."""
        file, there = self._at[name]
        with reading(file), safe_open(file, framework="pt") as shard:
            stored = shard.get_tensor(there)
            found: Tensor = stored.to(dtype or stored.dtype, copy=True)
        check_finite(all(map(torch.isfinite, found.aminmax())), file, there)
        return found


def stock_config(directory: Path) -> Any:
    """transformers' configuration of a model directory, without the fields that could load code: an
    `attn_implementation` may name kernels on the hub, an `auto_map` modules."""
    from transformers import Qwen2_5OmniThinkerConfig

    raw = json.loads((directory / "config.json").read_text("utf-8"))
    return Qwen2_5OmniThinkerConfig.from_dict(_without_code(raw.get("thinker_config", raw)))


def _without_code(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    return {
        name: _without_code(value)
        for name, value in raw.items()
        if "implementation" not in name and name not in ("auto_map", "quantization_config")
    }


def load_stock(directory: Path) -> Any:
    """`Qwen2_5OmniThinkerForConditionalGeneration` in evaluation mode, weights in float32; its
    import alone costs seconds."""
    from transformers import Qwen2_5OmniThinkerForConditionalGeneration as Stock
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # our own line says that models are loaded, where a person looks
    config = stock_config(directory)
    options = {"attn_implementation": "sdpa", "dtype": torch.float32, "trust_remote_code": False}
    return Stock.from_pretrained(directory, config=config, **options).eval()


class TextModel:
    """Weights of the text model, fused per layer; `forward` feeds any number of rows at once."""

    def __init__(self, weights: Weights, shape: TextShape) -> None:
        self.shape = shape
        self.embedding = weights[EMBEDDING]
        self.norm = weights["model.norm.weight"]
        self.head = self.embedding if shape.tied else weights["lm_head.weight"]
        self.layers: list[Layer] = [
            dict(arrays_of(weights.pop, shape, i)) for i in range(shape.layers)
        ]

    def slots(self, num_slots: int, max_len: int) -> KVSlots:
        """KV memory of the weights' type, in the layout that `forward` reads."""
        tables = rotary(max_len, self.shape.head_dim, self.shape.rope_theta)
        cos, sin = (
            torch.from_numpy(table).repeat(1, 2)[:, None].to(self.embedding) for table in tables
        )
        return KVSlots(self.shape, num_slots, max_len, self.embedding.new_zeros, (cos, sin))

    def embed(self, ids: Seq[int]) -> Tensor:
        """[n, hidden] of `ids`."""
        return F.embedding(torch.tensor(ids, device=self.embedding.device), self.embedding)

    @torch.inference_mode()
    def step(self, x: Tensor, spans: Seq[Span], slots: KVSlots) -> Floats:
        """Feed packed embeddings `x`; logits [sum of num_logits, vocab] float32."""
        x = self.forward(x, spans, slots)
        ends = [(first + n, num) for _, _, first, n, num in spans]
        if not (wanted := [row for end, num in ends for row in range(end - num, end)]):
            return np.empty((0, 0), np.float32)
        return self._linear(self._rms(x[wanted], self.norm), self.head).float().cpu().numpy()

    def forward(self, x: Tensor, spans: Seq[Span], slots: KVSlots) -> Tensor:
        """[N, hidden] of packed embeddings `x` [N, hidden]; writes keys and values into `slots`.

        Positions are a plain arange per row (audio-only: the three mrope rows are equal). Each row
        attends to its own slot alone, so the rows beside it change no more than matrix rounding.
        """
        s = self.shape
        at = torch.cat([torch.arange(start, start + n) for _, start, _, n, _ in spans])
        cos, sin = (table[at.to(table.device)] for table in slots.angles)
        # once per step, and not boolean: the attention would turn that into this in every layer
        masks = [self._mask(x, start, n) if n > 1 else None for _, start, _, n, _ in spans]
        for i, layer in enumerate(self.layers):
            qkv = self._linear(self._rms(x, layer["norm_in"]), layer["qkv"], layer["qkv_bias"])
            heads = qkv.view(len(x), -1, s.head_dim)
            qk, v = heads.split((s.heads + s.kv_heads, s.kv_heads), dim=1)
            q, k = _rotate(qk, cos, sin).split((s.heads, s.kv_heads), dim=1)
            attended = []
            for (slot, start, first, n, _), mask in zip(spans, masks, strict=True):
                here, there = slice(first, first + n), slice(start, start + n)
                keys, values = slots.keys[i][slot], slots.values[i][slot]
                keys[:, there], values[:, there] = k[here].transpose(0, 1), v[here].transpose(0, 1)
                keys, values = keys[:, : there.stop], values[:, : there.stop]
                attended.append(self._attend(q[here], keys, values, mask))
            x = x + self._linear(torch.cat(attended), layer["out"])
            mixed = self._linear(self._rms(x, layer["norm_mlp"]), layer["gate_up"])
            gate, up = mixed.chunk(2, dim=-1)
            x = x + self._linear(F.silu(gate) * up, layer["down"])
        return x

    def _mask(self, x: Tensor, start: int, n: int) -> Tensor:
        """Added to the scores [group * n, start + n]: 0 where kv_index <= position, else -inf."""
        hidden = x.new_full((n, start + n), -torch.inf).triu(start + 1)
        return hidden.repeat(self.shape.heads // self.shape.kv_heads, 1)

    def _linear(self, x: Tensor, weight: Any, bias: Tensor | None = None) -> Tensor:
        return F.linear(x, weight, bias)

    def _rms(self, x: Tensor, weight: Tensor) -> Tensor:
        """As Qwen2RMSNorm; on a CPU F.rms_norm takes three times as long for a row (2026-11)."""
        wide = x.float()
        scale = (wide * wide).mean(-1, keepdim=True).add_(self.shape.eps).rsqrt_()
        return weight * (wide * scale).to(x.dtype)

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """[n, heads * head_dim] of q [n, heads, head_dim], the last n of keys and values [kv_heads,
        end, head_dim]; head groups are folded: no copies."""
        n, kv_heads = len(q), len(keys)
        folded = q.view(n, kv_heads, -1, q.shape[2]).permute(1, 2, 0, 3).flatten(1, 2)
        out = F.scaled_dot_product_attention(folded[None], keys[None], values[None], attn_mask=mask)
        return out.view(kv_heads, -1, n, q.shape[2]).permute(2, 0, 1, 3).reshape(n, -1)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of [N, h, d] (the "rotate half" form of Qwen2)."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


class StableText(TextModel):
    """A row's bits depend on its own ids alone: not on their cut, nor on the rows beside it."""

    def __init__(self, weights: Weights, shape: TextShape) -> None:
        super().__init__(weights, shape)
        products = [*(w for w in self.layers[0].values() if w.ndim == 2), self.head]
        # tried in this order; one by one where none of them holds
        sizes = (n for n in (15, 7, 3) if all(agree(matrix, n) for matrix in products))
        self.rows_at_once = next(sizes, 1)

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        parts = []
        for rows in x.split(self.rows_at_once):
            # one row stands twice: alone it would be a product of another kind
            is_alone = len(rows) == 1 < self.rows_at_once
            product = F.linear(rows.repeat(2, 1) if is_alone else rows, weight, bias)
            parts.append(product[: len(rows)])
        return torch.cat(parts)

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Each position as if it were the last."""
        attended = []
        for i, one in enumerate(q[:, None]):
            seen = slice(0, keys.shape[1] - len(q) + 1 + i)
            attended.append(super()._attend(one, keys[:, seen], values[:, seen], None))
        return torch.cat(attended)


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
        self._ends = {name.removeprefix(shape.prefix): weights[name] for name in shape.ends()}
        self._layers = layers or [
            dict(arrays_of(weights.pop, shape, i)) for i in range(shape.layers)
        ]
        positions = torch.from_numpy(sinusoids(shape.n_window, shape.width))
        self._positions = positions.to(self._ends["conv1.weight"])

    @torch.inference_mode()
    def encode(self, features: Floats) -> Tensor:
        """[B, mels, T] float32, T <= 2 * n_window -> [B, n, output], on the model's device."""
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

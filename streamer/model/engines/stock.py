"""transformers' own modules, `--engine stock`. In: ids and windows. Out: logits and embeddings.

The oracle, and the way out where a kernel is suspected: row by row, the cache rebuilt from the slot
in each step. Slow.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from streamer.model.checkpoint.shapes import TextShape
from streamer.model.engines.engine import Audio, Floats, KVSlots, Span
from streamer.model.engines.models import torch_slots


def stock_config(directory: Path) -> Any:
    """transformers' configuration of a model directory, without the fields that could load code: an
    `attn_implementation` may name kernels on the hub, an `auto_map` modules."""
    from transformers import Qwen2_5OmniThinkerConfig

    raw = json.loads((directory / "config.json").read_text("utf-8"))
    return Qwen2_5OmniThinkerConfig.from_dict(_without_code(raw.get("thinker_config", raw)))


def _without_code(raw: Any) -> Any:
    if isinstance(raw, list):
        return [_without_code(value) for value in raw]
    if not isinstance(raw, dict):
        return raw
    return {
        name: _without_code(value)
        for name, value in raw.items()
        if "implementation" not in name and name not in ("auto_map", "quantization_config")
    }


def load_stock(directory: Path, dtype: torch.dtype = torch.float32) -> Any:
    """`Qwen2_5OmniThinkerForConditionalGeneration` in evaluation mode, weights in `dtype`; its
    import alone costs seconds."""
    from transformers import Qwen2_5OmniThinkerForConditionalGeneration as Stock
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # our own line says that models are loaded, where a person looks
    config = stock_config(directory)
    options = {"attn_implementation": "sdpa", "dtype": dtype, "trust_remote_code": False}
    return Stock.from_pretrained(directory, config=config, **options).eval()


class StockText:
    """`Qwen2_5OmniThinkerTextModel` and its head on our KV slots."""

    def __init__(self, stock: Any, shape: TextShape) -> None:
        self.shape = shape
        self._stock = stock
        names = inspect.signature(stock.model.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"  # before 5.24
        self.embedding: Tensor = stock.get_input_embeddings().weight.detach()

    def slots(self, num_slots: int, max_len: int) -> KVSlots:
        """KV memory as transformers lays it out, [.., positions, head_dim]."""
        return torch_slots(self.shape, num_slots, max_len, self.embedding)

    def embed(self, ids: Seq[int]) -> Tensor:
        """[n, hidden] of `ids`."""
        return self.embedding[torch.tensor(ids, device=self.embedding.device)]

    @torch.inference_mode()
    def step(self, ids: Seq[int], audio: Audio, spans: Seq[Span], slots: KVSlots) -> Floats:
        """Feed packed `ids`; logits [sum of num_logits, vocab] float32."""
        x = self.embed(ids)
        for first, embeds in audio:
            x[first : first + len(embeds)] = embeds
        hidden = [
            self._row(x[s.first : s.first + s.n], s, slots)[s.n - s.num_logits :] for s in spans
        ]
        logits: Floats = self._stock.lm_head(torch.cat(hidden)).float().cpu().numpy()
        return logits

    def _row(self, x: Tensor, span: Span, slots: KVSlots) -> Tensor:
        """[n, hidden] of one row; its keys and values go into its slot."""
        from transformers import DynamicCache

        cache = DynamicCache()
        end = span.start + span.n
        if span.start:
            for i in range(self.shape.layers):
                keys, values = (
                    part[i, None, span.slot, :, : span.start] for part in (slots.keys, slots.values)
                )
                cache.update(keys, values, i)
        positions = torch.arange(span.start, end, device=x.device).expand(3, 1, -1)
        given = {"inputs_embeds": x[None], "position_ids": positions, self._cache_name: cache}
        out = self._stock.model(**given, use_cache=True)
        for i, layer in enumerate(cache.layers):
            slots.keys[i, span.slot, :, span.start : end] = layer.keys[0, :, span.start :]
            slots.values[i, span.slot, :, span.start : end] = layer.values[0, :, span.start :]
        hidden: Tensor = out[0][0]
        return hidden


class StockTower:
    """`Qwen2_5OmniAudioEncoder`, window by window."""

    windows_at_once = 1

    def __init__(self, stock: Any) -> None:
        self._tower = stock.model.audio_tower

    @torch.inference_mode()
    def encode(self, features: Floats) -> Tensor:
        """[B, mels, T] float32 -> [B, n, output]."""
        weight = self._tower.conv1.weight
        length = torch.tensor([features.shape[-1]], device=weight.device)
        windows = torch.as_tensor(features).to(weight)
        return torch.stack([self._tower(w, feature_lens=length).last_hidden_state for w in windows])

"""transformers' own modules as an engine of ours: the oracle of the kernels. Row by row, the cache
rebuilt from the slot in each step: slow."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from streamer.model.engines.engine import Engine, Floats
from streamer.model.engines.load import load_stock
from streamer.model.engines.models import torch_slots


def on_stock(thinker):
    """The same model, run by transformers."""
    stock, slots = load_stock(thinker.directory), thinker.engine.slots
    text, tower = StockText(stock, thinker.shapes.text), StockTower(stock)
    memory = text.slots(slots.num_slots, slots.max_len)
    engine = Engine(text, memory, thinker.engine.prompt_ids, tower)
    return replace(thinker, engine=engine, tower=tower)


class StockText:
    """`Qwen2_5OmniThinkerTextModel` and its head on our KV slots."""

    def __init__(self, stock: Any, shape) -> None:
        self.shape = shape
        self._stock = stock
        names = inspect.signature(stock.model.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"  # before 5.24
        self.embedding: Tensor = stock.get_input_embeddings().weight.detach()

    def slots(self, num_slots: int, max_len: int):
        """KV memory as transformers lays it out, [.., positions, head_dim]."""
        return torch_slots(self.shape, num_slots, max_len, self.embedding)

    def embed(self, ids) -> Tensor:
        """[n, hidden] of `ids`."""
        return self.embedding[torch.tensor(ids, device=self.embedding.device)]

    @torch.inference_mode()
    def step(self, ids, audio, spans, slots) -> Floats:
        """Feed packed `ids`; logits [sum of num_logits, vocab] float32."""
        x = self.embed(ids)
        for first, embeds in audio:
            x[first : first + len(embeds)] = embeds
        hidden = [
            self._row(x[s.first : s.first + s.n], s, slots)[s.n - s.num_logits :] for s in spans
        ]
        logits: Floats = self._stock.lm_head(torch.cat(hidden)).float().cpu().numpy()
        return logits

    def _row(self, x: Tensor, span, slots) -> Tensor:
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

"""One step of transformers' own modules, for bench.engine. In: a stock model. Out: logits."""

from __future__ import annotations

from typing import Any

import torch

from bench.engine_limits import PROMPT


def stock_cache(stock: Any, rows: int, context: int) -> Any:
    from transformers import DynamicCache

    cache = DynamicCache()
    stock_forward(stock, cache, torch.full((rows, PROMPT + context), 7), 0)
    return cache


@torch.inference_mode()
def stock_forward(stock: Any, cache: Any, ids: torch.Tensor, start: int) -> torch.Tensor:
    positions = torch.arange(start, start + ids.shape[1])[None, None].expand(3, *ids.shape)
    hidden = stock.model(
        input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True
    )[0]
    logits: torch.Tensor = stock.lm_head(hidden)
    return logits


def stock_step(stock: Any, cache: Any, rows: int, q: int) -> None:
    """transformers' own text model and cache: no generate() around it."""
    stock_forward(stock, cache, torch.full((rows, q), 9), cache.get_seq_length())
    cache.crop(-q)

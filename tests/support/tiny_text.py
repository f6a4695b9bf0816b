"""Random text models of any shape."""

import torch

from streamer.model.checkpoint.layout import _text_layer
from streamer.model.checkpoint.shapes import TextShape


def shape_of(hidden, layers, heads, kv_heads, head_dim, ffn, vocab, tied=True):
    return TextShape(
        hidden, layers, heads, kv_heads, head_dim, ffn, vocab, 10_000.0, 1e-6, 4096, tied
    )


def random_weights(shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    names = {
        "model.embed_tokens.weight": (shape.vocab, shape.hidden),
        "model.norm.weight": (shape.hidden,),
    }
    if not shape.tied:
        names["lm_head.weight"] = (shape.vocab, shape.hidden)
    for i in range(shape.layers):
        names |= dict(_text_layer(f"model.layers.{i}.", shape))
    drawn = {
        n: torch.randn(size, generator=generator) / size[-1] ** 0.5 for n, size in names.items()
    }
    return {name: weight.to(dtype).float() for name, weight in drawn.items()}

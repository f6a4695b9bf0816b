"""Random text models of any shape."""

import torch

from streamer.model.checkpoint.layout import text_layout
from streamer.model.checkpoint.shapes import TextShape


def shape_of(hidden, layers, heads, kv_heads, head_dim, ffn, vocab, tied=True):
    return TextShape(
        hidden, layers, heads, kv_heads, head_dim, ffn, vocab, 10_000.0, 1e-6, 4096, tied
    )


def random_weights(shape, seed=0, dtype=torch.float32):
    """float32 tensors that `dtype` holds."""
    generator = torch.Generator().manual_seed(seed)
    drawn = {
        name: torch.randn(size, generator=generator) / size[-1] ** 0.5
        for name, size in text_layout(shape)
    }
    return {name: weight.to(dtype).float() for name, weight in drawn.items()}

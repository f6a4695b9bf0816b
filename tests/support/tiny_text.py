"""Random text models of any shape."""

import torch

from streamer.model.checkpoint.layout import TextShape, expected


def shape_of(hidden, layers, heads, kv_heads, head_dim, ffn, vocab, tied=True):
    sizes = {"hidden": hidden, "layers": layers, "heads": heads, "kv_heads": kv_heads}
    sizes |= {"head_dim": head_dim, "ffn": ffn, "vocab": vocab, "tied": tied}
    return TextShape(**sizes, rope_theta=10_000.0, max_positions=4096)


def random_weights(shape, dtype=torch.float32, seed=0):
    """A text model's tensors by their names, scaled so that activations stay near 1."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(name, size):
        if name.endswith("norm.weight"):
            return torch.ones(size, dtype=dtype)
        scale = 0.1 if len(size) == 1 else size[-1] ** -0.5
        return scale * torch.randn(size, generator=generator, dtype=dtype)

    return {name: drawn(name, size) for name, size in expected(shape)}

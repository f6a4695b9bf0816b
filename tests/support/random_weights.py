"""Random weights of a text model, for tests of the engines."""

import torch

from streamer.model.checkpoint.layout import text_layout


def random_weights(shape, dtype, device, seed=0):
    """A text model's tensors by their names, scaled so that activations stay near 1."""
    generator = torch.Generator(device).manual_seed(seed)

    def drawn(name, size):
        if name.endswith("norm.weight"):
            return torch.ones(size, dtype=dtype, device=device)
        scale = 0.1 if len(size) == 1 else size[-1] ** -0.5
        return scale * torch.randn(size, generator=generator, dtype=dtype, device=device)

    return {name: drawn(name, size) for name, size in text_layout(shape)}

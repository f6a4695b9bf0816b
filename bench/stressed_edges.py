"""Edges that go wrong, for bench.quality. In: a folder. Out: a copy of the shipped edge, blurred or
with longer turns."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from streamer.model.checkpoint.card import FILE as CARD
from streamer.model.checkpoint.weights import wanted_name
from streamer.model.thinker import resolve

BLUR = 0.8  # noise on the stressed edge's language model, in standard deviations of each matrix


def _copied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return shutil.copytree(resolve("embedded", "edge"), folder, copy_function=shutil.copyfile)


def blurred(folder: Path) -> Path:
    """A copy of the shipped edge in `folder`, seeded noise on its language model's matrices: any
    engine can load it."""
    generator = torch.Generator().manual_seed(3)
    file = _copied(folder) / "model.safetensors"
    weights = load_file(file)
    for name in sorted(weights):
        weight = weights[name]
        if (wanted_name(name) or "").startswith("model.layers.") and weight.ndim == 2:
            noise = torch.randn(weight.shape, generator=generator)
            weights[name] = (weight.float() + BLUR * weight.float().std() * noise).to(weight.dtype)
    save_file(weights, file, metadata={"format": "pt"})
    return folder


def longer(folder: Path, max_turn_s: float = 95.0) -> Path:
    """A copy of the shipped edge in `folder` whose slots hold more than the turns that it was
    trained for."""
    file = _copied(folder) / CARD
    file.write_text(
        json.dumps(json.loads(file.read_text("utf-8")) | {"max_turn_s": max_turn_s}), "utf-8"
    )
    return folder

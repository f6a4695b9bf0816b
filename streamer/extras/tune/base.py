"""The model to tune: what is known without its weights, and whether memory and disk suffice."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from streamer.core.measures.levels import NUM_LEVELS
from streamer.extras.tune.data import TuneError
from streamer.model.checkpoint import layout
from streamer.model.checkpoint.card import ModelCard, read_card
from streamer.model.checkpoint.shapes import Shapes
from streamer.model.checkpoint.weights import ModelError, fingerprint_of
from streamer.model.thinker import num_params_of, resolve, shapes_of


@dataclass(frozen=True)
class Base:
    """words: the card whose phrases are learnt: the model's own, or the embedded cloud's."""

    directory: Path
    shapes: Shapes
    num_params: int
    card: ModelCard
    words: ModelCard
    fingerprint: str


def base_of(spec: str) -> Base:
    """Raises ModelError as `load` does, and for phrases that do not fit the measures' levels."""
    directory = resolve(spec, "cloud")
    num_params = num_params_of(directory)
    card = read_card(directory)
    words = card if card.attributes else read_card(resolve("embedded", "cloud"))
    for name, levels in words.attributes.items():
        if len(levels) != NUM_LEVELS[name]:
            told = f"its card has {len(levels)} levels of {name}, recordings are labelled in"
            way = "change its phrases, or leave them out of its card"
            raise ModelError(directory, f"{told} {NUM_LEVELS[name]}; {way}")
    return Base(directory, shapes_of(directory), num_params, card, words, fingerprint_of(directory))


def check_memory(base: Base, width: int, device: str) -> None:
    """Raises TuneError if the weights alone do not fit: on a CPU those of the evaluation in
    float32, otherwise `width` bytes each. A step may still need more than there is."""
    free = free_bytes(device)
    need = base.num_params * width
    if device == "cpu":
        need = max(need, int(layout.PEAK * layout.weight_bytes(base.shapes, "fast")))
    if free is not None and need > free:
        told = f"the weights take {need / 1e9:.1f} GB, {free / 1e9:.1f} are free"
        raise TuneError(f"{told}; take a smaller model, or a machine with more")


def free_bytes(device: str) -> float | None:
    """Free memory of the device; None if the system does not say."""
    if device == "cpu":
        return layout.free_bytes()
    import torch

    return float(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else None


def check_disk(directory: Path, out: Path) -> None:
    """Raises TuneError if there is no room for the merged model."""
    size = sum(os.path.getsize(file) for file in directory.iterdir() if file.is_file())
    free = shutil.disk_usage(out.parent).free
    if size > free:
        told = f"{out} takes {size / 1e9:.1f} GB, {free / 1e9:.1f} are free there"
        raise TuneError(f"{told}; make room, or give another --out")

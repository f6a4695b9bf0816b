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

FIXED = 0.7e9  # bytes: Python, torch, transformers
PER_LEARNT = 24  # bytes: weight, gradient, two moments, the best and a copy of it
# numbers per position alive at the worst moment, measured on a layer of the 3B (2026-11)
INSIDE_HIDDEN = 28
INSIDE_FFN = 10.5


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


def num_learnt(shapes: Shapes, rank: int) -> int:
    """Numbers in the adapters."""
    text = shapes.text
    q, kv = text.heads * text.head_dim, text.kv_heads * text.head_dim
    layer = 2 * (text.hidden + q) + 2 * (text.hidden + kv) + 3 * (text.hidden + text.ffn)
    return rank * (text.layers * layer + shapes.audio.width + shapes.audio.output)


def bytes_needed(
    base: Base, width: int, rank: int, at_once: int, longest: int, answer: int
) -> float:
    """Memory of a step. width: bytes of a weight; longest: positions of an example; answer: of
    them, ids that are said. docs/tune.md has the sum for 3B and 7B."""
    text, rows = base.shapes.text, at_once * longest
    inside = rows * (INSIDE_HIDDEN * text.hidden + INSIDE_FFN * text.ffn)
    activations = (text.layers * rows * text.hidden + inside) * width
    logits = at_once * answer * text.vocab * 4 * 3
    adapters = PER_LEARNT * num_learnt(base.shapes, rank)
    return FIXED + base.num_params * width + adapters + activations + logits


def check_memory(base: Base, need: float, device: str) -> None:
    """Raises TuneError if tuning, or the evaluation in float32 after it, does not fit."""
    free = free_bytes(device)
    if free is None:
        return
    judging = 0.0
    if device == "cpu":
        judging = FIXED + layout.PEAK * layout.weight_bytes(base.shapes, "fast")
    if max(need, judging) > free:
        what = "tuning" if need >= judging else "evaluating the model in float32"
        told = f"{what} takes about {max(need, judging) / 1e9:.1f} GB, {free / 1e9:.1f} are free"
        way = "give --at-once 1, a smaller --turn-s or --precision bf16, or a machine with more"
        raise TuneError(f"{told}; {way}")


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

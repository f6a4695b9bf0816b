"""The model that is tuned. In: a spec. Out: what is known of it without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamer.core.measures.levels import NUM_LEVELS
from streamer.model.checkpoint.card import ModelCard, read_card
from streamer.model.checkpoint.fingerprint import fingerprint_of
from streamer.model.checkpoint.shapes import Shapes
from streamer.model.checkpoint.weights import ModelError
from streamer.model.thinker import num_params_of, resolve, shapes_of


@dataclass(frozen=True)
class Base:
    """words: the card whose phrases are said: its own, or the embedded cloud's."""

    directory: Path
    shapes: Shapes
    num_params: int
    card: ModelCard
    words: ModelCard
    fingerprint: str


def base_of(spec: str) -> Base:
    """Raises ModelError for what `load` refuses, and for phrases that do not fit measures."""
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

"""A thinker of random weights on any vocabulary, without a tower. In: a vocabulary, a kind of text
model. Out: Thinker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tiny_text import random_weights, shape_of

from streamer.core.text.vocabulary import Vocabulary
from streamer.model.checkpoint.card import ModelCard
from streamer.model.engines.engine import Engine
from streamer.model.kernels.helpers import Crew
from streamer.model.kernels.text import FastText
from streamer.model.thinker import Thinker

PROMPT, MOST_STREAMS, LENGTH = [1, 2], 10, 96
# hidden, layers, heads, kv_heads, head_dim, ffn
SIZES = [(24, 1, 2, 1, 8, 30), (32, 2, 4, 4, 8, 16)]


def thinker_of(
    vocabulary: Vocabulary, kind: type[FastText], size: int, crew: Crew | None = None
) -> Thinker:
    shape = shape_of(*SIZES[size], vocabulary.num_ids)
    text = kind(random_weights(shape, seed=size), shape, crew)
    engine = Engine(text, text.slots(MOST_STREAMS, LENGTH), PROMPT)
    shapes: Any = SimpleNamespace(text=shape, audio_id=0)
    tower: Any = None
    return Thinker(Path(), ModelCard("tiny"), shapes, vocabulary, (1,), tower, engine, 0)

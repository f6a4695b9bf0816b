"""Levels in; the sentence that says them out, and which of its characters nobody vouches for.

The words are those of a model's card, the form is that of core/rules/form.py. A level has one
phrase here, its first, and attributes have one order: what is learnt is to hear, not to vary.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from streamer.core.rules.form import COMMA, END, Phrases
from streamer.extras.tune.turn import as_bytes

OPENING = "说话人"


@dataclass(frozen=True, slots=True)
class TargetSentence:
    """unknown: (begin, end) of phrases whose level was drawn, since it is not known."""

    text: str
    unknown: tuple[tuple[int, int], ...]


def target_of(levels: Mapping[str, int | None], phrases: Phrases, name: str) -> TargetSentence:
    """The sentence for a turn called `name`. An unknown level is drawn by that name: it has to
    stand in the sentence, but nothing is learnt from it."""
    text = OPENING
    unknown = []
    rng = random.Random(as_bytes(name))
    for i, (attribute, named) in enumerate(phrases.items()):
        level = levels.get(attribute)
        drawn = rng.randrange(len(named))
        text += COMMA if i else ""
        phrase = named[drawn if level is None else level]["phrases"][0]
        if level is None:
            unknown.append((len(text), len(text) + len(phrase)))
        text += phrase
    return TargetSentence(text + END, tuple(unknown))

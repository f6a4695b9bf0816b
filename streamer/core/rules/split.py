"""The rules inside a split character: a character that no single id spells.

This is rare, so each of the few ids that may follow is judged by the text that it completes, slowly
and exactly. The tests compare the vocabulary's table with the same judgement.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamer.core.rules.settings import Rules
from streamer.core.text.characters import (
    COMMA_LIKE,
    PUNCTUATION,
    SENTENCE_ENDS,
    content_since,
    is_han,
)
from streamer.core.text.vocabulary import Ids, Vocabulary

_ALL = 1 << 30


class ByText(NamedTuple):
    """The fields of `Constraint` that depend on characters."""

    only: Ids | None
    never: Ids
    commas: Ids
    adjacency: Ids
    lowered: Ids


def constrain_open(
    vocabulary: Vocabulary, rules: Rules, text: str, pending: bytes, index: int
) -> ByText:
    """The rules after `text` and the bytes `pending` of an open character."""
    allowed = vocabulary.fragments.allowed(pending)
    broken = [(i, breaks(vocabulary, rules, text, piece, index)) for i, piece in allowed]

    def those(kind: str) -> Ids:
        return np.array([i for i, kinds in broken if kind in kinds], dtype=np.int64)

    only = np.array([i for i, _ in allowed], dtype=np.int64)
    return ByText(only, those("early"), those("commas"), those("adjacency"), those("lowered"))


def breaks(vocabulary: Vocabulary, rules: Rules, text: str, piece: str, index: int) -> set[str]:
    """The rules that `piece` after `text` would break: "early" (always banned), "commas",
    "adjacency", "lowered".

    index: place in the answer of the id whose text is `piece`.
    """
    broken = set()
    if index < rules.min_new_tokens - 1 and not SENTENCE_ENDS.isdisjoint(piece):
        broken.add("early")
    marks = SENTENCE_ENDS if rules.end_since == "sentence" else PUNCTUATION
    for i, character in enumerate(piece):
        said = text + piece[:i]
        if character in COMMA_LIKE and content_since(said, PUNCTUATION, _ALL) < rules.comma_gap:
            broken.add("commas")
        is_first_end = character in SENTENCE_ENDS and SENTENCE_ENDS.isdisjoint(piece[:i])
        if is_first_end and "early" not in broken:
            broken |= {"lowered"} if content_since(said, marks, _ALL) < rules.end_gap else set()
        if rules.adjacency and is_han(character) and said[-1:] == character:
            is_triple = said[-2:] == character * 2
            if is_triple or (i == 0 and character not in vocabulary.doubles):
                broken.add("adjacency")
    return broken

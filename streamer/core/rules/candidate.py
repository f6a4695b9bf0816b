"""One candidate, judged by its characters. In: the answer's text, the candidate's. Out: the rules
it breaks.

Slow and exact: it decides for the few ids that may follow an open split character, and the tests
hold the vocabulary's table against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamer.core.text.characters import (
    COMMA_LIKE,
    PUNCTUATION,
    SENTENCE_ENDS,
    content_since,
    is_han,
)
from streamer.core.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from streamer.core.rules.constrain import Rules

_ALL = 1 << 30


def breaks(vocabulary: Vocabulary, rules: Rules, text: str, piece: str, index: int) -> set[str]:
    """What `piece` behind `text` would break: of "early" (banned for good), "commas", "adjacency",
    "lowered".

    `index`: place in the answer of the id whose text is `piece`.
    """
    broken = set()
    if index < rules.min_new_tokens - 1 and not SENTENCE_ENDS.isdisjoint(piece):
        broken.add("early")
    marks = SENTENCE_ENDS if rules.end_since == "sentence" else PUNCTUATION
    for i, character in enumerate(piece):
        said = text + piece[:i]
        if character in COMMA_LIKE and content_since(said, PUNCTUATION, _ALL) < rules.comma_gap:
            broken.add("commas")
        if (
            character in SENTENCE_ENDS
            and SENTENCE_ENDS.isdisjoint(piece[:i])
            and "early" not in broken
        ):
            broken |= {"lowered"} if content_since(said, marks, _ALL) < rules.end_gap else set()
        if rules.adjacency and is_han(character) and said[-1:] == character:
            is_triple = said[-2:] == character * 2
            if is_triple or (i == 0 and character not in vocabulary.doubles):
                broken.add("adjacency")
    return broken

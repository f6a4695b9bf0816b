"""Which ids may stand in a sentence. In: a vocabulary, the sentence's own characters. Out: those
ids, by their first character.

A vocabulary of 150,000 has so few of them that to look through all takes milliseconds: it is done
once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from streamer.core.rules.clauses import MAX_OPENING
from streamer.core.text.vocabulary import Vocabulary


class OwnIds:
    """The ids that may be read of `characters` and of openings."""

    def __init__(self, vocabulary: Vocabulary, characters: set[str]) -> None:
        self._vocabulary = vocabulary
        self._own = characters

    @cached_property
    def by_head(self) -> Mapping[str, Sequence[int]]:
        """The ids of own characters alone, by their first one."""
        found: dict[str, list[int]] = {}
        for token in self._where(lambda piece: piece != "" and self._own.issuperset(piece)):
            head = (self._vocabulary.texts[token] or "")[0]
            found.setdefault(head, []).append(token)
        return found

    @cached_property
    def openings(self) -> Sequence[int]:
        """Those whose other characters may stand in an opening."""

        def opens(piece: str) -> bool:
            others = [i for i, character in enumerate(piece) if character not in self._own]
            opening = piece[: others[-1] + 1] if others else ""
            return 0 < len(opening) <= MAX_OPENING and opening.isalnum()

        return self._where(opens)

    def _where(self, fits: Callable[[str], bool]) -> list[int]:
        texts = self._vocabulary.texts
        ids: list[int] = np.flatnonzero(~self._vocabulary.never).tolist()
        return [token for token in ids if fits(texts[token] or "")]

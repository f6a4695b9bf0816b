"""The form of a sentence. In: a card's attribute phrases, an answer's ids. Out: which ids keep the
form.

A sentence is an opening and one phrase for each attribute, in any order, with commas between them
and an end behind the last. No attribute is missing, none stands twice, no phrase is a mixture of
two. The one other sentence is the card's own for a clip without speech.

The rule corrects: an id is chosen without it, and where it breaks the form, chosen again among
`allowed`. So a step pays for a look at the chosen id alone, and both sides, which look at the same
ids, do the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from streamer.core.rules.id_sets import Ids
from streamer.core.text.characters import PUNCTUATION
from streamer.core.text.vocabulary import Vocabulary

# attribute -> levels, each with its phrases, as core/attributes.py reads them
Phrases = Mapping[str, Sequence[Mapping[str, Any]]]
COMMA = "，"
END = "。"
MAX_OPENING = 8  # characters before the first phrase


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text stands. said: attributes with a phrase, as bits; clause: the text behind the
    last comma."""

    said: int
    clause: str
    is_first: bool
    is_over: bool = False


class SentenceForm:
    """The sentences that `phrases` allow, as a vocabulary can spell them; `no_speech` is the one
    without a phrase."""

    def __init__(self, vocabulary: Vocabulary, phrases: Phrases, no_speech: str = "") -> None:
        self._vocabulary = vocabulary
        self._no_speech = no_speech
        self._bits = {
            phrase: 1 << i
            for i, levels in enumerate(phrases.values())
            for level in levels
            for phrase in level["phrases"]
        }
        self._all = (1 << len(phrases)) - 1
        # An opening must hold no two neighbouring characters of any phrase: it would read as one.
        self._pairs = {pair for phrase in self._bits for pair in pairwise(phrase)}
        self._lengths = range(1, 1 + max(map(len, filter(None, vocabulary.texts))))
        self._spellings = frozenset(filter(None, vocabulary.texts))
        self._can_spell: dict[str, bool] = {"": True}

    def is_whole(self, text: str) -> bool:
        """Whether `text` is a sentence of this form."""
        place = self._place(text)
        return text == self._no_speech or (place is not None and place.is_over)

    def keeps(self, answer: Sequence[int], candidate: int) -> bool:
        """Whether `candidate` behind `answer` begins, continues or ends a sentence of this form."""
        return self._keeps(self._vocabulary.text_of(answer), candidate)

    def allowed(self, answer: Sequence[int]) -> Ids:
        """All ids that keep the form behind `answer`. None: the answer has left it already, and the
        rule says nothing any more."""
        text = self._vocabulary.text_of(answer)

        def make() -> Ids:
            ids = np.flatnonzero(~self._vocabulary.never)
            kept = [i for i in ids.tolist() if self._keeps(text, i)]
            return np.array(kept, dtype=np.int64)

        state = text if self._is_unvoiced(text) else self._place(text)
        result: Ids = self._vocabulary.cached(("form", self, state), make)
        return result

    def _keeps(self, text: str, candidate: int) -> bool:
        if candidate in self._vocabulary.eos:
            return self.is_whole(text)
        piece = self._vocabulary.texts[candidate]
        return self._begins(text + piece) if piece else False

    def _is_unvoiced(self, text: str) -> bool:
        return bool(self._no_speech) and self._no_speech.startswith(text)

    def _begins(self, text: str) -> bool:
        """Whether a sentence begins so, and the vocabulary can spell what is missing."""
        if self._is_unvoiced(text):
            return self._spells(self._no_speech[len(text) :])
        place = self._place(text)
        if place is None:
            return False
        return place.is_over or any(
            self._spells(rest) for rest in self._rests(place.said, place.clause, place.is_first)
        )

    def _place(self, text: str) -> Place | None:
        """Where `text` stands, None where no sentence begins so."""
        body, end, behind = text.partition(END)
        *clauses, last = body.split(COMMA)
        said = 0
        for i, clause in enumerate([*clauses, last] if end else clauses):
            bit = self._bit(clause, i == 0)
            if not bit or said & bit or behind:
                return None
            said |= bit
        if end:
            return Place(said, "", False, is_over=True) if said == self._all else None
        if said == self._all:
            return None  # a comma where the end belongs
        return Place(said, last, not clauses)

    def _bit(self, clause: str, is_first: bool) -> int:
        """The attribute whose phrase `clause` is, behind an opening where it is the first; 0: it is
        none."""
        starts = range(min(len(clause), MAX_OPENING + 1)) if is_first else range(1)
        bits = (self._bits.get(clause[at:], 0) for at in starts if self._opens(clause[:at]))
        return next(filter(None, bits), 0)

    def _opens(self, opening: str) -> bool:
        is_plain = not opening or (opening.isalnum() and PUNCTUATION.isdisjoint(opening))
        return is_plain and self._pairs.isdisjoint(pairwise(opening))

    def _rests(self, said: int, clause: str, is_first: bool) -> list[str]:
        """What may be missing of the clause; of an opening that goes on the whole of a phrase."""
        if not is_first:
            return [
                phrase[len(clause) :]
                for phrase, bit in self._bits.items()
                if not bit & said and phrase.startswith(clause)
            ]
        return [
            rest
            for at in range(min(len(clause), MAX_OPENING) + 1)
            if self._opens(clause[:at])
            for rest in self._rests(said, clause[at:], is_first=False)
        ]

    def _spells(self, text: str) -> bool:
        """Whether ids can be found whose texts are together just `text`."""
        known = self._can_spell.get(text)
        if known is None:
            known = any(
                text[:n] in self._spellings and self._spells(text[n:])
                for n in self._lengths
                if n <= len(text)
            )
            self._can_spell[text] = known
        return known

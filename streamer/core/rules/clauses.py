"""The text of a sentence. In: a card's phrases. Out: where a text stands, and what may follow it.

An opening, then one phrase for each attribute, in any order, with commas between them and an end
behind the last. This knows characters alone; form.py says which ids spell them.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from streamer.core.text.characters import PUNCTUATION

# attribute -> levels, each with its phrases, as core/attributes.py reads them
Phrases = Mapping[str, Sequence[Mapping[str, Any]]]
# attribute -> the lowest and the highest level that a sentence may say of it; others are free
Ranges = Mapping[str, tuple[int, int]]
FREE: Ranges = MappingProxyType({})
COMMA = "，"
END = "。"
MAX_OPENING = 8  # characters before the first phrase


class Place(NamedTuple):
    """Where a text stands. said: attributes, as bits; clause: what is behind the last comma."""

    said: int
    clause: str
    is_first: bool
    is_over: bool = False


class Clauses:
    """The texts that phrases allow. bits: of each phrase that may be said, its attribute's."""

    def __init__(self, bits: Mapping[str, int], whole: int, every: Collection[str]) -> None:
        """whole: the bits of all attributes; every: all phrases, also those that may not be said:
        an opening must hold no two neighbouring characters of any, or it would read as one."""
        self.bits = bits
        self._whole = whole
        self._pairs = {pair for phrase in every for pair in pairwise(phrase)}

    def of(self, bits: Mapping[str, int]) -> Clauses:
        """These, where only the phrases of `bits` may be said."""
        found = copy.copy(self)
        found.bits = bits
        return found

    def go(self, place: Place, piece: str) -> Place | None:
        """Where `piece` leads, None for nowhere; not whether its end can be spelled."""
        if place.is_over:
            return None
        body, end, behind = (place.clause + piece).partition(END)
        *clauses, last = body.split(COMMA)
        said = place.said
        for i, clause in enumerate([*clauses, last] if end else clauses):
            bit = self._bit(clause, place.is_first and i == 0)
            if not bit or said & bit or behind:
                return None
            said |= bit
        if end:
            return Place(said, "", False, is_over=True) if said == self._whole else None
        if said == self._whole:
            return None  # a comma where the end belongs
        return Place(said, last, place.is_first and not clauses)

    def opens(self, opening: str, following: str) -> bool:
        """Whether `opening` is one, before a phrase that begins with the character `following`."""
        is_plain = not opening or (opening.isalnum() and PUNCTUATION.isdisjoint(opening))
        return is_plain and self._pairs.isdisjoint(pairwise(opening + following))

    def may_open(self, place: Place) -> bool:
        """Whether an opening may go on there."""
        is_room = place.is_first and len(place.clause) < MAX_OPENING
        return is_room and self.opens(place.clause, "")

    def rests(self, place: Place) -> Iterator[str]:
        """What may be missing of the clause; of an opening that goes on the whole of a phrase."""
        clause = place.clause
        most = min(len(clause), MAX_OPENING) if place.is_first else 0
        for at in range(most, -1, -1):  # an opening first: most phrases may follow it
            for phrase, bit in self.bits.items():
                is_open = not bit & place.said and phrase.startswith(clause[at:])
                if is_open and self.opens(clause[:at], phrase[0]):
                    yield phrase[len(clause) - at :]

    def _bit(self, clause: str, is_first: bool) -> int:
        """The attribute whose phrase `clause` is, behind an opening if it is the first; else 0."""
        starts = range(min(len(clause), MAX_OPENING + 1)) if is_first else range(1)
        bits = (
            self.bits.get(clause[at:], 0)
            for at in starts
            if self.opens(clause[:at], clause[at : at + 1])
        )
        return next(filter(None, bits), 0)

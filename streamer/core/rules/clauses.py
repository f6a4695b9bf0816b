"""The texts that a sentence's form allows: openings, phrases and marks, without ids."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from streamer.core.text.characters import is_han

MAX_OPENING = 8  # characters before the first phrase


class Marks(NamedTuple):
    """The punctuation of a language. gap: before each phrase."""

    comma: str
    end: str
    gap: str = ""


CHINESE = Marks("，", "。")
LATIN = Marks(",", ".", " ")


def marks_of(language: str) -> Marks:
    """The marks of a language by its code, such as zh, zh-Hans or en."""
    return CHINESE if language.partition("-")[0] in ("zh", "yue", "ja") else LATIN


class Place(NamedTuple):
    """A state of the sentence: the attributes said, as bits, and the text after the last comma."""

    said: int
    clause: str
    is_first: bool
    is_over: bool = False


BEGIN = Place(0, "", is_first=True)


class Move(NamedTuple):
    """The state after an id, and the phrases that the id completes by a comma or an end."""

    state: Place
    phrases: tuple[str, ...] = ()


class Clauses:
    """The texts that the phrases allow; characters only, no ids.

    bits: the attribute of each phrase, which stands there with its gap. whole: the bits of all
    attributes. every: all phrases of the card. openings: a sentence begins with one of these.
    Without any it may begin with Han characters that hold no two neighbouring characters of any
    phrase, or they would read as one; and with none.
    """

    def __init__(
        self,
        bits: Mapping[str, int],
        whole: int,
        every: Collection[str],
        marks: Marks = CHINESE,
        openings: Sequence[str] = (),
    ) -> None:
        self.bits = bits
        self._whole = whole
        self._marks = marks
        self._openings = tuple(openings)
        self._pairs = {pair for phrase in every for pair in pairwise(phrase)}
        self._begun: dict[str, list[tuple[str, int]]] = {}  # beginning -> phrases with their bits
        for phrase, bit in bits.items():
            for n in range(len(phrase) + 1):
                self._begun.setdefault(phrase[:n], []).append((phrase, bit))

    def go(self, place: Place, piece: str) -> Move | None:
        """The state after `piece`; None where no sentence goes on so."""
        if place.is_over:
            return None
        body, end, rest = (place.clause + piece).partition(self._marks.end)
        *clauses, last = body.split(self._marks.comma)
        said = place.said
        completed = []
        for i, clause in enumerate([*clauses, last] if end else clauses):
            phrase = self._phrase(clause, place.is_first and i == 0)
            bit = self.bits.get(phrase, 0)
            if not bit or said & bit or rest:
                return None
            said |= bit
            completed.append(phrase)
        if end:
            over = Move(Place(said, "", False, is_over=True), tuple(completed))
            return over if said == self._whole else None
        if said == self._whole:
            return None  # a comma where the end belongs
        return Move(Place(said, last, place.is_first and not clauses), tuple(completed))

    def opens(self, opening: str) -> bool:
        """Whether `opening` may be one, the beginning of one, or none, where none is listed.

        Its characters are Han and all different, so that no rule against loops concerns it.
        """
        is_plain = all(map(is_han, opening)) and len(set(opening)) == len(opening)
        return is_plain and self._pairs.isdisjoint(pairwise(opening))

    def may_open(self, place: Place) -> bool:
        """Whether an opening that is not listed may go on there."""
        is_free = place.is_first and not self._openings
        return is_free and len(place.clause) < MAX_OPENING and self.opens(place.clause)

    def rests(self, place: Place) -> Iterator[tuple[str, str]]:
        """The phrases that the clause can still become, each with the text that is missing."""
        clause = place.clause
        if place.is_first and self._openings:
            yield from self._after_listed(place)
            return
        most = min(len(clause), MAX_OPENING) if place.is_first else 0
        for at in range(most, -1, -1):  # an opening first: most phrases may follow it
            if not self.opens(clause[:at]):
                continue
            begun = clause[at:]
            for phrase, bit in self._begun.get(begun, ()):
                if not bit & place.said and self._may_meet(clause[at - 1 : at], phrase[0]):
                    yield phrase, phrase[len(begun) :]

    def _after_listed(self, place: Place) -> Iterator[tuple[str, str]]:
        clause = place.clause
        for opening in self._openings:
            if not (opening.startswith(clause) or clause.startswith(opening)):
                continue
            left, begun = opening[len(clause) :], clause[len(opening) :]
            for phrase, bit in self._begun.get(begun, ()):
                if not bit & place.said:
                    yield phrase, left + phrase[len(begun) :]

    def _phrase(self, clause: str, is_first: bool) -> str:
        """The phrase of a clause, after an opening if it is the first; "" where there is none."""
        if is_first and self._openings:
            begun = filter(clause.startswith, self._openings)
            after = (clause[len(opening) :] for opening in begun)
            return next((phrase for phrase in after if phrase in self.bits), "")
        starts = range(min(len(clause), MAX_OPENING + 1)) if is_first else range(1)
        for at in starts:
            phrase = clause[at:]
            may_stand = phrase in self.bits and self.opens(clause[:at])
            if may_stand and self._may_meet(clause[at - 1 : at], phrase[0]):
                return phrase
        return ""

    def _may_meet(self, last: str, first: str) -> bool:
        """Whether an opening that ends with `last` may stand before a phrase; "": no opening."""
        return last != first and (last, first) not in self._pairs

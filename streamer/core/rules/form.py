"""The form of a sentence. In: a card's phrases, an answer's ids. Out: which ids keep the form.

A sentence is an opening and one phrase for each attribute, in any order, with commas between them
and an end behind the last. No attribute is missing, none stands twice, no phrase is a mixture of
two. The one other sentence is the card's own for a clip without speech.

The rule corrects: an id is chosen without it, and where it breaks the form, chosen again among
`allowed`. So a step pays for a look at the chosen id alone, and both sides, which look at the same
ids, do the same. Where the noise of chance stays the same, that is a draw from the allowed ids.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from streamer.core.rules.id_sets import Ids
from streamer.core.rules.spelling import Spelling
from streamer.core.text.characters import PUNCTUATION
from streamer.core.text.vocabulary import Vocabulary

# attribute -> levels, each with its phrases, as core/attributes.py reads them
Phrases = Mapping[str, Sequence[Mapping[str, Any]]]
# attribute -> the lowest and the highest level that a sentence may say of it; others are free
Ranges = Mapping[str, tuple[int, int]]
FREE: Ranges = MappingProxyType({})
COMMA = "，"
END = "。"
MAX_OPENING = 8  # characters before the first phrase
MAX_STEPS = 1 << 14  # that are remembered
MAX_SETS = 1 << 10  # of allowed ids, some dozens each


class Place(NamedTuple):
    """Where a text stands. said: attributes, as bits; clause: what is behind the last comma."""

    said: int
    clause: str
    is_first: bool
    is_over: bool = False


# A text that may yet be the sentence without speech is a place of its own: itself.
State = Place | str
BEGIN = ""


class SentenceForm:
    """The sentences that `phrases` allow, as a vocabulary can spell them.

    said: the attributes that they name, no word on the others; all where it is empty. no_speech:
    the sentence without a phrase. `can_be_said`: where False, the form is none to hold to.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        phrases: Phrases,
        no_speech: str = "",
        said: Collection[str] = (),
    ) -> None:
        self._vocabulary = vocabulary
        self._no_speech = no_speech
        self._named = {n: levels for n, levels in phrases.items() if not said or n in said}
        named = list(self._named.values())
        self._bits = {phrase: 1 << i for i, levels in enumerate(named) for phrase in _all(levels)}
        self._all = (1 << len(self._named)) - 1
        # An opening must hold no two neighbouring characters of any phrase: it would read as one.
        every = [phrase for levels in phrases.values() for phrase in _all(levels)]
        self._pairs = {pair for phrase in every for pair in pairwise(phrase)}
        self._spells = Spelling(vocabulary)
        spelled = {bit for phrase, bit in self._bits.items() if self._can_be_clause(phrase)}
        # Else every sentence would stop short, or be empty: where one attribute cannot be said.
        self.can_be_said = sum(spelled) == self._all
        self._steps: dict[tuple[State, int], State | None] = {}
        self._sets: dict[State, Ids] = {}
        self._wider: SentenceForm | None = None  # which allows all that this one does, and more

    def within(self, ranges: Ranges) -> SentenceForm:
        """The sentences of this form that say no level out of `ranges`. An attribute that would
        have no phrase left is free."""
        if not ranges:
            return self
        _ = self._by_head, self._openings  # shared by both, like what can be spelled
        found = copy.copy(self)
        found._bits = {}
        for name, levels in self._named.items():
            low, high = ranges.get(name, (0, len(levels)))
            inside = _all(levels[low : high + 1])
            kept = inside if any(map(self._can_be_clause, inside)) else _all(levels)
            found._bits |= {phrase: self._bits[phrase] for phrase in kept}
        found._steps = {}
        found._sets = {}
        found._wider = self
        return found

    @cached_property
    def _by_head(self) -> Mapping[str, Sequence[int]]:
        """The ids of the form's own characters alone, by their first one."""
        own = set(COMMA + END + self._no_speech).union(*self._bits)
        found: dict[str, list[int]] = {}
        for token in self._ids_where(lambda piece: piece != "" and own.issuperset(piece)):
            head = (self._vocabulary.texts[token] or "")[0]
            found.setdefault(head, []).append(token)
        return found

    @cached_property
    def _openings(self) -> Sequence[int]:
        """Those whose other characters may stand in an opening. A vocabulary of 150,000 has so few
        of both kinds that to look through them takes milliseconds."""
        own = set(COMMA + END + self._no_speech).union(*self._bits)

        def opens(piece: str) -> bool:
            others = [i for i, character in enumerate(piece) if character not in own]
            opening = piece[: others[-1] + 1] if others else ""
            return 0 < len(opening) <= MAX_OPENING and opening.isalnum()

        return self._ids_where(opens)

    def _ids_where(self, fits: Callable[[str], bool]) -> list[int]:
        texts = self._vocabulary.texts
        ids: list[int] = np.flatnonzero(~self._vocabulary.never).tolist()
        return [token for token in ids if fits(texts[token] or "")]

    def _can_be_clause(self, phrase: str) -> bool:
        return COMMA not in phrase and END not in phrase and self._spells(phrase)

    def is_whole(self, text: str) -> bool:
        """Whether `text` is a sentence of this form."""
        place = self._go(Place(0, "", is_first=True), text)
        return text == self._no_speech != "" or (place is not None and place.is_over)

    def behind(self, ids: Sequence[int], state: State | None = BEGIN) -> State | None:
        """Where `ids` lead from there. None: they left the form, and the rule says no more."""
        for token in ids:
            if state is None:
                break
            state = self.step(state, token)
        return state

    def step(self, state: State, token: int) -> State | None:
        """Where `token` leads, None where it breaks the form; an EOS id ends a whole sentence."""
        try:
            return self._steps[state, token]
        except KeyError:
            if len(self._steps) >= MAX_STEPS:
                self._steps.clear()
            found = self._steps[state, token] = self._step(state, token)
            return found

    def is_opening(self, state: State | None) -> bool:
        """Whether the form within any ranges leads there, too: nothing is said but a beginning of
        the sentence without speech, or an opening that each phrase of some attribute may follow."""
        if state is None or isinstance(state, str):
            return state is not None
        clause = state.clause
        if state.said or state.is_over or not state.is_first or len(clause) > MAX_OPENING:
            return False
        return any(all(self._opens(clause, head) for head in each) for each in self._heads)

    def says_nothing(self, state: State | None) -> bool:
        """Whether an opening stands there that is no beginning of anything: neither of a phrase nor
        of the sentence without speech."""
        if not isinstance(state, Place) or not self.is_opening(state):
            return False
        ends = [state.clause[at:] for at in range(len(state.clause))]
        return not any(phrase.startswith(end) for phrase in self._bits for end in ends)

    @cached_property
    def _heads(self) -> Sequence[set[str]]:
        """Of each attribute, what its phrases begin with."""
        found: dict[int, set[str]] = {}
        for phrase, bit in self._bits.items():
            if self._can_be_clause(phrase):
                found.setdefault(bit, set()).add(phrase[0])
        return list(found.values())

    def allowed(self, state: State) -> Ids:
        """All ids that keep the form there, ascending: one at least, where `step` led to it."""
        found = self._sets.get(state)
        if found is None:
            kept = [token for token in self._likely(state) if self._step(state, token) is not None]
            found = np.array(sorted(kept), dtype=np.int64)
            if len(self._sets) >= MAX_SETS:
                self._sets.clear()
            self._sets[state] = found
        return found

    def _likely(self, state: State) -> set[int]:
        """All ids that may keep the form there, by their first character, and few others."""
        if self._wider is not None:  # that one is kept, while one within ranges is a turn's own
            return set(self._wider.allowed(state).tolist())
        place = Place(0, state, is_first=True) if isinstance(state, str) else state
        rests = [COMMA + END if rest == "" else rest[0] for rest in self._rests(place)]
        heads = set("".join(rests))
        if isinstance(state, str):
            heads.update(self._no_speech[len(state) :][:1])
        found = set(self._vocabulary.eos).union(*(self._by_head.get(head, ()) for head in heads))
        may_open = place.is_first and len(place.clause) < MAX_OPENING
        if may_open and self._opens(place.clause, ""):
            found.update(self._openings, *self._by_head.values())
        return found

    def _step(self, state: State, token: int) -> State | None:
        if token in self._vocabulary.eos:
            return state if self._is_end(state) else None
        piece = self._vocabulary.texts[token]
        if not piece:
            return None
        if isinstance(state, str):
            text = state + piece
            if self._no_speech.startswith(text):
                return text if self._spells(self._no_speech[len(text) :]) else None
            state = Place(0, "", is_first=True)
            piece = text
        place = self._go(state, piece)
        if place is None or place.is_over or any(map(self._spells, self._rests(place))):
            return place
        return None

    def _is_end(self, state: State) -> bool:
        return state.is_over if isinstance(state, Place) else state == self._no_speech != ""

    def _go(self, place: Place, piece: str) -> Place | None:
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
            return Place(said, "", False, is_over=True) if said == self._all else None
        if said == self._all:
            return None  # a comma where the end belongs
        return Place(said, last, place.is_first and not clauses)

    def _bit(self, clause: str, is_first: bool) -> int:
        """The attribute whose phrase `clause` is, behind an opening if it is the first; else 0."""
        starts = range(min(len(clause), MAX_OPENING + 1)) if is_first else range(1)
        bits = (
            self._bits.get(clause[at:], 0)
            for at in starts
            if self._opens(clause[:at], clause[at : at + 1])
        )
        return next(filter(None, bits), 0)

    def _opens(self, opening: str, following: str) -> bool:
        """Whether `opening` is one, before a phrase that begins with the character `following`."""
        is_plain = not opening or (opening.isalnum() and PUNCTUATION.isdisjoint(opening))
        return is_plain and self._pairs.isdisjoint(pairwise(opening + following))

    def _rests(self, place: Place) -> Iterator[str]:
        """What may be missing of the clause; of an opening that goes on the whole of a phrase."""
        clause = place.clause
        most = min(len(clause), MAX_OPENING) if place.is_first else 0
        for at in range(most, -1, -1):  # an opening first: most phrases may follow it
            for phrase, bit in self._bits.items():
                is_open = not bit & place.said and phrase.startswith(clause[at:])
                if is_open and self._opens(clause[:at], phrase[0]):
                    yield phrase[len(clause) - at :]


def _all(levels: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every phrase of an attribute's levels."""
    return [phrase for level in levels for phrase in level["phrases"]]

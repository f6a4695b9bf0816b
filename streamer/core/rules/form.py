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
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from streamer.core.rules.clauses import COMMA, END, Clauses, Phrases, Place, Ranges
from streamer.core.rules.id_sets import Ids
from streamer.core.rules.own_ids import OwnIds
from streamer.core.rules.spelling import Spelling
from streamer.core.text.vocabulary import Vocabulary

MAX_STEPS = 1 << 14  # that are remembered
MAX_SETS = 1 << 10  # of allowed ids, some dozens each
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
        bits = {phrase: 1 << i for i, levels in enumerate(named) for phrase in _all(levels)}
        whole = (1 << len(named)) - 1
        every = [phrase for levels in phrases.values() for phrase in _all(levels)]
        self._clauses = Clauses(bits, whole, every)
        self._own = OwnIds(vocabulary, set(COMMA + END + no_speech).union(*bits))
        self._spells = Spelling(vocabulary)
        spelled = {bit for phrase, bit in bits.items() if self._can_be_clause(phrase)}
        # Else every sentence would stop short, or be empty: where one attribute cannot be said.
        self.can_be_said = sum(spelled) == whole
        self._steps: dict[tuple[State, int], State | None] = {}
        self._sets: dict[State, Ids] = {}
        self._wider: SentenceForm | None = None  # which allows all that this one does, and more

    def within(self, ranges: Ranges) -> SentenceForm:
        """The sentences of this form that say no level out of `ranges`. An attribute that would
        have no phrase left is free."""
        if not ranges:
            return self
        bits: dict[str, int] = {}
        for name, levels in self._named.items():
            low, high = ranges.get(name, (0, len(levels)))
            inside = _all(levels[low : high + 1])
            kept = inside if any(map(self._can_be_clause, inside)) else _all(levels)
            bits |= {phrase: self._clauses.bits[phrase] for phrase in kept}
        found = copy.copy(self)
        found._clauses = self._clauses.of(bits)
        found._steps = {}
        found._sets = {}
        found._wider = self
        return found

    def _can_be_clause(self, phrase: str) -> bool:
        return COMMA not in phrase and END not in phrase and self._spells(phrase)

    def is_whole(self, text: str) -> bool:
        """Whether `text` is a sentence of this form."""
        place = self._clauses.go(Place(0, "", is_first=True), text)
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
        rests = [COMMA + END if rest == "" else rest[0] for rest in self._clauses.rests(place)]
        heads = set("".join(rests))
        if isinstance(state, str):
            heads.update(self._no_speech[len(state) :][:1])
        found = set(self._vocabulary.eos).union(
            *(self._own.by_head.get(head, ()) for head in heads)
        )
        if self._clauses.may_open(place):
            found.update(self._own.openings, *self._own.by_head.values())
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
        place = self._clauses.go(state, piece)
        if place is None or place.is_over or any(map(self._spells, self._clauses.rests(place))):
            return place
        return None

    def _is_end(self, state: State) -> bool:
        return state.is_over if isinstance(state, Place) else state == self._no_speech != ""


def _all(levels: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every phrase of an attribute's levels."""
    return [phrase for level in levels for phrase in level["phrases"]]

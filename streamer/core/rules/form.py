"""The form of a sentence: which ids may follow, and how level weights favour them.

A sentence is an opening and one phrase of each attribute, in any order, with commas between the
phrases and an end after the last. No attribute is missing, none stands twice, and no phrase is a
mixture of two. There is no other sentence: voice activity alone judges whether somebody speaks, and
a turn without speech is not described. Each language has its own phrases, openings and marks, and
so a form of its own.

The form is a table: a state of the sentence gives the allowed ids and their biases. An id is chosen
among the allowed ones alone, by logit plus bias (streamer/model/sampler.py). The other rules are
for models without a form: tests/core/rules/test_grammar.py proves for each card that they would not
change a sentence of the form.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.core.rules.clauses import BEGIN, CHINESE, MAX_OPENING, Clauses, Marks, Move, Place
from streamer.core.rules.constrain import Ids
from streamer.core.rules.settings import UNITS_PER_NAT, LevelWeights
from streamer.core.text.characters import is_han
from streamer.core.text.vocabulary import Vocabulary

# attribute -> levels, each with its phrases, as core/attributes.py reads them
Phrases = Mapping[str, Sequence[Mapping[str, Any]]]
MAX_ROWS = 1 << 10  # states whose row is kept
MAX_MOVES = 1 << 14  # pairs of state and id that are kept


State = Place


class Kind(NamedTuple):
    """The effect of an id on the weights: phrases that it completes, and those that the last
    clause can still become after it."""

    completed: tuple[str, ...]
    open: frozenset[str]


Kinds = tuple[list[Kind], NDArray[np.int64], frozenset[str]]


class SentenceForm:
    """The sentences of `phrases`, as a vocabulary can spell them.

    said: the attributes that a sentence names; all where it is empty. openings: see Clauses; marks
    with a gap need some. `can_be_said` is False where the vocabulary spells no phrase of some
    attribute, or no opening: then the form must not be used. Threads may share a form.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        phrases: Phrases,
        said: Collection[str] = (),
        openings: Sequence[str] = (),
        marks: Marks = CHINESE,
    ) -> None:
        self._vocabulary = vocabulary
        self._marks = marks
        self._named = {n: levels for n, levels in phrases.items() if not said or n in said}
        named = list(self._named.values())
        bits = {
            marks.gap + phrase: 1 << i for i, levels in enumerate(named) for phrase in _all(levels)
        }
        whole = (1 << len(named)) - 1
        every = [phrase for levels in phrases.values() for phrase in _all(levels)]
        self._spells = Spelling(vocabulary)
        spelled = [opening for opening in openings if self._spells(opening)]
        self._clauses = Clauses(bits, whole, every, marks, spelled)
        own = set(marks.comma + marks.end).union(*bits, *openings)
        self._own = OwnIds(vocabulary, own, marks.comma + marks.end)
        # Without this every sentence would stop short: an attribute that cannot be said.
        clauses = {bit for phrase, bit in bits.items() if self._can_be_clause(phrase)}
        needs_opening = bool(openings) or marks.gap != ""
        self.can_be_said = whole == sum(clauses) and (bool(spelled) or not needs_opening)
        self._moves: dict[tuple[State, int], Move | None] = {}
        self._rows: dict[State, Ids] = {}
        self._kinds: dict[State, Kinds] = {}
        self._weight_of: dict[str, int] = {}  # of each phrase whose weight is not 0
        self._biases: dict[State, NDArray[np.float64]] = {}
        self._best: dict[frozenset[str], int] = {}  # of phrases that are still open

    def weighted(self, weights: LevelWeights) -> SentenceForm:
        """This form under level weights. The table of ids is shared; only the biases differ.

        Weights of an attribute that has another number of levels here are ignored.
        """
        weight_of = {
            self._marks.gap + phrase: weight
            for name, levels in self._named.items()
            if len(weights.get(name, ())) == len(levels)
            for level, weight in zip(levels, weights[name], strict=True)
            for phrase in level["phrases"]
            if weight
        }
        if weight_of == self._weight_of:
            return self
        found = copy.copy(self)
        found._weight_of = weight_of
        found._biases = {}
        found._best = {}
        return found

    def is_whole(self, text: str) -> bool:
        """Whether `text` is a sentence of this form."""
        move = self._clauses.go(Place(0, "", is_first=True), text)
        return move is not None and move.state.is_over

    def after(self, ids: Sequence[int], state: State | None = BEGIN) -> State | None:
        """The state after `ids`; None: they left the form, which then says nothing more."""
        for token in ids:
            if state is None:
                break
            state = self.step(state, token)
        return state

    def step(self, state: State, token: int) -> State | None:
        """The state after `token`, None where it breaks the form. EOS may follow a whole sentence,
        whose state stays."""
        move = self._move(state, token)
        return None if move is None else move.state

    def allowed(self, state: State) -> Ids:
        """All ids that keep the form there, ascending [n] int64; at least one."""
        found = self._rows.get(state)
        if found is None:
            kept = [token for token in self._likely(state) if self._make(state, token) is not None]
            found = np.array(sorted(kept), dtype=np.int64)
            _keep(self._rows, state, found, MAX_ROWS)
        return found

    def biases(self, state: State) -> NDArray[np.float64] | None:
        """Biases of the logits of `allowed(state)` [n]; None: none.

        Let B(text) be the weights of its whole phrases, plus the best weight among the phrases that
        its last clause can still become. An id's bias is B after it less B before it, in nats. So
        the biases of a phrase add up to its level's weight, however it is spelled, and flat
        weights are no bias. All numbers are multiples of 1/32: exact, and the same on both sides.
        """
        if not self._weight_of:
            return None
        found = self._biases.get(state)
        if found is None:
            kinds, which, still_open = self._kinds_of(state)
            before = self._best_of(still_open)
            gains = [self._best_of(kind.open) - before for kind in kinds]
            for i, kind in enumerate(kinds):
                for phrase in kind.completed:
                    gains[i] += self._weight_of.get(phrase, 0)
            found = np.array(gains, np.float64)[which] / UNITS_PER_NAT
            _keep(self._biases, state, found, MAX_ROWS)
        return found

    def _kinds_of(self, state: State) -> Kinds:
        """The kinds of the ids that are allowed there, each id's place among them [n], and the
        phrases that the last clause can still become before them."""
        found = self._kinds.get(state)
        if found is None:
            numbers: dict[Kind, int] = {}
            which = []
            for token in self.allowed(state).tolist():
                move = self._move(state, token)
                assert move is not None, "the id is allowed"
                kind = Kind(move.phrases, self._open_after(move.state))
                which.append(numbers.setdefault(kind, len(numbers)))
            found = list(numbers), np.array(which, np.int64), self._open_after(state)
            _keep(self._kinds, state, found, MAX_ROWS)
        return found

    def _open_after(self, state: State) -> frozenset[str]:
        """The phrases that the last clause can still become."""
        rests = () if state.is_over else self._clauses.rests(state)
        return frozenset(phrase for phrase, rest in rests if self._spells(rest))

    def _best_of(self, phrases: frozenset[str]) -> int:
        """The best weight of some phrases; 0 where there is none."""
        found = self._best.get(phrases)
        if found is None:
            found = max((self._weight_of.get(phrase, 0) for phrase in phrases), default=0)
            _keep(self._best, phrases, found, MAX_ROWS)
        return found

    def _can_be_clause(self, phrase: str) -> bool:
        comma, end, _ = self._marks
        return comma not in phrase and end not in phrase and self._spells(phrase)

    def _move(self, state: State, token: int) -> Move | None:
        try:
            return self._moves[state, token]
        except KeyError:
            found = self._make(state, token)
            _keep(self._moves, (state, token), found, MAX_MOVES)
            return found

    def _make(self, state: State, token: int) -> Move | None:
        if token in self._vocabulary.eos:
            return Move(state) if state.is_over else None
        piece = self._vocabulary.texts[token]
        if not piece:
            return None
        move = self._clauses.go(state, piece)
        if move is None or move.state.is_over:
            return move
        rests = self._clauses.rests(move.state)
        return move if any(self._spells(rest) for _, rest in rests) else None

    def _likely(self, state: State) -> set[int]:
        """All ids that may keep the form there, and few others.

        An id is the beginning of a missing text, or it goes on past a mark.
        """
        missing = {rest for _, rest in self._clauses.rests(state)}
        begun = {rest[:n] for rest in missing for n in range(1, len(rest) + 1)}
        heads = {head for rest in missing for head in rest[:1] or self._marks[:2]}
        own = self._own
        found = set(self._vocabulary.eos)
        found.update(*(own.of_text.get(text, ()) for text in begun))
        found.update(*(own.past_marks.get(head, ()) for head in heads))
        if self._clauses.may_open(state):
            found.update(own.openings, *own.of_text.values())
        return found


class OwnIds:
    """The ids that can stand in a sentence of `characters`, `marks` among them, and an opening.

    A vocabulary of 150,000 ids is searched once; searching it for each state would take
    milliseconds.
    """

    def __init__(self, vocabulary: Vocabulary, characters: set[str], marks: str) -> None:
        self._vocabulary = vocabulary
        self._own = characters
        self._marks = frozenset(marks)

    @cached_property
    def of_text(self) -> Mapping[str, Sequence[int]]:
        """The ids of own characters alone, by their text."""
        found: dict[str, list[int]] = {}
        for token in self._where(lambda piece: piece != "" and self._own.issuperset(piece)):
            found.setdefault(self._vocabulary.texts[token] or "", []).append(token)
        return found

    @cached_property
    def past_marks(self) -> Mapping[str, Sequence[int]]:
        """Those of them that hold a mark, by their first character."""
        found: dict[str, list[int]] = {}
        for text, ids in self.of_text.items():
            if not self._marks.isdisjoint(text):
                found.setdefault(text[0], []).extend(ids)
        return found

    @cached_property
    def openings(self) -> Sequence[int]:
        """The ids whose other characters may stand in an opening."""

        def opens(piece: str) -> bool:
            others = [i for i, character in enumerate(piece) if character not in self._own]
            opening = piece[: others[-1] + 1] if others else ""
            return 0 < len(opening) <= MAX_OPENING and all(map(is_han, opening))

        return self._where(opens)

    def _where(self, fits: Callable[[str], bool]) -> list[int]:
        texts = self._vocabulary.texts
        ids: list[int] = np.flatnonzero(~self._vocabulary.never).tolist()
        return [token for token in ids if fits(texts[token] or "")]


class Spelling:
    """Whether a text can be joined from texts of ids."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._texts = frozenset(filter(None, vocabulary.texts))
        self._lengths = range(1, 1 + max(map(len, self._texts), default=0))
        self._known: dict[str, bool] = {"": True}

    def __call__(self, text: str) -> bool:
        known = self._known.get(text)
        if known is None:
            known = any(
                text[:n] in self._texts and self(text[n:]) for n in self._lengths if n <= len(text)
            )
            self._known[text] = known
        return known


def _all(levels: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every phrase of an attribute's levels."""
    return [phrase for level in levels for phrase in level["phrases"]]


def _keep(table: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    if len(table) >= most:
        table.clear()  # atomic: a concurrent reader makes its entry again
    table[key] = value

"""The form of a sentence: which ids may follow, and how level weights favour them.

A sentence is an opening and one phrase of each attribute, in any order, with commas between the
phrases and an end after the last. No attribute is missing, none stands twice, and no phrase is a
mixture of two. There is no other sentence: voice activity alone judges whether somebody speaks, and
a turn without speech is not described. Each language has its own phrases, openings and marks, and
so a form of its own. Where a card lists no opening, a sentence begins with its first phrase.

The form is a table: a state of the sentence gives the allowed ids and their biases. An id is chosen
among the allowed ones alone, by logit plus bias (streamer/model/decoding.py). The other rules are
for models without a form: test_grammar.py proves for each card that they change no sentence of it.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.core.attributes import Phrases
from streamer.core.rules.settings import UNITS_PER_NAT, LevelWeights
from streamer.core.text.vocabulary import Ids, Vocabulary

MAX_ROWS = 1 << 10  # states whose row is kept
MAX_MOVES = 1 << 14  # pairs of state and id that are kept


class Marks(NamedTuple):
    """The punctuation of a language. gap: before each phrase."""

    comma: str
    end: str
    gap: str = ""


CHINESE = Marks("，", "。")


def marks_of(language: str) -> Marks:
    """The marks of a language by its code, such as zh, zh-Hans or en."""
    return CHINESE if language.partition("-")[0] in ("zh", "yue", "ja") else Marks(",", ".", " ")


class State(NamedTuple):
    """The attributes said, as bits, and the text after the last comma."""

    said: int
    clause: str
    is_over: bool = False


BEGIN = State(0, "")


class Move(NamedTuple):
    """The state after an id, and the phrases that the id completes by a comma or an end."""

    state: State
    phrases: tuple[str, ...] = ()


class SentenceForm:
    """The sentences of `phrases`, as a vocabulary can spell them.

    said: the attributes that a sentence names; all where it is empty. openings: a sentence begins
    with one of these; marks with a gap need some. `can_be_said` is False where the vocabulary
    spells no phrase of some attribute, or no opening: then the form must not be used. Threads may
    share a form.
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
        self._whole = (1 << len(self._named)) - 1
        ids_of = vocabulary.cached("ids by text", lambda: _ids_by_text(vocabulary))

        @cache  # bounded: the texts are phrases and their ends
        def spells(text: str) -> bool:
            ends = range(1, 1 + len(text))
            return not text or any(text[:n] in ids_of and spells(text[n:]) for n in ends)

        self._ids_of, self._spells = ids_of, spells
        # the text of a clause -> its phrase, and the bit of the phrase's attribute
        self._later: dict[str, tuple[str, int]] = {}
        for i, levels in enumerate(self._named.values()):
            for phrase in (phrase for level in levels for phrase in level["phrases"]):
                if marks.comma not in phrase and marks.end not in phrase:
                    self._later[marks.gap + phrase] = (phrase, 1 << i)
        spelled = [opening for opening in openings if spells(opening)]
        begins = spelled if openings else [""]
        self._first = {begin + text: of for begin in begins for text, of in self._later.items()}
        bits = {bit for text, (_, bit) in self._later.items() if spells(text)}
        # Without this every sentence would stop short: an attribute that cannot be said.
        self.can_be_said = self._whole == sum(bits) and bool(spelled if openings else not marks.gap)
        # ids that hold a mark, and only characters of sentences
        own, ends = set("".join([*marks, *self._first])), {marks.comma, marks.end}
        past_marks = [t for t in ids_of if own.issuperset(t) and not ends.isdisjoint(t)]
        self._past_marks = frozenset(token for text in past_marks for token in ids_of[text])
        # The tables, which weighted forms share.
        self._move = lru_cache(MAX_MOVES)(self._make)
        self.allowed = lru_cache(MAX_ROWS)(self._allowed)
        self._rests = lru_cache(MAX_ROWS)(self._missing)
        self._reach = lru_cache(MAX_ROWS)(self._reachable)
        self._weigh({})

    def weighted(self, weights: LevelWeights) -> SentenceForm:
        """This form under level weights. The table of ids is shared; only the biases differ.

        Weights of an attribute that has another number of levels here are ignored.
        """
        found = copy.copy(self)
        found._weigh(weights)
        return found

    def is_whole(self, text: str) -> bool:
        """Whether `text` is a sentence of this form."""
        move = self._go(BEGIN, text)
        return move is not None and move.state.is_over

    def after(self, ids: Sequence[int]) -> State | None:
        """The state after `ids`; None: they left the form, which then says nothing more."""
        state: State | None = BEGIN
        for token in ids:
            if state is not None:
                state = self.step(state, token)
        return state

    def step(self, state: State, token: int) -> State | None:
        """The state after `token`, None where it breaks the form. EOS may follow a whole sentence,
        whose state stays."""
        move = self._move(state, token)
        return None if move is None else move.state

    def _allowed(self, state: State) -> Ids:
        """All ids that keep the form there, ascending [n] int64; at least one."""
        likely: Collection[int] = self._vocabulary.eos
        if not state.is_over:  # an id is the beginning of a missing text, or it holds a mark
            rests = self._rests(state)
            begun = {rest[:n] for rest in rests for n in range(1, len(rest) + 1)}
            likely = self._past_marks.union(*(self._ids_of.get(text, ()) for text in begun))
        kept = [token for token in likely if self._move(state, token) is not None]
        return np.array(sorted(kept), dtype=np.int64)

    def guess(self, ids: Sequence[int], most: int) -> list[int]:
        """Ids that may well come after `ids`, at most `most`, none of which ends the sentence. The
        model finds them right or wrong."""
        sentence = list(ids)
        state, last = BEGIN, -1  # the place of the attribute named last
        for i in range(len(ids) + max(most, 0)):
            if i == len(sentence) and (likely := self._likely_id(state, last)) is not None:
                sentence.append(likely)
            after = self.step(state, sentence[i]) if i < len(sentence) else None
            if after is None or after.is_over:
                return sentence[len(ids) : i]
            if after.said != state.said:
                last = (after.said - state.said).bit_length() - 1
            state = after
        return sentence[len(ids) :]

    def _likely_id(self, state: State, last: int) -> int | None:
        """The id that is allowed; else one that spells the first phrase of an attribute's best
        level. None: unknown. The attribute is the next one in the card's order; after its end
        comes its begin. Wherever a sentence began, the card's last attribute ends it."""
        if len(allowed := self.allowed(state)) == 1:
            return int(allowed[0])
        end = len(self._likely) - 1
        for place in (*range(last + 1, end), *range(min(last + 1, end)), end):
            for rest, phrase in self._rests(state).items():  # the first opening comes first
                if phrase == self._likely[place]:
                    is_last = state.said | 1 << place == self._whole
                    rest += self._marks.end if is_last else self._marks.comma
                    spelled = (self._ids_of.get(rest[:n]) for n in range(len(rest), 0, -1))
                    return next((ids[0] for ids in spelled if ids), None)
        return None

    def biases(self, state: State) -> NDArray[np.float64] | None:
        """Biases of the logits of `allowed(state)` [n]; None: none.

        Let B(text) be the weights of its whole phrases, plus the best weight among the phrases that
        its last clause can still become. An id's bias is B after it less B before it, in nats. So
        the biases of a phrase add up to its level's weight, however it is spelled, and flat
        weights are no bias. All numbers are multiples of 1/32: exact, and the same on both sides.
        """
        if not self._weights.any():
            return None
        whole, is_open = self._reach(state)
        best = np.where(is_open, self._weights, -np.inf).max(1)
        return (whole @ self._weights + best[:-1] - best[-1]) / UNITS_PER_NAT

    def _reachable(self, state: State) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """How often each allowed id completes each level [n, levels + 1], and whether the clause
        after it can still become it [n + 1, levels + 1]; the last row is of the clause before it,
        the last column of no level."""
        moves = [self._move(state, token) for token in self.allowed(state).tolist()]
        size = len(self._weights)
        whole, is_open = np.zeros((len(moves), size)), np.zeros((len(moves) + 1, size), bool)
        for i, move in enumerate([*moves, Move(state)]):
            assert move is not None, "the ids are allowed"
            for phrase in move.phrases:
                whole[i, self._level_of[phrase]] += 1
            is_open[i, [self._level_of[of] for of in self._rests(move.state).values()] or -1] = True
        return whole, is_open

    def _weigh(self, weights: LevelWeights) -> None:
        flat: list[int] = []
        self._level_of: dict[str, int] = {}  # of each phrase the place in `_weights`
        self._likely: list[str] = []  # the first phrase of each attribute's best level
        for name, levels in self._named.items():
            own = weights.get(name, ())
            own = own if len(own) == len(levels) else (0,) * len(levels)
            for place, level in enumerate(levels, len(flat)):
                self._level_of |= dict.fromkeys(level["phrases"], place)
            self._likely.append(levels[own.index(max(own))]["phrases"][0])
            flat += own
        self._weights = np.array([*flat, 0], np.float64)

    def _missing(self, state: State) -> Mapping[str, str]:
        """Texts that ids can spell and that complete the clause to a phrase -> that phrase."""
        if state.is_over:
            return {}
        n = len(state.clause)
        return {
            text[n:]: phrase
            for text, (phrase, bit) in (self._later if state.said else self._first).items()
            if not bit & state.said and text.startswith(state.clause) and self._spells(text[n:])
        }

    def _make(self, state: State, token: int) -> Move | None:
        if token in self._vocabulary.eos:
            return Move(state) if state.is_over else None
        piece = self._vocabulary.texts[token]
        move = self._go(state, piece) if piece else None
        is_dead = move is not None and not move.state.is_over and not self._rests(move.state)
        return None if is_dead else move

    def _go(self, state: State, piece: str) -> Move | None:
        """The state after `piece`; None where no sentence goes on so."""
        if state.is_over:
            return None
        body, end, rest = (state.clause + piece).partition(self._marks.end)
        *clauses, last = body.split(self._marks.comma)
        said = state.said
        completed = []
        for clause in [*clauses, last] if end else clauses:
            phrase, bit = (self._later if said else self._first).get(clause, ("", 0))
            if not bit or said & bit or rest:
                return None
            said |= bit
            completed.append(phrase)
        if end:
            over = Move(State(said, "", is_over=True), tuple(completed))
            return over if said == self._whole else None
        return Move(State(said, last), tuple(completed))


def _ids_by_text(vocabulary: Vocabulary) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = {}
    for token in np.flatnonzero(~vocabulary.never).tolist():
        if text := vocabulary.texts[token]:
            found.setdefault(text, []).append(token)
    return found

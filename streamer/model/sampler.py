"""Logits to ids: the choice of the next id of an answer, and the gate's numbers.

Where the model's card gives a form of the sentence (core/rules/form.py), an id is chosen among the
ids that keep the form, by logit plus bias. Else the order of docs/decoding.md holds: repetition
penalty, bans and soft biases, temperature once, choice. The edge's drafts and the cloud's
corrections are chosen by the same code, and a row's result does not depend on other rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.core.decoding.plan import Signal
from streamer.core.rules.constrain import Constraint, constrain, stop
from streamer.core.rules.form import BEGIN, SentenceForm, State
from streamer.core.rules.settings import Rules, Sampling, gumbel
from streamer.core.text.vocabulary import Ids, Vocabulary
from streamer.model.kernels.library import PANEL, kernel

BANNED = -math.inf
NO_SCORES = np.empty(0)  # no form: a signal is of the raw softmax alone
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Choices:
    """One id per row, and one signal per row where they were wanted."""

    ids: list[int]
    signals: list[Signal]


def choose(
    logits: Floats,
    constraints: Sequence[Constraint],
    vocabulary_mask: NDArray[np.bool_] | None,
    sampling: Sampling,
    rules: Rules,
    with_signals: bool = True,
) -> Choices:
    """Choose one id per row of the raw `logits` [R, V] float32, which are not changed.

    `vocabulary_mask` [V] bool: `vocabulary.never`; used where `rules.clean`. Equal logits: the
    lowest id. `with_signals` False leaves the signals out.
    """
    scores = processed(logits, constraints, vocabulary_mask, rules)
    ids = pick(scores, constraints, sampling, rules)
    return Choices(ids, signals_of(logits, ids) if with_signals else [])


def processed(
    logits: Floats,
    constraints: Sequence[Constraint],
    vocabulary_mask: NDArray[np.bool_] | None,
    rules: Rules,
) -> Floats:
    """New scores [R, V] float32 by all rules, banned ids at -inf, none of a row's all so."""
    mask = vocabulary_mask if rules.clean else None
    rows = zip(np.asarray(logits, np.float32), constraints, strict=True)
    return np.stack([_ruled(row, constraint, mask) for row, constraint in rows])


def _ruled(raw: Floats, c: Constraint, mask: NDArray[np.bool_] | None) -> Floats:
    """One row under its rules. Where every id is banned, the n-gram ban is dropped, then adjacency,
    then commas; at last EOS is left."""
    scores = raw.copy()
    old = scores[c.penalised]
    penalty = np.float32(c.penalty)
    # CTRL, arXiv 1909.05858
    scores[c.penalised] = np.where(old > 0, old / penalty, old * penalty)
    scores[c.lowered] -= np.float32(c.bias)
    if c.only is not None:  # a character is split: only what may follow its first half counts
        kept = scores[c.only]
        scores[:] = BANNED
        scores[c.only] = kept
    elif mask is not None:
        scores[mask] = BANNED
    scores[c.never] = BANNED
    tiers = (c.commas, c.adjacency, c.ngram)
    for num_tiers in (3, 2, 1, 0):
        left = scores.copy() if num_tiers else scores
        for banned in tiers[:num_tiers]:
            left[banned] = BANNED
        if left.max() > BANNED:
            return left
    scores[c.fallback] = 0.0
    return scores


def pick(
    scores: Floats, constraints: Sequence[Constraint], sampling: Sampling, rules: Rules
) -> list[int]:
    """One id per row of `processed` logits: greedy or Gumbel-max, then the local rule."""
    ids = []
    for row, constraint in zip(scores, constraints, strict=True):
        if sampling.temperature == 0.0:
            token = int(row.argmax())  # of equal scores the first
        else:
            token = _draw(row, constraint.index, sampling)
        if rules.loop_local and constraint.recent.count(token) >= rules.loop_count:
            token = _redraw(row, constraint.index, sampling, rules)
        ids.append(token)
    return ids


def _draw(scores: Floats, index: int, sampling: Sampling) -> int:
    """Gumbel-max over one row's top-p set [V]: a draw from softmax(scores / T) within it."""
    ids = np.flatnonzero(scores > BANNED)
    return _draw_of(ids, scores[ids].astype(np.float64), index, sampling)


def _draw_of(ids: Ids, scores: NDArray[np.float64], index: int, sampling: Sampling) -> int:
    heated = scores / sampling.temperature
    if sampling.top_p < 1.0:
        kept = _nucleus(heated, sampling.top_p)
        ids = ids[kept]
        heated = heated[kept]
    return int(ids[np.argmax(heated + gumbel(sampling.seed, index, ids))])


def _nucleus(heated: NDArray[np.float64], top_p: float) -> Ids:
    """Places, ascending, of the smallest set that holds `top_p` (arXiv 1904.09751)."""
    weights = np.exp(heated - heated.max())
    total = weights.sum()
    # All ids below this weight hold less than 1 - top_p together, so the set lies above it:
    # sort only that.
    likely = np.flatnonzero(weights >= (1.0 - top_p) * total / len(weights))
    order = likely[np.argsort(-weights[likely], kind="stable")]
    before = np.cumsum(weights[order]) - weights[order]
    return np.sort(order[before < top_p * total])


def _redraw(scores: Floats, index: int, sampling: Sampling, rules: Rules) -> int:
    """Among the top 5 at T 0.8, with the same noise as every other draw at this place."""
    top = np.argsort(-scores, kind="stable")[: rules.loop_top]
    heated = scores[top].astype(np.float64) / rules.loop_temperature
    return int(top[np.argmax(heated + gumbel(sampling.seed, index, top))])


def choose_in_form(ids: Ids, scores: NDArray[np.float64], index: int, sampling: Sampling) -> int:
    """The best of the allowed `ids` [n] by their `scores` [n], logit plus bias.

    With a temperature, a draw from softmax(scores / T) within them, and within the top-p set of
    these. index: place of the id in the answer. Equal scores: the lowest id.
    """
    if len(ids) == 1:
        return int(ids[0])
    if sampling.temperature == 0.0:
        return int(ids[scores.argmax()])
    return _draw_of(ids, scores, index, sampling)


def form_scores(logits: Floats, form: SentenceForm, state: State) -> NDArray[np.float64]:
    """Logit plus bias of each allowed id, in the order of `form.allowed`."""
    allowed = form.allowed(state)
    scores = logits[allowed].astype(np.float64)
    biases = form.biases(state) if len(allowed) > 1 else None
    return scores if biases is None else scores + biases


def signals_of(logits: Floats, ids: Iterable[int]) -> list[Signal]:
    """The gate's numbers from the RAW softmax of `logits` [R, V], V >= 2, for the chosen `ids`."""
    rows = zip(np.asarray(logits, np.float32), ids, strict=True)
    return [form_signal(np.ascontiguousarray(row), NO_SCORES, token) for row, token in rows]


def form_signal(logits: Floats, scores: NDArray[np.float64], token: int) -> Signal:
    """The gate's numbers for an id chosen in a form by `scores`, those of the allowed ids.

    entropy and margin: of the softmax of the scores. The measures decide most levels, so doubts of
    the raw softmax matter little. log_prob: of the raw softmax; the confidence needs the model's
    own.
    """
    lanes, numbers = np.empty((2, PANEL)), np.empty(3)  # work memory, the result
    kernel("measure")(logits, np.array([token]), scores, lanes, numbers)
    return Signal(*numbers.tolist())


# an id; whether the answer ends with it; its signal, zeros where none was wanted
Choice = tuple[int, bool, Signal]
_NO_SIGNAL = Signal(0.0, 0.0, 0.0)


class Sampler:
    """Chooses the ids of one answer. `begin` with the answer, then `next` for each id, or `judge`
    for a draft.

    form: of the sentence; None: the rules decide. Once ids have left the form (another drafter's,
    committed unverified), the rules decide, too. Not thread-safe.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        rules: Rules,
        sampling: Sampling,
        form: SentenceForm | None = None,
    ) -> None:
        self._vocabulary = vocabulary
        self._rules = rules
        self._sampling = sampling
        self._form = form
        self._answer: list[int] = []
        self._states: list[State | None] = [BEGIN]  # before each id of the answer, and after all

    def begin(self, answer: Sequence[int]) -> None:
        """Set the answer so far, committed or not."""
        kept = 0
        for one, other in zip(self._answer, answer, strict=False):
            if one != other:
                break
            kept += 1
        del self._answer[kept:], self._states[kept + 1 :]
        for token in answer[kept:]:
            self._append(token)

    def next(self, logits: Floats, wants_signal: bool = True) -> Choice:
        """Choose the id after the answer from one row of raw `logits` [V], and append it."""
        token, signal = self._choose(logits, wants_signal)
        is_last = stop(self._vocabulary, self._rules, self._answer, token) is not None
        self._append(token)
        return token, is_last, signal

    def forced(self, most: int) -> list[int]:
        """The ids after the answer that are sure without logits, at most `most`: each is the only
        one that the form allows, and none ends the answer."""
        found: list[int] = []
        state = self._states[-1]
        while self._form is not None and state is not None and len(found) < most:
            allowed = self._form.allowed(state)
            answer = [*self._answer, *found]
            if len(allowed) > 1 or stop(self._vocabulary, self._rules, answer, int(allowed[0])):
                break
            found.append(int(allowed[0]))
            state = self._form.step(state, found[-1])
        return found

    def judge(
        self, logits: Floats, answer: Sequence[int], num_drafted: int, tells: bool = True
    ) -> tuple[list[int], list[float]]:
        """Choose an id for each of the last `num_drafted` + 1 places of `answer`, whose last
        `num_drafted` ids are a draft: from logits [num_drafted + 1, V].

        Returns the ids, and their log-probabilities up to the first id that differs from the draft;
        no log-probabilities where `tells` is False.
        """
        first = len(answer) - num_drafted
        self.begin(answer[:first])
        ids: list[int] = []
        log_probs: list[float] = []
        for row in range(num_drafted + 1):
            tells = tells and ids == list(answer[first : first + row])
            token, signal = self._choose(logits[row], tells)
            ids.append(token)
            if tells:
                log_probs.append(signal.log_prob)
            if row < num_drafted:
                self._append(answer[first + row])
        return ids, log_probs

    def _append(self, token: int) -> None:
        state = self._states[-1]
        if state is not None and self._form is not None:
            state = self._form.step(state, token)
        self._answer.append(token)
        self._states.append(state)

    def _choose(self, logits: Floats, wants_signal: bool) -> tuple[int, Signal]:
        state = self._states[-1]
        index = len(self._answer)
        if self._form is None or state is None:
            constraint = constrain(self._vocabulary, self._rules, self._answer)
            mask = self._vocabulary.never
            rows = logits[None]
            [token] = choose(rows, [constraint], mask, self._sampling, self._rules, False).ids
            return token, signals_of(logits[None], [token])[0] if wants_signal else _NO_SIGNAL
        scores = form_scores(logits, self._form, state)
        token = choose_in_form(self._form.allowed(state), scores, index, self._sampling)
        return token, form_signal(logits, scores, token) if wants_signal else _NO_SIGNAL

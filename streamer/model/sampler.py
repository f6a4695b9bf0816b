"""Logits to ids: the choice of the next id of an answer, and the gate's numbers.

Where the model's card gives a form of the sentence (core/rules/form.py), an id is chosen among the
ids that keep the form, by logit plus bias. Else the order of docs/decoding.md holds: repetition
penalty, bans and soft biases, temperature once, choice. The edge's drafts and the cloud's
corrections are chosen by the same code, and a row's result does not depend on other rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.core.decoding.plan import Signal
from streamer.core.rules.constrain import Constraint, constrain
from streamer.core.rules.form import SentenceForm, State
from streamer.core.rules.settings import LOOP_COUNT, Rules, Sampling, gumbel
from streamer.core.text.vocabulary import Ids, Vocabulary

BANNED = -math.inf
END_BIAS = np.float32(8.0)  # under a sentence end that comes early
LOOP_TOP, LOOP_TEMPERATURE = 5, 0.8  # of a draw in place of a local loop
Floats = NDArray[np.float32]


def choose(
    logits: Floats, c: Constraint, vocabulary: Vocabulary, sampling: Sampling, rules: Rules
) -> int:
    """The id for one row of raw `logits` [V] float32, which are not changed. Equal scores: the
    lowest id."""
    return pick(ruled(logits, c, vocabulary, rules), c, sampling, rules)


def ruled(raw: Floats, c: Constraint, vocabulary: Vocabulary, rules: Rules) -> Floats:
    """New scores [V] by all rules, banned ids at -inf. Where every id is banned, the n-gram ban is
    dropped, then adjacency, then commas; at last EOS is left."""
    scores = raw.copy()
    old = scores[c.penalised]
    penalty = np.float32(rules.repetition_penalty)
    # CTRL, arXiv 1909.05858
    scores[c.penalised] = np.where(old > 0, old / penalty, old * penalty)
    scores[c.lowered] -= END_BIAS
    if rules.clean:
        scores[vocabulary.never] = BANNED
    scores[c.never] = BANNED
    tiers = (c.commas, c.adjacency, c.ngram)
    for num_tiers in (3, 2, 1, 0):
        left = scores.copy() if num_tiers else scores
        for banned in tiers[:num_tiers]:
            left[banned] = BANNED
        if left.max() > BANNED:
            return left
    scores[vocabulary.fallback] = 0.0
    return scores


def pick(scores: Floats, c: Constraint, sampling: Sampling, rules: Rules) -> int:
    """The id by `ruled` scores [V]: greedy or Gumbel-max, then the local rule."""
    if sampling.temperature == 0.0:
        token = int(scores.argmax())  # of equal scores the first
    else:
        ids = np.flatnonzero(scores > BANNED)
        token = draw(ids, scores[ids].astype(np.float64), c.index, sampling)
    if rules.loop_local and c.recent.count(token) >= LOOP_COUNT:
        top = np.argsort(-scores, kind="stable")[:LOOP_TOP]
        milder = replace(sampling, temperature=LOOP_TEMPERATURE, top_p=1.0)
        token = draw(top, scores[top].astype(np.float64), c.index, milder)
    return token


def draw(ids: Ids, scores: NDArray[np.float64], index: int, sampling: Sampling) -> int:
    """One of `ids` [n] by their `scores` [n]: a draw by Gumbel-max from softmax(scores / T) within
    the top-p set of these; without a temperature the best, of equal scores the lowest id.

    index: place of the id in the answer.
    """
    if sampling.temperature == 0.0:
        return int(ids[scores.argmax()])
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


def signals_of(logits: Floats, ids: Sequence[int]) -> list[Signal]:
    """The gate's numbers from the RAW softmax of `logits` [R, V], for the chosen `ids`."""
    return [*map(Signal, entropies_of(logits).tolist(), log_probs_of(logits, ids))]


def log_probs_of(logits: Floats, ids: Sequence[int]) -> list[float]:
    """ln p of each of the `ids` in the raw softmax of its row of `logits` [R, V]."""
    below, totals = _below_best(logits)
    found: list[float] = (below[np.arange(len(ids)), ids] - np.log(totals)).tolist()
    return found


def _below_best(logits: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Each row less its largest [R, V], and the sum of their exponentials [R]. A row's sum has one
    order, so its bits do not depend on the rows beside it."""
    best = logits.max(-1, keepdims=True)
    below = np.maximum(logits - best, -1e4)  # 0 * -inf is not a number
    return below, np.exp(below).sum(-1)


def entropies_of(scores: NDArray[Any]) -> NDArray[Any]:
    """The entropy in nats of the softmax of each row of `scores` [R, N]."""
    below, totals = _below_best(scores)
    # ln Z - sum(w x) / Z; the last digit may say -1e-8
    return np.maximum(np.log(totals) - (np.exp(below) * below).sum(-1) / totals, 0)


@dataclass
class Sampler:
    """Chooses the ids of one answer: `judge` for the ids after it and after each id of a draft.

    form: of the sentence; None: the rules decide. Once ids have left the form (another drafter's,
    committed unverified), the rules decide, too.
    """

    vocabulary: Vocabulary
    rules: Rules
    sampling: Sampling
    form: SentenceForm | None = None

    def guess(self, answer: Sequence[int], most: int) -> list[int]:
        """Ids that may well come after `answer`, at most `most`, none of which ends it."""
        form, found = self.form, list[int]()
        state = None if form is None else form.after(answer)
        most = min(most, self.rules.max_new_tokens - len(answer) - 1)
        while form is not None and state is not None and len(found) < most:
            if (token := form.guess(state)) is None:
                break
            state = form.step(state, token)
            if state is None or state.is_over:
                break
            found.append(token)
        return found

    def judge(
        self, logits: Floats, answer: Sequence[int], num_drafted: int, tells: bool = True
    ) -> tuple[list[int], list[Signal]]:
        """Choose an id for each of the last `num_drafted` + 1 places of `answer`, whose last
        `num_drafted` ids are a draft: from logits [num_drafted + 1, V].

        Returns the ids, and the signals of those up to the first one that differs from the draft,
        which stands at all places after it, too. No signals where `tells` is False.
        """
        form, begin = self.form, len(answer) - num_drafted
        state = None if form is None else form.after(answer[:begin])
        ids: list[int] = []
        entropies: list[float] = []
        for row in range(num_drafted + 1):
            token, found = self._choose(logits[row], answer[: begin + row], state, tells)
            ids.append(token)
            entropies.append(found)
            if row == num_drafted or token != answer[begin + row]:
                break
            state = None if form is None or state is None else form.step(state, token)
        # log_prob: of the raw softmax; the confidence needs the model's own
        log_probs = log_probs_of(logits[: len(ids)], ids) if tells else []
        signals = [*map(Signal, entropies, log_probs)]
        return ids + ids[-1:] * (num_drafted + 1 - len(ids)), signals

    def _choose(
        self, logits: Floats, answer: Sequence[int], state: State | None, tells: bool
    ) -> tuple[int, float]:
        """The id after `answer` from one row of raw `logits` [V], and the entropy.

        In a form that of the allowed ids' scores: the measures decide most levels, so that of the
        raw softmax matters little.
        """
        scores: NDArray[Any] = logits
        if self.form is None or state is None:
            constraint = constrain(self.vocabulary, self.rules, answer)
            token = choose(logits, constraint, self.vocabulary, self.sampling, self.rules)
        else:
            allowed = self.form.allowed(state)
            if len(allowed) == 1:
                return int(allowed[0]), 0.0
            scores = logits[allowed].astype(np.float64)
            if (biases := self.form.biases(state)) is not None:
                scores += biases
            token = draw(allowed, scores, len(answer), self.sampling)
        return token, float(entropies_of(scores[None])[0]) if tells else math.nan

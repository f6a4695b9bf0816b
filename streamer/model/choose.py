"""Logits to ids, the readable way. In: raw logits [R, V], a constraint each. Out: ids, signals.

The one order of docs/decoding.md, wherever logits become an id: repetition penalty -> bans and soft
biases -> temperature once -> choice. A row's result does not depend on the other rows. Greedy
choice is compiled as well (model/kernels/rules.py); this is the truth that it is held against, and
what decides where chance plays and in rare cases.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from streamer.core.decoding.gate import Signal
from streamer.core.rules.constrain import Constraint
from streamer.core.rules.id_sets import Ids, none
from streamer.core.rules.sampling import Sampling, gumbel
from streamer.core.rules.settings import Rules
from streamer.model.kernels.greedy import measure

BANNED = -math.inf
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
    """Choose one id per row of the raw `logits` [R, V] float32, which stay as they are.

    `vocabulary_mask` [V] bool: `vocabulary.never`; used where `rules.clean`. Equal logits: the
    lowest id. `with_signals` False: for a verifier, which needs ids alone.
    """
    scores = processed(logits, constraints, vocabulary_mask, rules)
    ids = pick(scores, constraints, sampling, rules)
    return Choices(ids, signals_of(logits, ids) if with_signals else [])


def choose_among(
    allowed: Ids,
    logits: Floats,
    constraint: Constraint,
    sampling: Sampling,
    rules: Rules,
    with_signals: bool = True,
) -> Choices:
    """Choose one of the `allowed` ids, one or more, for the one row of `logits` [1, V], by the same
    rules but for what bans all of them."""
    own = replace(constraint, only=allowed, never=none)
    return choose(logits, [own], None, sampling, rules, with_signals)


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
    heated = scores[ids].astype(np.float64) / sampling.temperature
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


def signals_of(logits: Floats, ids: Iterable[int]) -> list[Signal]:
    """The gate's numbers from the RAW softmax of `logits` [R, V], V >= 2, for the chosen `ids`."""
    rows = map(np.ascontiguousarray, np.asarray(logits, np.float32))
    return [Signal(*measure(row, token)) for row, token in zip(rows, ids, strict=True)]

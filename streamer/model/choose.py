"""Logits to ids. In: raw logits [R, V] and one constraint per row. Out: the chosen ids and the gate's signals.

The one order of 004-A, wherever logits become an id: repetition penalty -> bans and soft biases -> temperature once
-> choice. A row's result does not depend on the other rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from streamer.core.choice import Sampling, gumbel
from streamer.core.gate import Signal
from streamer.core.rules import Constraint, Rules
from streamer.core.rules_ids import Ids

BANNED = -math.inf


@dataclass(frozen=True, slots=True)
class Choices:
    """One id and one signal per row."""

    ids: list[int]
    signals: list[Signal]


def choose(
    logits: Tensor,
    constraints: Sequence[Constraint],
    vocabulary_mask: Tensor | None,
    sampling: Sampling,
    rules: Rules,
) -> Choices:
    """Choose one id per row of the raw `logits` [R, V] float32, which stay as they are.

    `vocabulary_mask` [V] bool: `vocabulary.never` on the logits' device; used where `rules.clean`.
    Equal logits: the lowest id.
    """
    ids = pick(processed(logits, constraints, vocabulary_mask, rules), constraints, sampling, rules)
    return Choices(ids, signals_of(logits, ids))


def processed(
    logits: Tensor, constraints: Sequence[Constraint], vocabulary_mask: Tensor | None, rules: Rules
) -> Tensor:
    """A new [R, V] float32: penalised, biased, banned ids at -inf, no temperature yet. No row is all -inf."""
    mask = vocabulary_mask if rules.clean else None
    scores = _apply(logits, constraints, mask, num_tiers=3)
    for row in _dead_rows(scores):
        _relax(scores, logits, constraints, mask, row)
    return scores


def _relax(
    scores: Tensor, logits: Tensor, constraints: Sequence[Constraint], mask: Tensor | None, row: int
) -> None:
    """Every id of `row` is banned: drop the n-gram ban, then adjacency, then commas; at last only EOS is left."""
    for num_tiers in (2, 1, 0):
        again = _apply(logits[row : row + 1], constraints[row : row + 1], mask, num_tiers)
        if not _dead_rows(again):
            scores[row] = again[0]
            return
    scores[row, constraints[row].fallback] = 0.0


def _dead_rows(scores: Tensor) -> list[int]:
    return [row for row, best in enumerate(scores.amax(-1).tolist()) if best == BANNED]


def _apply(logits: Tensor, constraints: Sequence[Constraint], mask: Tensor | None, num_tiers: int) -> Tensor:
    """All rows at once: one gather and scatter for the penalties, one for the bans, one for the biases."""
    scores = logits.to(torch.float32, copy=True).contiguous()
    width = scores.shape[-1]
    flat = scores.view(-1)
    if len(where := _places(constraints, lambda c: c.penalised, width)):
        at = torch.from_numpy(where).to(scores.device)
        penalty = _per_place(constraints, lambda c: c.penalised, lambda c: c.penalty, scores)
        old = flat[at]
        flat[at] = torch.where(old > 0, old / penalty, old * penalty)  # sign-aware: CTRL, arXiv 1909.05858
    if len(where := _places(constraints, lambda c: c.lowered, width)):
        at = torch.from_numpy(where).to(scores.device)
        flat[at] -= _per_place(constraints, lambda c: c.lowered, lambda c: c.bias, scores)
    _mask(scores, constraints, mask)
    if len(where := _places(constraints, lambda c: _banned(c, num_tiers), width)):
        flat.index_fill_(0, torch.from_numpy(where).to(scores.device), BANNED)
    return scores


def _mask(scores: Tensor, constraints: Sequence[Constraint], mask: Tensor | None) -> None:
    """The vocabulary's mask; where a split character is open, everything but the ids that may follow it."""
    kept = []
    for row, constraint in enumerate(constraints):
        if constraint.only is not None:
            only = torch.from_numpy(constraint.only).to(scores.device)
            kept.append((row, only, scores[row, only]))
    if mask is not None:
        scores.masked_fill_(mask, BANNED)
    for row, only, values in kept:
        scores[row] = BANNED
        scores[row, only] = values


def _banned(constraint: Constraint, num_tiers: int) -> Ids:
    tiers = (constraint.commas, constraint.adjacency, constraint.ngram)[:num_tiers]
    return np.concatenate((constraint.never, *tiers))


def _places(constraints: Sequence[Constraint], ids_of: Callable[[Constraint], Ids], width: int) -> Ids:
    """The ids of all rows as places in the flat logits."""
    if len(constraints) == 1:
        return ids_of(constraints[0]).astype(np.int64)  # a copy: the sets that rules share are read-only
    return np.concatenate([ids_of(c) + row * width for row, c in enumerate(constraints)])


def _per_place(
    constraints: Sequence[Constraint],
    ids_of: Callable[[Constraint], Ids],
    number_of: Callable[[Constraint], float],
    like: Tensor,
) -> Tensor | float:
    numbers = [number_of(c) for c in constraints]
    if len(set(numbers)) == 1:
        return numbers[0]
    return like.new_tensor(np.repeat(numbers, [len(ids_of(c)) for c in constraints]))


def pick(scores: Tensor, constraints: Sequence[Constraint], sampling: Sampling, rules: Rules) -> list[int]:
    """One id per row of `processed` logits: greedy or Gumbel-max, then 002's local rule against loops."""
    if sampling.temperature == 0.0:
        ids = scores.argmax(-1).tolist()
    else:
        rows = zip(scores.cpu().numpy(), constraints, strict=True)
        ids = [_draw(row, c.index, sampling) for row, c in rows]
    if not rules.loop_local:
        return ids
    for row, constraint in enumerate(constraints):
        if constraint.recent.count(ids[row]) >= rules.loop_count:
            ids[row] = _redraw(scores[row], constraint.index, sampling, rules)
    return ids


def _draw(scores: np.ndarray, index: int, sampling: Sampling) -> int:
    """Gumbel-max over the top-p set of one row [V]: a draw from softmax(scores / T) within that set."""
    ids = np.flatnonzero(scores > BANNED)
    heated = scores[ids].astype(np.float64) / sampling.temperature
    if sampling.top_p < 1.0:
        kept = _nucleus(heated, sampling.top_p)
        ids, heated = ids[kept], heated[kept]
    return int(ids[np.argmax(heated + gumbel(sampling.seed, index, ids))])


def _nucleus(heated: np.ndarray, top_p: float) -> np.ndarray:
    """Places, ascending, of the smallest set that holds `top_p` (Holtzman et al. 2019); ties by the lowest id."""
    order = np.argsort(-heated, kind="stable")
    weights = np.exp(heated[order] - heated[order[0]])
    before = np.cumsum(weights) - weights
    return np.sort(order[before < top_p * weights.sum()])


def _redraw(scores: Tensor, index: int, sampling: Sampling, rules: Rules) -> int:
    """002: among the top 5 at T 0.8, with the same noise as every other draw at this place."""
    values, ids = scores.sort(descending=True, stable=True)
    best, top = values[: rules.loop_top].double().cpu().numpy(), ids[: rules.loop_top].cpu().numpy()
    heated = best / rules.loop_temperature + gumbel(sampling.seed, index, top)
    return int(top[np.argmax(heated)])


def signals_of(logits: Tensor, ids: Sequence[int]) -> list[Signal]:
    """The gate's numbers from the RAW softmax of `logits` [R, V], V >= 2, for the chosen `ids`."""
    probabilities = torch.softmax(logits.float(), -1)
    # The sum in float64, so that its order (another one for another number of rows) does not show in float32.
    entropies = torch.special.entr(probabilities).sum(-1, dtype=torch.float64).tolist()
    chosen = torch.tensor(ids, device=logits.device)[:, None]
    best, places = logits.float().topk(2, dim=-1)
    first, second = probabilities.gather(-1, places).unbind(-1)
    behind = (logits.gather(-1, chosen).squeeze(-1) - best[:, 0]).tolist()  # exact where p underflows
    margins, logs = (first - second).tolist(), first.log().tolist()
    return [Signal(e, m, p + b) for e, m, p, b in zip(entropies, margins, logs, behind, strict=True)]

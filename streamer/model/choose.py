"""Logits to ids. In: raw logits [R, V] and one constraint per row. Out: chosen ids and the gate's signals.

The one order of 004-A, wherever logits become an id: repetition penalty -> bans and soft biases ->
temperature once -> choice. A row's result does not depend on the other rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamer.core.choice import Sampling, gumbel
from streamer.core.gate import Signal
from streamer.core.rules import Constraint, Rules
from streamer.core.rules_ids import Ids, none

BANNED = -math.inf
LEAST = -1e4  # a log-weight that stands for "impossible" in sums: 0 * -inf is not a number


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


def _relax(scores: Tensor, logits: Tensor, constraints: Sequence[Constraint], mask: Tensor | None, row: int) -> None:
    """Every id of `row` is banned: drop the n-gram ban, then adjacency, then commas; at last EOS is left."""
    for num_tiers in (2, 1, 0):
        again = _apply(logits[row : row + 1], constraints[row : row + 1], mask, num_tiers)
        if not _dead_rows(again):
            scores[row] = again[0]
            return
    scores[row, constraints[row].fallback] = 0.0


def _dead_rows(scores: Tensor) -> list[int]:
    array, module = _arrays(scores)
    return [row for row, best in enumerate(module.amax(array, -1).tolist()) if best == BANNED]


def _apply(logits: Tensor, constraints: Sequence[Constraint], mask: Tensor | None, num_tiers: int) -> Tensor:
    """All rows at once: one gather and scatter for the penalties, one for the biases, one for the bans."""
    scores = logits.to(torch.float32, copy=True).contiguous()
    flat = _Flat(scores)
    if len(at := flat.places([c.penalised for c in constraints])):
        penalty = flat.numbers([(c.penalty, len(c.penalised)) for c in constraints])
        old = flat.values[at]
        flat.values[at] = flat.where(old > 0, old / penalty, old * penalty)  # CTRL, arXiv 1909.05858
    if len(at := flat.places([c.lowered for c in constraints])):
        flat.values[at] -= flat.numbers([(c.bias, len(c.lowered)) for c in constraints])
    never = _mask_ids(scores, constraints, mask)
    if len(at := flat.places([_banned(c, num_tiers, never) for c in constraints])):
        flat.values[at] = BANNED
    return scores


def _arrays(tensor: Tensor) -> tuple[Any, Any]:
    """(array, its module): NumPy's view of a CPU tensor, at a third of torch's cost per small operation, else
    the tensor. Only what both modules spell alike is used of them, so everything is written once."""
    return (tensor.numpy(), np) if tensor.device.type == "cpu" else (tensor, torch)


class _Flat:
    """All rows' logits as one array `values` [R * V], a view."""

    def __init__(self, scores: Tensor) -> None:
        self.width = scores.shape[-1]
        self.device = scores.device
        self.values, module = _arrays(scores.view(-1))
        self.where = module.where
        self.is_numpy = module is np

    def _lift(self, array: NDArray[Any]) -> Any:
        return array if self.is_numpy else torch.from_numpy(array).to(self.device)

    def places(self, rows: Sequence[Ids]) -> Any:
        """Where every row's ids stand."""
        if len(rows) == 1:
            return self._lift(rows[0])
        return self._lift(np.concatenate([ids + row * self.width for row, ids in enumerate(rows)]))

    def numbers(self, rows: Sequence[tuple[float, int]]) -> Any:
        """Every row's number, once for each of its ids; one number where all rows agree."""
        first = rows[0][0]
        if all(number == first for number, _ in rows):
            return first
        return self._lift(np.repeat(np.array([n for n, _ in rows], dtype=np.float32), [k for _, k in rows]))


def _mask_ids(scores: Tensor, constraints: Sequence[Constraint], mask: Tensor | None) -> Ids:
    """The vocabulary's never-mask as ids that are still to be banned, where that is the fast way.

    On a CPU `masked_fill_` of 152,000 takes 390 us and a fill by ids 30 us; elsewhere the mask is applied
    here, so that nothing waits for the device.
    """
    if mask is None:
        return none
    if _arrays(scores)[1] is np:
        return np.flatnonzero(mask.numpy())
    whole = torch.tensor([c.only is None for c in constraints], device=scores.device)
    scores.masked_fill_(mask & whole[:, None], BANNED)
    return none


def _banned(constraint: Constraint, num_tiers: int, never: Ids) -> Ids:
    """All banned ids of one row. With an open split character: everything but the ids that may follow it."""
    tiers = (constraint.commas, constraint.adjacency, constraint.ngram)[:num_tiers]
    if constraint.only is not None:
        others = np.ones(constraint.num_ids, dtype=bool)
        others[constraint.only] = False
        never = np.flatnonzero(others)
    return np.concatenate((never, constraint.never, *tiers))


def pick(scores: Tensor, constraints: Sequence[Constraint], sampling: Sampling, rules: Rules) -> list[int]:
    """One id per row of `processed` logits: greedy or Gumbel-max, then 002's local rule against loops."""
    if sampling.temperature == 0.0:
        array, module = _arrays(scores)  # of equal logits both take the first
        ids: list[int] = module.argmax(array, -1).tolist()
    else:
        rows = zip(scores.cpu().numpy(), constraints, strict=True)
        ids = [_draw(row, c.index, sampling) for row, c in rows]
    if not rules.loop_local:
        return ids
    for row, constraint in enumerate(constraints):
        if constraint.recent.count(ids[row]) >= rules.loop_count:
            ids[row] = _redraw(scores[row], constraint.index, sampling, rules)
    return ids


def _draw(scores: NDArray[np.float32], index: int, sampling: Sampling) -> int:
    """Gumbel-max over the top-p set of one row [V]: a draw from softmax(scores / T) within that set."""
    ids = np.flatnonzero(scores > BANNED)
    heated = scores[ids].astype(np.float64) / sampling.temperature
    if sampling.top_p < 1.0:
        kept = _nucleus(heated, sampling.top_p)
        ids, heated = ids[kept], heated[kept]
    return int(ids[np.argmax(heated + gumbel(sampling.seed, index, ids))])


def _nucleus(heated: NDArray[np.float64], top_p: float) -> Ids:
    """Places, ascending, of the smallest set that holds `top_p` (arXiv 1904.09751); ties: the lowest id."""
    weights = np.exp(heated - heated.max())
    total = weights.sum()
    # All ids below this weight hold less than 1 - top_p together, so the set lies above it: sort only that.
    likely = np.flatnonzero(weights >= (1.0 - top_p) * total / len(weights))
    order = likely[np.argsort(-weights[likely], kind="stable")]
    before = np.cumsum(weights[order]) - weights[order]
    return np.sort(order[before < top_p * total])


def _redraw(scores: Tensor, index: int, sampling: Sampling, rules: Rules) -> int:
    """002: among the top 5 at T 0.8, with the same noise as every other draw at this place."""
    values, ids = scores.sort(descending=True, stable=True)
    best, top = values[: rules.loop_top].double().cpu().numpy(), ids[: rules.loop_top].cpu().numpy()
    heated = best / rules.loop_temperature + gumbel(sampling.seed, index, top)
    return int(top[np.argmax(heated)])


def signals_of(logits: Tensor, ids: Sequence[int]) -> list[Signal]:
    """The gate's numbers from the RAW softmax of `logits` [R, V], V >= 2, for the chosen `ids`.

    Sums run in float64, so that their order (another one for another number of rows) does not show.
    """
    raw, module = _arrays(logits.float())
    behind = module.clip(raw - module.amax(raw, -1)[:, None], LEAST, None)
    weights = module.exp(behind)
    totals = weights.sum(-1, dtype=module.float64).tolist()
    weighted = (weights * behind).sum(-1, dtype=module.float64).tolist()
    rows = list(range(len(ids)))
    chosen = behind[rows, list(ids)].tolist()
    weights[rows, module.argmax(raw, -1)] = 0.0  # the likeliest has weight 1; next to it stands
    second = module.amax(weights, -1).tolist()
    # entropy = ln Z - sum(w x) / Z for weights w = exp(x); float64's last digit may say -1e-17
    return [
        Signal(max(0.0, math.log(z) - wx / z), (1.0 - w2) / z, x - math.log(z))
        for z, wx, w2, x in zip(totals, weighted, second, chosen, strict=True)
    ]

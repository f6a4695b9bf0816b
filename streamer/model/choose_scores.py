"""The rules applied to logits. In: raw logits [R, V] and one constraint per row. Out: logits to
choose from.

First steps of the one order of 004-A: repetition penalty -> bans and soft biases. All rows at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamer.core.rules.constrain import Constraint
from streamer.core.rules.id_sets import Ids, none
from streamer.core.rules.settings import Rules

BANNED = -math.inf


def processed(
    logits: Tensor, constraints: Sequence[Constraint], vocabulary_mask: Tensor | None, rules: Rules
) -> Tensor:
    """A new [R, V] float32: penalised, biased, banned ids at -inf, no temperature yet. No row is
    all -inf."""
    mask = vocabulary_mask if rules.clean else None
    scores = _apply(logits, constraints, mask, num_tiers=3)
    for row in _dead_rows(scores):
        _relax(scores, logits, constraints, mask, row)
    return scores


def _relax(
    scores: Tensor, logits: Tensor, constraints: Sequence[Constraint], mask: Tensor | None, row: int
) -> None:
    """Every id of `row` is banned: drop the n-gram ban, then adjacency, then commas; at last EOS is
    left."""
    for num_tiers in (2, 1, 0):
        again = _apply(logits[row : row + 1], constraints[row : row + 1], mask, num_tiers)
        if not _dead_rows(again):
            scores[row] = again[0]
            return
    scores[row, constraints[row].fallback] = 0.0


def _dead_rows(scores: Tensor) -> list[int]:
    array, module = arrays(scores)
    return [row for row, best in enumerate(module.amax(array, -1).tolist()) if best == BANNED]


def _apply(
    logits: Tensor, constraints: Sequence[Constraint], mask: Tensor | None, num_tiers: int
) -> Tensor:
    """All rows at once: one gather and scatter for the penalties, one for the biases, one for the
    bans."""
    scores = logits.to(torch.float32, copy=True).contiguous()
    flat = _Flat(scores)
    if len(at := flat.places([c.penalised for c in constraints])):
        penalty = flat.numbers([(c.penalty, len(c.penalised)) for c in constraints])
        old = flat.values[at]
        # CTRL, arXiv 1909.05858
        flat.values[at] = flat.where(old > 0, old / penalty, old * penalty)
    if len(at := flat.places([c.lowered for c in constraints])):
        flat.values[at] -= flat.numbers([(c.bias, len(c.lowered)) for c in constraints])
    never = _mask_ids(scores, constraints, mask)
    if len(at := flat.places([_banned(c, num_tiers, never) for c in constraints])):
        flat.values[at] = BANNED
    return scores


def arrays(tensor: Tensor) -> tuple[Any, Any]:
    """(array, its module): NumPy's view of a CPU tensor, at a third of torch's cost per small
    operation, else the tensor. Only what both modules spell alike is used of them, so everything is
    written once."""
    return (tensor.numpy(), np) if tensor.device.type == "cpu" else (tensor, torch)


class _Flat:
    """All rows' logits as one array `values` [R * V], a view."""

    def __init__(self, scores: Tensor) -> None:
        self.width = scores.shape[-1]
        self.device = scores.device
        self.values, module = arrays(scores.view(-1))
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
        return self._lift(
            np.repeat(np.array([n for n, _ in rows], dtype=np.float32), [k for _, k in rows])
        )


def _mask_ids(scores: Tensor, constraints: Sequence[Constraint], mask: Tensor | None) -> Ids:
    """The vocabulary's never-mask as ids that are still to be banned, where that is the fast way.

    On a CPU `masked_fill_` of 152,000 takes 390 us and a fill by ids 30 us; elsewhere the mask is
    applied here, so that nothing waits for the device.
    """
    if mask is None:
        return none
    if arrays(scores)[1] is np:
        return np.flatnonzero(mask.numpy())
    whole = torch.tensor([c.only is None for c in constraints], device=scores.device)
    scores.masked_fill_(mask & whole[:, None], BANNED)
    return none


def _banned(constraint: Constraint, num_tiers: int, never: Ids) -> Ids:
    """All banned ids of one row. With an open split character: everything but the ids that may
    follow it."""
    tiers = (constraint.commas, constraint.adjacency, constraint.ngram)[:num_tiers]
    if constraint.only is not None:
        others = np.ones(constraint.num_ids, dtype=bool)
        others[constraint.only] = False
        never = np.flatnonzero(others)
    return np.concatenate((never, constraint.never, *tiers))

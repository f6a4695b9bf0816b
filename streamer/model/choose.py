"""Logits to ids. In: raw logits [R, V] and one constraint per row. Out: chosen ids and the gate's
signals.

The one order of 004-A, wherever logits become an id: repetition penalty -> bans and soft biases ->
temperature once -> choice. A row's result does not depend on the other rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamer.core.decoding.gate import Signal
from streamer.core.rules.constrain import Constraint
from streamer.core.rules.id_sets import Ids, none
from streamer.core.rules.sampling import Sampling, gumbel
from streamer.core.rules.settings import Rules
from streamer.model.choose_scores import BANNED, arrays, processed
from streamer.model.kernels.greedy import decide, measure

LEAST = -1e4  # a log-weight that stands for "impossible" in sums: 0 * -inf is not a number


@dataclass(frozen=True, slots=True)
class Choices:
    """One id per row, and one signal per row where they were wanted."""

    ids: list[int]
    signals: list[Signal]


def choose(
    logits: Tensor,
    constraints: Sequence[Constraint],
    vocabulary_mask: Tensor | None,
    sampling: Sampling,
    rules: Rules,
    with_signals: bool = True,
) -> Choices:
    """Choose one id per row of the raw `logits` [R, V] float32, which stay as they are.

    `vocabulary_mask` [V] bool: `vocabulary.never` on the logits' device; used where `rules.clean`.
    Equal logits: the lowest id. `with_signals` False: for a verifier, which needs ids alone.
    """
    if sampling.temperature == 0.0 and logits.device.type == "cpu":
        ids = _greedy(logits, constraints, vocabulary_mask, sampling, rules)
    else:
        ids = pick(
            processed(logits, constraints, vocabulary_mask, rules), constraints, sampling, rules
        )
    return Choices(ids, signals_of(logits, ids) if with_signals else [])


def _greedy(
    logits: Tensor,
    constraints: Sequence[Constraint],
    mask: Tensor | None,
    sampling: Sampling,
    rules: Rules,
) -> list[int]:
    """`processed` and `pick` row by row without their arrays; they still decide where all ids of a
    row are banned."""
    raws = logits.float().numpy()
    scores = np.empty(raws.shape[-1], np.float32)
    banned = mask.numpy() if mask is not None and rules.clean else scores[:0] > 0
    ids = []
    for row, (raw, c) in enumerate(zip(raws, constraints, strict=True)):
        only = none if c.only is None else c.only
        token = decide(
            raw,
            scores,
            banned,
            only,
            c.only is not None,
            c.never,
            c.commas,
            c.adjacency,
            c.ngram,
            c.penalised,
            np.float32(c.penalty),
            c.lowered,
            np.float32(c.bias),
        )
        if token < 0 or (rules.loop_local and c.recent.count(token) >= rules.loop_count):
            token = pick(processed(logits[row : row + 1], [c], mask, rules), [c], sampling, rules)[
                0
            ]
        ids.append(token)
    return ids


def pick(
    scores: Tensor, constraints: Sequence[Constraint], sampling: Sampling, rules: Rules
) -> list[int]:
    """One id per row of `processed` logits: greedy or Gumbel-max, then 002's local rule against
    loops."""
    if sampling.temperature == 0.0:
        array, module = arrays(scores)  # of equal logits both take the first
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
    """Gumbel-max over the top-p set of one row [V]: a draw from softmax(scores / T) within that
    set."""
    ids = np.flatnonzero(scores > BANNED)
    heated = scores[ids].astype(np.float64) / sampling.temperature
    if sampling.top_p < 1.0:
        kept = _nucleus(heated, sampling.top_p)
        ids = ids[kept]
        heated = heated[kept]
    return int(ids[np.argmax(heated + gumbel(sampling.seed, index, ids))])


def _nucleus(heated: NDArray[np.float64], top_p: float) -> Ids:
    """Places, ascending, of the smallest set that holds `top_p` (arXiv 1904.09751); ties: the
    lowest id."""
    weights = np.exp(heated - heated.max())
    total = weights.sum()
    # All ids below this weight hold less than 1 - top_p together, so the set lies above it:
    # sort only that.
    likely = np.flatnonzero(weights >= (1.0 - top_p) * total / len(weights))
    order = likely[np.argsort(-weights[likely], kind="stable")]
    before = np.cumsum(weights[order]) - weights[order]
    return np.sort(order[before < top_p * total])


def _redraw(scores: Tensor, index: int, sampling: Sampling, rules: Rules) -> int:
    """002: among the top 5 at T 0.8, with the same noise as every other draw at this place."""
    values, ids = scores.sort(descending=True, stable=True)
    best = values[: rules.loop_top].double().cpu().numpy()
    top = ids[: rules.loop_top].cpu().numpy()
    heated = best / rules.loop_temperature + gumbel(sampling.seed, index, top)
    return int(top[np.argmax(heated)])


def signals_of(logits: Tensor, ids: Sequence[int]) -> list[Signal]:
    """The gate's numbers from the RAW softmax of `logits` [R, V], V >= 2, for the chosen `ids`.

    Sums run in float64, so that their order (another one for another number of rows) does not show.
    """
    if logits.device.type == "cpu":
        return [_signal(raw, token) for raw, token in zip(logits.float().numpy(), ids, strict=True)]
    raw = logits.float()
    behind = (raw - raw.amax(-1, keepdim=True)).clip(LEAST)
    weights = behind.exp()
    totals = weights.sum(-1, dtype=torch.float64).tolist()
    weighted = (weights * behind).sum(-1, dtype=torch.float64).tolist()
    rows = list(range(len(ids)))
    chosen = behind[rows, list(ids)].tolist()
    weights[rows, raw.argmax(-1)] = 0.0  # the likeliest has weight 1; next to it stands
    second = weights.amax(-1).tolist()
    # entropy = ln Z - sum(w x) / Z for weights w = exp(x); float64's last digit may say -1e-17
    return [
        Signal(max(0.0, math.log(z) - wx / z), (1.0 - w2) / z, x - math.log(z))
        for z, wx, w2, x in zip(totals, weighted, second, chosen, strict=True)
    ]


def _signal(raw: NDArray[np.float32], token: int) -> Signal:
    return Signal(*measure(raw, token))

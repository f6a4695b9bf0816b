"""Level weights: how strongly measured numbers favour each level of an attribute.

A weight is a natural logarithm in units of 1/32 nat: 0 for an attribute's best level, FLOOR for a
level that is practically excluded (e^-32). An attribute that is absent is flat: its levels are left
to the model. An attribute with no weights at all, `()`, is left out of the sentence: of a whisper
nothing is said about pitch. Weights are quantised once, when a turn ends. The edge and the cloud
then add the same integers, so that both choose the same ids.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

UNITS_PER_NAT = 32
FLOOR = -1023

# attribute -> one weight per level, the physically lowest level first
LevelWeights = Mapping[str, tuple[int, ...]]
FLAT: LevelWeights = MappingProxyType({})


def quantised(log_weights: Mapping[str, Sequence[float]]) -> LevelWeights:
    """Level weights from natural logarithms of any common scale; -inf excludes a level.

    An attribute whose weights are all equal is left out. Raises ValueError for NaN, for +inf, and
    for an attribute without a finite weight.
    """
    found = {}
    for name, logs in log_weights.items():
        best = max(logs, default=-math.inf)
        if not math.isfinite(best) or any(map(math.isnan, logs)):
            raise ValueError(f"{name} needs at least one finite weight and no NaN, not {logs}")
        weights = tuple(_quantised(log - best) for log in logs)
        if any(weights):
            found[name] = weights
    return found


def check_weights(weights: LevelWeights) -> None:
    """Raise ValueError unless every attribute's best level is 0 and no weight is out of bounds.

    An attribute without weights is left out of the sentence.
    """
    for name, levels in weights.items():
        if levels and (max(levels) != 0 or min(levels) < FLOOR):
            raise ValueError(f"weights of {name} must be {FLOOR} to 0, with a 0, not {levels}")


def _quantised(log: float) -> int:
    return max(FLOOR, round(UNITS_PER_NAT * max(log, float(FLOOR))))

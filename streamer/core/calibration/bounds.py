"""A threshold that keeps a promise. In: clips' losses at each. Out: the largest safe one.

The loss of a clip, in 0..1, may only grow with the threshold (what is not uploaded is at risk). Two
promises about a clip that comes from where the calibration clips came from (exchangeable; the clip
is the unit, blocks of one are not):

- in expectation: conformal risk control (Angelopoulos, Bates, Fisch, Lei, Schuster 2022, arXiv
  2208.02814). Take the largest threshold with n / (n + 1) * mean loss + 1 / (n + 1) <= risk; then
  E[loss of the next clip] <= risk, the expectation over calibration clips and the next one. Exact
  for every n; 1 is the loss's bound.
- with confidence: risk-controlling sets (Bates et al. 2021, arXiv 2101.02703) with the betting
  bound (Waudby-Smith and Ramdas 2023, arXiv 2010.09686): but for one set of calibration clips in
  1 / (1 - confidence), the true mean loss at the threshold that THESE clips gave is <= risk.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def safe_index(losses: Floats, risk: float, confidence: float = 0.0) -> int | None:
    """Which of the rising thresholds to take: the last column of `losses` [n, m] that keeps the
    promise, or None.

    Rows are clips in an order that does not depend on their losses. confidence 0 asks for the
    expectation alone, else both promises are kept. Raises ValueError for losses outside 0..1 or
    falling ones: `running_max` mends those.
    """
    if losses.size and (
        losses.min() < 0 or losses.max() > 1 or (np.diff(losses, axis=1) < 0).any()
    ):
        raise ValueError("losses must be within 0..1 and must not fall with the threshold")
    safe = bounded_mean(losses) <= risk
    if confidence:
        safe &= betting_capital(losses, risk, confidence) >= 1 / (1 - confidence)
    num_safe = int(np.logical_and.accumulate(safe).sum())
    return num_safe - 1 if num_safe else None


def bounded_mean(losses: Floats) -> Floats:
    """Conformal risk control's correction, [m]: the next clip counts with the worst loss."""
    found: Floats = (losses.sum(axis=0) + 1.0) / (len(losses) + 1)
    return found


def betting_capital(losses: Floats, risk: float, confidence: float) -> Floats:
    """[m]: what a gambler who bets that the mean loss is below `risk` has at his best, starting
    with 1.

    Were the mean above it, he would ever reach 1 / (1 - confidence) with a chance of 1 - confidence
    at most (Ville). His stake on a clip uses the clips before it; the prior is one clip of mean and
    variance `risk`.
    """
    n = len(losses)
    before = np.arange(n)[:, None]
    means = (risk + np.cumsum(losses, axis=0)) / (before + 2)
    variances = (risk + np.cumsum((losses - means) ** 2, axis=0)) / (before + 2)
    known = np.vstack([np.full((1, losses.shape[1]), risk), variances[:-1]])
    stakes = np.minimum(1.0, np.sqrt(2 * math.log(1 / (1 - confidence)) / (n * known)))
    capital: Floats = np.exp(np.cumsum(np.log1p(stakes * (risk - losses)), axis=0)).max(axis=0)
    return capital


def num_needed(risk: float, confidence: float = 0.0) -> int:
    """The fewest clips that can certify `risk`: those of which none loses anything."""
    n = max(1, math.ceil(1 / risk - 1 - 1e-9))
    while safe_index(np.zeros((n, 1)), risk, confidence) is None:
        n += max(1, n // 200)
    return n


def least_risk(num_clips: int, confidence: float = 0.0) -> float:
    """The smallest risk that so many clips can certify, in two digits; 1 where none can."""
    low = 0.0
    high = 1.0
    for _ in range(40):
        middle = (low + high) / 2
        safe = (
            num_clips > 0 and safe_index(np.zeros((num_clips, 1)), middle, confidence) is not None
        )
        low, high = (low, middle) if safe else (middle, high)
    digit = 10.0 ** (math.floor(math.log10(high)) - 1)
    return min(1.0, math.ceil(high / digit - 1e-6) * digit)


def running_max(losses: Floats) -> Floats:
    """The smallest losses above `losses` [n, m] that never fall along m, where thresholds rise.

    Gated text depends on what was committed before, so a higher threshold can, rarely, lose less.
    Its running maximum is what the theorems need, and never less than the loss.
    """
    found: Floats = np.maximum.accumulate(losses, axis=1)
    return found

"""A gate's threshold from a stated risk: every threshold's text, its losses, and what is certified.

Greedy gated decoding is a walk on committed prefixes: after each prefix the edge drafts one block,
which the cloud, teacher-forced on that prefix, would change or not. The gate only picks the branch.
The cloud looks at skipped blocks, too, so one visit of each prefix gives every threshold's path.

The loss of a clip, 0 to 1, is the share of its blocks that were skipped and that the cloud would
have changed; it may only grow with the threshold. Two promises about a clip that is exchangeable
with the calibration clips (the clip is the unit; blocks of one clip are not exchangeable):

- in expectation: conformal risk control (Angelopoulos, Bates, Fisch, Lei, Schuster 2022, arXiv
  2208.02814). Take the largest threshold with n / (n + 1) * mean loss + 1 / (n + 1) <= risk; then
  E[loss of the next clip] <= risk, the expectation over calibration clips and the next one. Exact
  for every n; 1 is the bound of the loss.
- with confidence: risk-controlling sets (Bates et al. 2021, arXiv 2101.02703) with the betting
  bound (Waudby-Smith and Ramdas 2023, arXiv 2010.09686): except for one set of calibration clips in
  1 / (1 - confidence), the true mean loss at the chosen threshold is <= risk.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.core.rules.settings import NOT_SHOWN, Rules, stop
from streamer.core.text.vocabulary import Vocabulary

Prefix = tuple[int, ...]  # the answer's committed ids
Floats = NDArray[np.float64]
DIGITS = 4  # of a threshold


@dataclass(frozen=True, slots=True)
class Block:
    """The draft after one prefix and its verdict. doubt: it is uploaded when this is above the
    threshold: the largest entropy of an id; inf where it always is (density, loop)."""

    ids: tuple[int, ...]
    doubt: float
    n_accepted: int
    next_id: int


@dataclass(frozen=True, slots=True)
class Path:
    """Gated mode at every threshold from `least` up to the next path's: it skips the blocks whose
    doubt is `least` at most. answer: all it commits."""

    least: float
    answer: Prefix
    blocks: tuple[Block, ...]

    @property
    def uploaded(self) -> list[Block]:
        return [block for block in self.blocks if block.doubt > self.least]

    @property
    def num_missed(self) -> int:
        """Skipped blocks of which the cloud rejects any id; a bonus token is no change."""
        return sum(b.n_accepted < len(b.ids) for b in self.blocks if b.doubt <= self.least)


Paths = Sequence[Path]  # of one turn at every threshold, falling
Turns = Sequence[Paths]  # of one clip: a long recording has more than one


def paths_of(block_at: Callable[[Prefix], Block], vocabulary: Vocabulary, rules: Rules) -> Paths:
    """Every path of one turn, by falling threshold, from the edge alone to exact mode: the last one
    skips nothing, from -inf on. Commits as the state machine; asks block_at once per prefix."""
    once = functools.cache(block_at)
    found: list[Path] = []
    threshold = sys.float_info.max  # below inf
    while not found or found[-1].least > -math.inf:
        answer: list[int] = []
        blocks: list[Block] = []
        least, stopped = -math.inf, None
        while stopped is None:
            block = once(tuple(answer))
            blocks.append(block)
            ids = block.ids
            if block.doubt > threshold:
                ids = (*ids[: block.n_accepted], block.next_id)
            else:
                least = max(least, block.doubt)
            for token in ids:
                stopped = stop(vocabulary, rules, answer, token)
                if stopped not in NOT_SHOWN:
                    answer.append(token)
                if stopped is not None:
                    break
        found.append(Path(least, tuple(answer), tuple(blocks)))
        threshold = math.nextafter(least, -math.inf)
    return found


def safe_index(losses: Floats, risk: float, confidence: float = 0.0) -> int | None:
    """The index in `losses` [n, m] of the highest threshold that keeps the promise, or None.

    Rows are clips in an order that does not depend on their losses, which are within 0..1 and never
    fall with the threshold. confidence 0: in expectation only, otherwise both.
    """
    safe = (losses.sum(axis=0) + 1.0) / (len(losses) + 1) <= risk  # the next clip: the worst loss
    if confidence:
        safe &= betting_capital(losses, risk, confidence) >= 1 / (1 - confidence)
    num_safe = int(np.logical_and.accumulate(safe).sum())
    return num_safe - 1 if num_safe else None


def betting_capital(losses: Floats, risk: float, confidence: float) -> Floats:
    """[m]: the highest capital of a gambler who has 1 and bets that the mean loss is below `risk`.

    If the mean is above it, the capital ever reaches 1 / (1 - confidence) with a chance of at most
    1 - confidence (Ville). The stake on a clip uses the clips before it; the prior is one clip of
    mean and variance `risk`.
    """
    n = len(losses)
    before = np.arange(n)[:, None]
    means = (risk + np.cumsum(losses, axis=0)) / (before + 2)
    variances = (risk + np.cumsum((losses - means) ** 2, axis=0)) / (before + 2)
    known = np.vstack([np.full((1, losses.shape[1]), risk), variances[:-1]])
    stakes = np.minimum(1.0, np.sqrt(2 * math.log(1 / (1 - confidence)) / (n * known)))
    return np.exp(np.cumsum(np.log1p(stakes * (risk - losses)), axis=0)).max(axis=0)


def num_needed(risk: float, confidence: float = 0.0) -> int:
    """The fewest clips that can certify `risk`, if none has a loss."""
    n = max(1, math.ceil(1 / risk - 1 - 1e-9))
    while safe_index(np.zeros((n, 1)), risk, confidence) is None:
        n += max(1, n // 200)
    return n


@dataclass(frozen=True)
class Certified:
    """One preset's threshold and what it did on the clips that certified it."""

    preset: str
    threshold: float  # of the entropy
    k: int
    risk: float
    confidence: float
    num_clips: int
    loss: float  # mean over clips
    skipped: float  # share of all blocks
    accepted: float | None  # of the ids that are still uploaded


def at(paths: Paths, threshold: float) -> Path:
    """The path a turn takes at `threshold`."""
    return next(path for path in paths if path.least <= threshold)


def losses_of(clips: Sequence[Turns], thresholds: Floats) -> Floats:
    """[n, m]: each clip's loss at each of the rising thresholds."""
    missed = np.zeros((len(clips), len(thresholds)))
    total = np.zeros_like(missed)
    for i, turns in enumerate(clips):
        for paths in turns:
            rising = paths[::-1]
            which = np.searchsorted([path.least for path in rising], thresholds, side="right") - 1
            missed[i] += np.array([path.num_missed for path in rising])[which]
            total[i] += np.array([len(path.blocks) for path in rising])[which]
    return missed / total


def certify(
    clips: Sequence[Turns], preset: str, k: int, risk: float, confidence: float
) -> Certified | None:
    """The largest threshold that keeps the promise; None if even the surest block is too unsure."""
    # the betting bound takes clips one after the other: in an order blind to their losses
    clips = [clips[i] for i in np.random.default_rng(0).permutation(len(clips)).tolist()]
    leasts = {path.least for turns in clips for paths in turns for path in paths}
    thresholds = np.array(sorted(leasts - {-math.inf}))
    # Gated text depends on what was committed before, so a higher threshold can, rarely, lose less.
    # The theorems need losses that never fall: their running maximum, never less than the loss.
    rising = np.maximum.accumulate(losses_of(clips, thresholds), axis=1)
    if (index := safe_index(rising, risk, confidence)) is None:
        return None
    # down: a little stricter
    threshold = math.floor(thresholds[index] * 10**DIGITS) / 10**DIGITS
    taken = [at(paths, threshold) for turns in clips for paths in turns]
    uploaded = [block for path in taken for block in path.uploaded]
    num_ids = sum(len(block.ids) for block in uploaded)
    accepted = sum(block.n_accepted for block in uploaded) / num_ids if num_ids else None
    skipped = 1 - len(uploaded) / sum(len(path.blocks) for path in taken)
    loss = float(losses_of(clips, np.array([threshold])).mean())
    return Certified(preset, threshold, k, risk, confidence, len(clips), loss, skipped, accepted)

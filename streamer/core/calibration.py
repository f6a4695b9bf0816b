"""A gate's threshold from a stated risk: every threshold's text, its losses, and what is certified.

Greedy gated decoding is a walk on committed prefixes: after each prefix the edge drafts one block,
which the cloud, teacher-forced on that prefix, would change or not. The gate only picks the branch.
Here the cloud looks at skipped blocks, too, so one visit of each prefix gives the path of every
threshold.

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

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.core.decoding.plan import Signal
from streamer.core.rules.settings import Rules, stop
from streamer.core.text.vocabulary import Vocabulary

Prefix = tuple[int, ...]  # the answer's committed ids


@dataclass(frozen=True, slots=True)
class Block:
    """The draft after one prefix and its verdict. forced: uploaded whatever the threshold (density,
    loop)."""

    ids: tuple[int, ...]
    signals: tuple[Signal, ...]
    n_accepted: int
    next_id: int
    forced: bool

    @property
    def doubt(self) -> float:
        """It is uploaded when this is above the threshold: the largest entropy of an id."""
        return math.inf if self.forced else max(signal.entropy for signal in self.signals)

    @property
    def changed(self) -> bool:
        """Whether the cloud rejects any of its ids; a bonus token is no change."""
        return self.n_accepted < len(self.ids)


BlockAt = Callable[[Prefix], Block]


@dataclass(frozen=True, slots=True)
class Decision:
    """One block on a path."""

    block: Block
    uploaded: bool


@dataclass(frozen=True, slots=True)
class Path:
    """Gated mode at every threshold from `least` up to the next path's. answer: all it commits."""

    least: float
    answer: Prefix
    decisions: tuple[Decision, ...]

    @property
    def num_missed(self) -> int:
        """Skipped blocks that the cloud would have changed."""
        return sum(d.block.changed and not d.uploaded for d in self.decisions)

    @property
    def num_uploaded(self) -> int:
        return sum(d.uploaded for d in self.decisions)


class Branches:
    """The walk over one turn's prefixes; each is visited once."""

    def __init__(self, block_at: BlockAt, vocabulary: Vocabulary, rules: Rules) -> None:
        self._block_at = block_at
        self._vocabulary = vocabulary
        self._rules = rules
        self._seen: dict[Prefix, Block] = {}

    def path(self, threshold: float) -> Path:
        """The turn with this threshold: `math.inf` is the edge alone, `-math.inf` exact mode."""
        prefix: Prefix = ()
        over = False
        least = -math.inf
        decisions: list[Decision] = []
        while not over:
            block = self._block(prefix)
            uploaded = block.forced or block.doubt > threshold
            if not uploaded:
                least = max(least, block.doubt)
            decisions.append(Decision(block, uploaded))
            prefix, over = self._commit(prefix, block, uploaded)
        return Path(least, prefix, tuple(decisions))

    def paths(self) -> list[Path]:
        """Every path, by falling threshold; the last one skips nothing and holds from -inf on."""
        found = [self.path(math.inf)]
        while found[-1].least > -math.inf:
            found.append(self.path(math.nextafter(found[-1].least, -math.inf)))
        return found

    def _block(self, prefix: Prefix) -> Block:
        if prefix not in self._seen:
            self._seen[prefix] = self._block_at(prefix)
        return self._seen[prefix]

    def _commit(self, prefix: Prefix, block: Block, uploaded: bool) -> tuple[Prefix, bool]:
        """(the prefix after the block, whether the answer is over), as in the state machine."""
        answer = list(prefix)
        for token in (*block.ids[: block.n_accepted], block.next_id) if uploaded else block.ids:
            stopped = stop(self._vocabulary, self._rules, answer, token)
            if stopped is None or stopped.keep:
                answer.append(token)
            if stopped is not None:
                return tuple(answer), True
        return tuple(answer), False


Floats = NDArray[np.float64]


def safe_index(losses: Floats, risk: float, confidence: float = 0.0) -> int | None:
    """The index of the highest threshold that keeps the promise: a column of `losses` [n, m], or
    None.

    Rows are clips in an order that does not depend on their losses, which are within 0..1 and never
    fall with the threshold: see `running_max`. confidence 0: in expectation only, otherwise both.
    """
    safe = bounded_mean(losses) <= risk
    if confidence:
        safe &= betting_capital(losses, risk, confidence) >= 1 / (1 - confidence)
    num_safe = int(np.logical_and.accumulate(safe).sum())
    return num_safe - 1 if num_safe else None


def bounded_mean(losses: Floats) -> Floats:
    """Conformal risk control's correction, [m]: the next clip counts with the worst loss."""
    return (losses.sum(axis=0) + 1.0) / (len(losses) + 1)


def betting_capital(losses: Floats, risk: float, confidence: float) -> Floats:
    """[m]: the highest capital of a gambler who starts with 1 and bets that the mean loss is below
    `risk`.

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


def running_max(losses: Floats) -> Floats:
    """The smallest losses above `losses` [n, m] that never fall along m, where thresholds rise.

    Gated text depends on what was committed before, so a higher threshold can, rarely, lose less.
    Its running maximum is what the theorems need, and never less than the loss.
    """
    return np.maximum.accumulate(losses, axis=1)


DIGITS = 4  # of a threshold
Paths = Sequence[Path]  # of one turn at every threshold, falling (Branches.paths)
Turns = Sequence[Paths]  # of one clip: a long recording has more than one


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


def thresholds_of(clips: Sequence[Turns]) -> Floats:
    """Every threshold at which any turn changes, rising; -inf is left out. [m]"""
    found = {
        path.least for turns in clips for paths in turns for path in paths if path.least > -math.inf
    }
    return np.array(sorted(found), dtype=np.float64)


def losses_of(clips: Sequence[Turns], thresholds: Floats) -> Floats:
    """[n, m]: each clip's loss at each of the rising thresholds."""
    return np.stack([_losses(turns, thresholds) for turns in clips])


def _losses(turns: Turns, thresholds: Floats) -> Floats:
    """[m] of one clip."""
    missed = np.zeros(len(thresholds))
    total = np.zeros(len(thresholds))
    for paths in turns:
        rising = paths[::-1]
        which = np.searchsorted([path.least for path in rising], thresholds, side="right") - 1
        missed += np.array([path.num_missed for path in rising])[which]
        total += np.array([len(path.decisions) for path in rising])[which]
    return missed / total


def certify(
    clips: Sequence[Turns], preset: str, k: int, risk: float, confidence: float
) -> Certified | None:
    """The largest threshold that keeps the promise; None if even the surest block is too unsure."""
    # the betting bound takes clips one after the other: in an order blind to their losses
    clips = [clips[i] for i in np.random.default_rng(0).permutation(len(clips)).tolist()]
    thresholds = thresholds_of(clips)
    if not len(thresholds):
        return None
    index = safe_index(running_max(losses_of(clips, thresholds)), risk, confidence)
    if index is None:
        return None
    # down: a little stricter
    threshold = math.floor(thresholds[index] * 10**DIGITS) / 10**DIGITS
    decisions = [
        decision
        for turns in clips
        for paths in turns
        for decision in at(paths, threshold).decisions
    ]
    uploads = [decision.block for decision in decisions if decision.uploaded]
    num_ids = sum(len(block.ids) for block in uploads)
    return Certified(
        preset,
        threshold,
        k,
        risk,
        confidence,
        len(clips),
        loss=float(losses_of(clips, np.array([threshold])).mean()),
        skipped=1 - len(uploads) / len(decisions),
        accepted=sum(block.n_accepted for block in uploads) / num_ids if num_ids else None,
    )

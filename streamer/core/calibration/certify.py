"""Which signal, which threshold. In: clips' paths. Out: a certified threshold and its figures.

The loss of a clip: skipped blocks that the cloud, teacher-forced on what gated mode had committed,
would have changed, over all its blocks. It is that of free-running gated mode: a block's prefix
holds what was skipped before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streamer.core.calibration.bounds import Floats, running_max, safe_index
from streamer.core.calibration.branches import Path
from streamer.core.decoding.gate import SIGNALS

CLEAR_GAIN = 0.01  # more blocks skipped, as a share, by a signal that is to replace entropy
DIGITS = 4  # of a threshold
Paths = Sequence[Path]  # of one turn at every threshold, falling (Branches.paths)
Turns = Sequence[Paths]  # of one clip: a long recording has more than one


class Uncertifiable(Exception):
    """No threshold keeps the risk: one line."""


@dataclass(frozen=True)
class Certified:
    """One preset's threshold and what it did on the clips that certified it."""

    preset: str
    signal: str
    threshold: float  # as the gate states it
    k: int
    risk: float
    confidence: float
    num_clips: int
    num_groups: int  # of clips, for each of which the expected loss is <= risk
    loss: float  # mean over clips
    loss_forced: float  # the same, teacher-forced on the cloud's own text instead
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
    found: Floats = missed / total
    return found


def skipped_share(clips: Sequence[Turns], threshold: float) -> float:
    """Of all blocks of all turns."""
    paths = [at(of, threshold) for turns in clips for of in turns]
    return 1 - sum(p.num_uploaded for p in paths) / sum(len(p.decisions) for p in paths)


def choose_signal(
    clips: Mapping[str, Sequence[Turns]], risk: float
) -> tuple[str, dict[str, float]]:
    """(the signal to certify, share of blocks each skips) from signal -> clips: entropy, unless one
    is clearly better.

    Each is judged at the largest threshold whose mean loss here is <= risk, which promises nothing.
    """
    skipped = {signal: _skipped_at(of, risk) for signal, of in clips.items()}
    best = max(skipped, key=lambda signal: skipped[signal])
    return (best if skipped[best] > skipped["entropy"] + CLEAR_GAIN else "entropy"), skipped


def _skipped_at(clips: Sequence[Turns], risk: float) -> float:
    thresholds = thresholds_of(clips)
    if not len(thresholds):
        return 0.0
    num_safe = int((running_max(losses_of(clips, thresholds)).mean(axis=0) <= risk).sum())
    return skipped_share(clips, float(thresholds[num_safe - 1])) if num_safe else 0.0


def certify(
    groups: Sequence[Sequence[Turns]],
    preset: str,
    signal: str,
    k: int,
    risk: float,
    confidence: float,
) -> Certified:
    """The largest threshold that keeps the promise: with confidence for all clips, in expectation
    for each group.

    Raises Uncertifiable where even the surest block is too unsure, or a group too small.
    """
    clips = [clip for group in groups for clip in group]
    thresholds = thresholds_of(clips)
    found = [safe_index(running_max(losses_of(group, thresholds)), risk) for group in groups]
    found.append(safe_index(running_max(losses_of(shuffled(clips), thresholds)), risk, confidence))
    safe = [index for index in found if index is not None]
    if not len(thresholds) or len(safe) < len(found):
        raise Uncertifiable(
            f"no threshold on {signal} keeps a risk of {risk:g} for preset {preset}"
        )
    index = min(safe)
    # down: a little stricter
    threshold = math.floor(thresholds[index] * 10**DIGITS) / 10**DIGITS
    uploads = [
        d.block
        for turns in clips
        for paths in turns
        for d in at(paths, threshold).decisions
        if d.uploaded
    ]
    num_ids = sum(len(block.ids) for block in uploads)
    return Certified(
        preset,
        signal,
        SIGNALS[signal] * threshold,
        k,
        risk,
        confidence,
        len(clips),
        len(groups),
        loss=float(losses_of(clips, np.array([threshold])).mean()),
        loss_forced=float(np.mean([loss_forced(turns, threshold) for turns in clips])),
        skipped=skipped_share(clips, threshold),
        accepted=sum(block.n_accepted for block in uploads) / num_ids if num_ids else None,
    )


def shuffled(clips: Sequence[Turns]) -> list[Turns]:
    """In an order blind to the groups: the betting bound takes clips one after the other."""
    return [clips[i] for i in np.random.default_rng(0).permutation(len(clips)).tolist()]


def loss_forced(turns: Turns, threshold: float) -> float:
    """One clip's loss on exact mode's blocks: what a skip does to later ones is left out."""
    decisions = [d for paths in turns for d in paths[-1].decisions]
    return sum(d.block.changed and d.doubt <= threshold for d in decisions) / len(decisions)

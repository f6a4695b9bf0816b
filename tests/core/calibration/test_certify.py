"""Losses of paths, the choice of a signal, and thresholds that hold for every group of clips."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streamer.core.calibration import (
    Block,
    Decision,
    Path,
    Turns,
    Uncertifiable,
    at,
    certify,
    choose_signal,
    losses_of,
    skipped_share,
    thresholds_of,
)
from streamer.core.decoding.gate import Signal

SURE = (Signal(0.1, 0.9, -0.1),) * 2


def turn(*blocks: tuple[float, bool]) -> list[Path]:
    """One turn of blocks (doubt, changed) that do not depend on each other, at every threshold,
    falling."""
    made = [
        (Block((1, 2), SURE, 1 if changed else 2, 3, False), doubt) for doubt, changed in blocks
    ]
    levels = sorted({doubt for doubt, _ in blocks}, reverse=True)
    return [
        Path(least, (), tuple(Decision(b, d, d > least) for b, d in made))
        for least in [*levels, -math.inf]
    ]


def clips(seed: int, n: int, chance_at_top: float = 0.5) -> list[Turns]:
    """Clips of one turn and five blocks; the higher the doubt, the likelier the cloud changes
    it."""
    chance = np.random.default_rng(seed)
    doubts = chance.random((n, 5))
    changed = chance.random((n, 5)) < chance_at_top * doubts**2
    return [
        [turn(*zip(d.tolist(), c.tolist(), strict=True))]
        for d, c in zip(doubts, changed, strict=True)
    ]


def test_a_clips_loss_is_over_all_blocks_of_all_its_turns() -> None:
    long = [turn((0.1, False), (0.3, True)), turn((0.2, True), (0.9, True), (0.4, False))]
    np.testing.assert_allclose(
        losses_of([long], np.array([0.05, 0.2, 0.35, 1.0])), [[0.0, 0.2, 0.4, 0.6]]
    )
    assert thresholds_of([long]).tolist() == [0.1, 0.2, 0.3, 0.4, 0.9]
    assert skipped_share([long], 0.3) == pytest.approx(0.6)
    assert at(long[0], 0.25).num_uploaded == 1


def test_the_threshold_keeps_the_risk_in_every_group() -> None:
    easy, hard = clips(1, 200, 0.2), clips(2, 200, 0.9)
    together = certify([easy + hard], "fluent", "entropy", 4, 0.1, 0.0)
    apart = certify([easy, hard], "fluent", "entropy", 4, 0.1, 0.0)
    assert (together.num_groups, apart.num_groups) == (1, 2)
    assert apart.threshold < together.threshold
    at_threshold = np.array([apart.threshold])
    for group in (easy, hard):
        assert (losses_of(group, at_threshold).sum() + 1) / 201 <= 0.1
    assert (losses_of(hard, np.array([together.threshold])).sum() + 1) / 201 > 0.1
    assert certify([easy + hard], "fluent", "entropy", 4, 0.1, 0.95).threshold < together.threshold


def test_a_thresholds_sign_is_the_gates() -> None:
    found = certify([clips(3, 100)], "quality", "margin", 6, 0.2, 0.0)
    assert found.threshold == -math.floor(-found.threshold * 1e4) / 1e4, (
        "rounded to the strict side"
    )
    assert found.threshold < 0, "the doubt of a margin is its negative: here doubts are positive"
    assert 0 < found.loss <= 0.2
    assert found.loss == pytest.approx(found.loss_forced), "blocks that do not depend on each other"


def test_what_cannot_be_certified_is_said() -> None:
    for groups in ([clips(4, 5)], [clips(4, 200), clips(5, 5)]):
        with pytest.raises(Uncertifiable, match=r"no threshold on entropy keeps a risk of 0\.05"):
            certify(groups, "fluent", "entropy", 4, 0.05, 0.0)


def test_another_signal_must_be_clearly_better_than_entropy() -> None:
    sharp = clips(6, 100)
    blunt = [[turn(*[(1 - d.doubt, d.block.changed) for d in of[0][-1].decisions])] for of in sharp]
    assert (
        choose_signal({"entropy": sharp, "margin": sharp, "surprise": blunt}, 0.05)[0] == "entropy"
    )
    signal, skipped = choose_signal({"entropy": blunt, "margin": sharp}, 0.05)
    assert signal == "margin"
    assert skipped["margin"] > skipped["entropy"] + 0.01

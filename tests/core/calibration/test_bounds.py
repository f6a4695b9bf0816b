"""The promise, kept: simulated exchangeable clips, many times over; and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.core.calibration import (
    betting_capital,
    bounded_mean,
    least_risk,
    num_needed,
    running_max,
    safe_index,
)

GRID = np.linspace(0, 1, 41)


def clips(chance: np.random.Generator, n: int, blocks: int = 6) -> np.ndarray:
    """[n, 41] losses: of every block a doubt, and whether the cloud changes it, likelier where
    doubt is high.

    Clips differ in how hard they are, so blocks of one clip are not independent; clips are.
    """
    hard = chance.beta(1, 3, (n, 1))
    doubts = chance.random((n, blocks))
    changed = chance.random((n, blocks)) < hard * doubts
    return (changed[:, :, None] & (doubts[:, :, None] <= GRID)).mean(axis=1)


def realised(
    risk: float, confidence: float, n: int, trials: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """([trials] loss of one fresh clip, [trials] true mean loss), each at the threshold its own
    calibration gave."""
    chance = np.random.default_rng(seed)
    truth = clips(np.random.default_rng(0), 50_000).mean(axis=0)
    fresh, means = [], []
    for _ in range(trials):
        index = safe_index(clips(chance, n), risk, confidence)
        fresh.append(0.0 if index is None else clips(chance, 1)[0, index])
        means.append(0.0 if index is None else truth[index])
    return np.array(fresh), np.array(means)


@pytest.mark.parametrize(("risk", "n"), [(0.05, 30), (0.03, 100), (0.1, 15)])
def test_the_next_clips_expected_loss_is_within_the_risk(risk: float, n: int) -> None:
    fresh, means = realised(risk, 0.0, n, trials=800, seed=n)
    error = fresh.std() / math.sqrt(len(fresh))
    assert fresh.mean() <= risk + 3 * error
    assert means.mean() <= risk, "the same with the clip's own chance taken out"
    assert means.mean() >= risk - 2.5 / (n + 1), (
        "and not far below it: the correction costs about 1 / (n + 1)"
    )


def test_with_confidence_few_calibrations_are_above_the_risk() -> None:
    confidence, trials = 0.8, 250
    _, means = realised(0.08, confidence, 120, trials, seed=7)
    above = (means > 0.08).mean()
    assert above <= 1 - confidence + 3 * math.sqrt(0.2 * 0.8 / trials)
    _, plain = realised(0.08, 0.0, 120, trials, seed=7)
    assert (plain > 0.08).mean() > above, "which the expectation alone does not give"
    assert means.max() > 0.02, "the bound is not empty"


def test_the_correction_is_the_papers() -> None:
    losses = np.array([[0.0, 0.1], [0.0, 0.3]])
    n = len(losses)
    np.testing.assert_allclose(
        bounded_mean(losses), n / (n + 1) * losses.mean(axis=0) + 1 / (n + 1)
    )


def test_num_needed_is_what_is_needed() -> None:
    assert num_needed(0.02) == 49
    assert num_needed(0.5) == 1
    for risk in (0.01, 0.04, 0.2):
        for confidence in (0.0, 0.9):
            n = num_needed(risk, confidence)
            assert safe_index(np.zeros((n, 1)), risk, confidence) == 0
            if n < 400:  # beyond, it is found in steps of half a percent
                assert n == 1 or safe_index(np.zeros((n - 1, 1)), risk, confidence) is None
            assert least_risk(n, confidence) <= risk * 1.1
    assert num_needed(0.04, 0.9) > num_needed(0.04)
    assert least_risk(0) == 1.0


def test_no_threshold_is_better_than_a_broken_promise() -> None:
    assert safe_index(np.ones((200, 3)), 0.05) is None
    assert safe_index(np.zeros((10, 3)), 0.05) is None, "ten clips cannot promise a twentieth"
    assert safe_index(np.zeros((200, 3)), 0.05) == 2
    assert safe_index(np.repeat([[0.0, 0.04, 0.06]], 500, axis=0), 0.05) == 1


@pytest.mark.parametrize("losses", [[[0.1, 0.0]], [[-0.1, 0.0]], [[0.0, 1.1]]])
def test_losses_that_the_theorem_does_not_cover_are_refused(losses: list[list[float]]) -> None:
    with pytest.raises(ValueError, match=r"within 0\.\.1 and must not fall"):
        safe_index(np.array(losses), 0.5)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 8),
    st.integers(0, 10**6),
    st.floats(0.01, 0.9),
    st.sampled_from([0.0, 0.9]),
)
def test_a_larger_risk_never_gives_a_stricter_threshold(
    n: int, m: int, seed: int, risk: float, sure: float
) -> None:
    losses = running_max(np.random.default_rng(seed).random((n, m)) ** 4)
    found = [safe_index(losses, r, sure) for r in (risk, min(0.99, risk * 1.5))]
    assert (-1 if found[0] is None else found[0]) <= (-1 if found[1] is None else found[1])
    if found[0] is not None:
        assert losses[:, found[0]].mean() <= risk


def test_the_gambler_wins_only_below_the_risk() -> None:
    """Ville: with a mean loss AT the risk, capital above 1 / delta comes in at most delta of all
    runs."""
    chance = np.random.default_rng(5)
    losses = (chance.random((300, 1000)) < 0.05).astype(float)
    won = betting_capital(losses, 0.05, 0.9)[None] >= 10
    assert won.mean() <= 0.1 + 3 * math.sqrt(0.09 / 1000)
    assert (betting_capital(losses * 0.3, 0.05, 0.9) >= 10).mean() > 0.9


def test_running_max_is_the_least_monotone_bound() -> None:
    losses = np.array([[0.0, 0.2, 0.1, 0.3]])
    np.testing.assert_array_equal(running_max(losses), [[0.0, 0.2, 0.2, 0.3]])

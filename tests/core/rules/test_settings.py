"""The noise is Gumbel, independent over seeds, places and ids, and the same wherever it is asked for;
level weights are quantised once, the best level 0, and bounded."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from streamer.core.rules.settings import FLOOR, UNITS_PER_NAT, check_weights, gumbel, quantised

IDS = np.arange(152_064)


def uniform(seed: int, index: int, ids: np.ndarray) -> np.ndarray:
    return np.exp(-np.exp(-gumbel(seed, index, ids)))


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 10**6),
    st.lists(st.integers(0, 200_000), min_size=1, max_size=20),
)
def test_an_ids_noise_does_not_depend_on_the_others(seed: int, index: int, ids: list[int]) -> None:
    together = gumbel(seed, index, np.array(ids))
    assert together.dtype == np.float64
    assert np.isfinite(together).all()
    for i, value in zip(ids, together, strict=True):
        assert gumbel(seed, index, np.array([i]))[0] == value


@pytest.mark.parametrize(("seed", "index"), [(0, 0), (0, 1), (1, 0), (12345, 95), (2**64 - 1, 7)])
def test_noise_over_ids_is_gumbel(seed: int, index: int) -> None:
    assert stats.kstest(gumbel(seed, index, IDS), stats.gumbel_r.cdf).pvalue > 1e-3
    counts = np.bincount((uniform(seed, index, IDS) * 256).astype(int), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_noise_over_places_and_over_seeds_is_gumbel() -> None:
    some = np.array([3837])
    places = np.array([gumbel(0, i, some)[0] for i in range(5000)])
    seeds = np.array([gumbel(i, 3, some)[0] for i in range(5000)])
    assert stats.kstest(places, stats.gumbel_r.cdf).pvalue > 1e-3
    assert stats.kstest(seeds, stats.gumbel_r.cdf).pvalue > 1e-3


def test_neighbouring_seeds_places_and_ids_are_independent() -> None:
    base = uniform(5, 5, IDS)
    others = [
        uniform(6, 5, IDS),
        uniform(5, 6, IDS),
        uniform(4, 6, IDS),
        np.roll(base, 1),
        uniform(5 + 2**32, 5, IDS),
    ]
    for other in others:
        assert abs(np.corrcoef(base, other)[0, 1]) < 5 / np.sqrt(len(IDS))
        joint = np.histogram2d(base, other, bins=16, range=[[0, 1], [0, 1]])[0]
        assert stats.chisquare(joint.ravel()).pvalue > 1e-3


def test_the_noise_is_part_of_the_wire_format() -> None:
    """Edge and cloud of different versions must agree: a change of these numbers breaks exact
    mode."""
    assert gumbel(0, 0, np.array([0, 1, 3837])) == pytest.approx(
        [-0.03276267412932252, 6.527609163978889, -0.811711363422554], rel=1e-12
    )


LOGS = st.dictionaries(
    st.sampled_from(["rate", "pitch", "pauses"]),
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6),
)


@given(LOGS)
def test_quantised_weights_are_within_half_a_unit(logs) -> None:
    found = quantised(logs)
    check_weights(found)
    for name, weights in found.items():
        best = max(logs[name])
        for log, weight in zip(logs[name], weights, strict=True):
            wanted = max(FLOOR, UNITS_PER_NAT * (log - best))
            assert abs(weight - wanted) <= 0.5 + 1e-9
    for name in logs.keys() - found.keys():
        assert max(logs[name]) - min(logs[name]) <= 0.5 / UNITS_PER_NAT + 1e-9


@pytest.mark.parametrize("logs", [[], [-math.inf], [math.nan, 0.0], [math.inf, 0.0]])
def test_weights_that_mean_nothing_are_refused(logs) -> None:
    with pytest.raises(ValueError, match="rate needs at least one finite weight"):
        quantised({"rate": logs})


@pytest.mark.parametrize("weights", [{"rate": (-1, -2)}, {"rate": (0, FLOOR - 1)}])
def test_weights_from_elsewhere_are_checked(weights) -> None:
    with pytest.raises(ValueError, match="weights of rate must be"):
        check_weights(weights)

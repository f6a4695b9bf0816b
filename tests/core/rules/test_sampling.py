"""The noise is Gumbel, independent over seeds, places and ids, and the same wherever it is asked
for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from streamer.core.rules.sampling import Sampling, gumbel

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


def test_hash_by_hand() -> None:
    """The same arithmetic in Python's integers."""
    mask, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(x: int) -> int:
        x = (x + golden) & mask
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & mask
        return x ^ (x >> 31)

    seed, index, i = 2**63 + 11, 17, 151_645
    bits = mix(mix((mix(seed) + index * golden) & mask) ^ mix((i + 1) * golden & mask))
    u = ((bits >> 12) + 0.5) / 2**52
    assert gumbel(seed, index, np.array([i]))[0] == pytest.approx(-np.log(-np.log(u)), rel=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"seed": -1},
    ],
)
def test_sampling_refuses_what_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Sampling(**wrong)  # type: ignore[arg-type]

"""Level weights: quantised once, the best level 0, bounded on the wire."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.rules.settings import FLOOR, UNITS_PER_NAT, check_weights, quantised

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
    assert quantised({n: [log + 3.0 for log in of] for n, of in {"a": [0.0, -1.0]}.items()}) == {
        "a": (0, -UNITS_PER_NAT)
    }


@pytest.mark.parametrize("logs", [[], [-math.inf], [math.nan, 0.0], [math.inf, 0.0]])
def test_weights_that_mean_nothing_are_refused(logs) -> None:
    with pytest.raises(ValueError, match="rate needs at least one finite weight"):
        quantised({"rate": logs})


@pytest.mark.parametrize("weights", [{"rate": (-1, -2)}, {"rate": (0, FLOOR - 1)}])
def test_weights_from_elsewhere_are_checked(weights) -> None:
    with pytest.raises(ValueError, match="weights of rate must be"):
        check_weights(weights)

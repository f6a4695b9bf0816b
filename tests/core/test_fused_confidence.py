"""How sure a level is that measures and a model tell together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.confidence import SaidToken, fused_confidence

PHRASES = {
    "rate": [{"name": f"level {i}", "phrases": [f"rate {word}"]} for i, word in enumerate("abc")]
}


def sure(level: int, mass: float, chances: list[float], opinion: float) -> float:
    pieces = [SaidToken("rate ", -0.5, False), SaidToken("abc"[level], math.log(mass), False)]
    found = fused_confidence(pieces, PHRASES, {"rate": np.array(chances)}, {"rate": opinion})
    return found["rate"]


@given(st.integers(0, 2), st.floats(1e-6, 0.999999), st.floats(0, 2))
def test_it_is_a_chance_that_grows_with_the_model_s_mass(level, mass, opinion) -> None:
    chances = [0.2, 0.5, 0.3]
    found = sure(level, mass, chances, opinion)
    assert 0 < found < 1
    assert found <= sure(level, min(0.999999, 1.01 * mass), chances, opinion) + 1e-12


def test_without_an_opinion_it_is_the_measures_chance() -> None:
    for level, chance in enumerate([0.2, 0.5, 0.3]):
        assert sure(level, 0.01, [0.2, 0.5, 0.3], 0.0) == pytest.approx(chance)


def test_other_levels_than_the_card_s_say_nothing() -> None:
    pieces = [SaidToken("rate a", -0.5, False)]
    assert fused_confidence(pieces, PHRASES, {"rate": np.full(4, 0.25)}, {"rate": 1.0}) == {}
    assert fused_confidence(pieces, PHRASES, {}, {}) == {}

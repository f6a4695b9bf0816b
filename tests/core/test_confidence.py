"""How sure a level is, by the measures and a model together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.attributes import SaidToken, fused_confidence, masses_of, parting

SPOKEN: dict[str, Any] = {
    "rate": [
        {"name": "slow", "phrases": ["说得比较慢", "语速偏慢"]},
        {"name": "fast", "phrases": ["说得比较快", "语速偏快"]},
        {"name": "very fast", "phrases": ["说得非常快", "语速极快"]},
    ],
    "pitch": [{"name": "low", "phrases": ["音调低沉"]}, {"name": "high", "phrases": ["尖"]}],
}
PHRASES = {
    "rate": [{"name": f"level {i}", "phrases": [f"rate {word}"]} for i, word in enumerate("abc")]
}


def sure(level: int, mass: float, chances: list[float], opinion: float) -> float:
    pieces = [SaidToken("rate ", -0.5), SaidToken("abc"[level], math.log(mass))]
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
    pieces = [SaidToken("rate a", -0.5)]
    assert fused_confidence(pieces, PHRASES, {"rate": np.full(4, 0.25)}, {"rate": 1.0}) == {}
    assert fused_confidence(pieces, PHRASES, {}, {}) == {}


def pieces(*told: tuple[str, float | None]) -> list[SaidToken]:
    return [SaidToken(*each) for each in told]


@pytest.mark.parametrize(
    ("phrase", "attribute", "num"),
    [
        ("说得比较慢", "rate", 2),
        ("语速偏慢", "rate", 2),
        ("说得非常快", "rate", 2),
        ("音调低沉", "pitch", 0),
    ],
)
def test_where_levels_part(phrase: str, attribute: str, num: int) -> None:
    """After what all phrases of other levels share that begin so."""
    assert parting(phrase, attribute, SPOKEN) == num


def test_the_mass_is_that_of_the_tokens_that_tell_levels_apart() -> None:
    said = pieces(
        *(("他", -5), ("说得", -4), ("比较", -0.25), ("快", -0.5), ("，", -3), ("尖", -0.125))
    )
    assert masses_of(said, SPOKEN) == {"rate": -0.75, "pitch": -0.125}


def test_half_a_character_goes_with_the_half_that_completes_it() -> None:
    said = pieces(("语速", -4), ("", -1), ("极", -2), ("", -8), ("快", -16), ("", -32))
    assert masses_of(said, SPOKEN)["rate"] == -27


def test_what_is_not_known_is_not_told() -> None:
    """Of one token of a phrase no log-probability: nothing of its attribute."""
    assert masses_of(pieces(("语速", None), ("极快", -1)), SPOKEN)["rate"] == -1
    assert masses_of(pieces(("语速", -1), ("极快", None)), SPOKEN) == {}
    assert masses_of([], SPOKEN) == {}

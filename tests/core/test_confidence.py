"""From the tokens of a sentence to the chance that its levels are right."""

from __future__ import annotations

import math
from typing import Any

import pytest

from streamer.core.attributes import ATTRIBUTES
from streamer.core.confidence import (
    ConfidenceCurves,
    Curve,
    Mass,
    SaidToken,
    confidence_of,
    logit,
    masses_of,
    parting,
)

PHRASES: dict[str, Any] = {
    "rate": [
        {"name": "slow", "phrases": ["说得比较慢", "语速偏慢"]},
        {"name": "fast", "phrases": ["说得比较快", "语速偏快"]},
        {"name": "very fast", "phrases": ["说得非常快", "语速极快"]},
    ],
    "pitch": [{"name": "low", "phrases": ["音调低沉"]}, {"name": "high", "phrases": ["尖"]}],
}
AS_IT_IS = Curve(1.0, 0.0)
CURVES = ConfidenceCurves({"rate": AS_IT_IS}, {"rate": Curve(1.0, 1.0)}, "cloud")


def pieces(*told: tuple[str, float | None], verified: bool = False) -> list[SaidToken]:
    return [SaidToken(text, log_prob, verified) for text, log_prob in told]


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
    """Behind what all phrases of other levels share that begin so."""
    assert parting(phrase, attribute, PHRASES) == num


def test_the_mass_is_that_of_the_tokens_that_tell_levels_apart() -> None:
    said = pieces(
        *(("他", -5), ("说得", -4), ("比较", -0.25), ("快", -0.5), ("，", -3), ("尖", -0.125))
    )
    assert masses_of(said, PHRASES) == {"rate": Mass(-0.75, False), "pitch": Mass(-0.125, False)}


def test_half_a_character_goes_with_the_half_that_completes_it() -> None:
    said = pieces(("语速", -4), ("", -1), ("极", -2), ("", -8), ("快", -16), ("", -32))
    assert masses_of(said, PHRASES)["rate"].log_mass == -27


def test_the_curve_is_that_of_the_model_that_spoke_last() -> None:
    near = pieces(("语速", -1), ("偏", -0.5), ("快", -0.5))
    mixed = [*near[:2], SaidToken("快", -0.5, True)]
    verified = [near[0], *(piece._replace(verified=True) for piece in near[1:])]
    own, other = 1 / (1 + math.exp(-logit(-1.0))), 1 / (1 + math.exp(-logit(-1.0) - 1))
    for said, is_known, sure in (
        (near, False, own),
        (mixed, False, own),
        (verified, True, other),
        (verified, False, None),
    ):
        found = confidence_of(said, PHRASES, CURVES, 5.0, is_known)
        assert found == {**dict.fromkeys(ATTRIBUTES), "rate": sure}


def test_of_more_speech_a_level_is_surer_where_the_curve_says_so() -> None:
    curve = Curve(1.0, -1.0, 0.5)
    sure = [curve(math.log(0.5), seconds) for seconds in (0.1, 1, math.e**2, 60)]
    assert sure[0] == sure[1] == pytest.approx(1 / (1 + math.e))
    assert sure[2] == pytest.approx(0.5)
    assert sure[3] > sure[2]

"""Sentences read back into levels."""

from __future__ import annotations

from typing import Any

import pytest

from streamer.core.attributes import ATTRIBUTES, chosen, level_names, parse
from streamer.core.rules.settings import ALL

PHRASES: dict[str, Any] = {
    "rate": [
        {"name": "slow", "phrases": ["语速缓慢", "慢", "不太快"]},
        {"name": "even", "phrases": ["语速适中"]},
        {"name": "fast", "phrases": ["快", "语速很快"]},
    ],
    "arousal": [
        {"name": "calm", "phrases": ["平静", "情绪平稳"]},
        {"name": "excited", "phrases": ["快活", "激动"]},
    ],
    "pitch": [{"name": "low", "phrases": ["音调平稳低沉"]}, {"name": "high", "phrases": ["尖"]}],
}


@pytest.mark.parametrize(
    ("names", "profile", "among", "said"),
    [
        (None, "full", ATTRIBUTES, ALL),
        (",".join(reversed(ATTRIBUTES)), "full", ATTRIBUTES, ALL),
        ("pitch, rate", "full", ATTRIBUTES, "rate,pitch"),
        (None, "acoustic", ATTRIBUTES, ",".join(ATTRIBUTES[:-1])),
        ("pitch", "acoustic", ATTRIBUTES, "pitch"),
        (None, "acoustic", ("rate", "arousal"), "rate"),
    ],
)
def test_names_of_a_sentence(names: Any, profile: Any, among: Any, said: str) -> None:
    assert chosen(names, profile, among) == said


@pytest.mark.parametrize(
    ("names", "profile", "among", "error"),
    [
        ("tempo", "full", ATTRIBUTES, "attributes names 'tempo'; known are rate, pitch"),
        ("", "full", ATTRIBUTES, "attributes names ''; known are"),
        ("arousal", "acoustic", ATTRIBUTES, "'arousal'; it is left out here; there are rate"),
        ("pitch", "full", ("rate",), "'pitch'; it is left out here; there are rate"),
        ("rate", "full", (), "it is left out here; there are none"),
        (None, "acoustic", ("arousal",), "attributes names none"),
    ],
)
def test_unknown_names_are_refused(names: Any, profile: Any, among: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        chosen(names, profile, among)


def test_a_sentence() -> None:
    levels = parse("说话人语速很快，音调平稳低沉，情绪平稳。", PHRASES)
    assert list(levels) == ["rate", "pitch", "variation", "loudness", "pauses", "timbre", "arousal"]
    assert levels == dict.fromkeys(ATTRIBUTES) | {"rate": 2, "pitch": 0, "arousal": 0}


def test_longest_first_without_overlap() -> None:
    assert parse("不太快", PHRASES)["rate"] == 0
    assert parse("快活", PHRASES) == dict.fromkeys(ATTRIBUTES) | {"arousal": 1}, (
        "another attribute's longer phrase"
    )
    assert parse("快活地快", PHRASES)["rate"] == 2


def test_names_of_levels_in_both_languages() -> None:
    chinese = {"rate": [{"name": "很慢", "phrases": []}, {"name": "自编", "phrases": []}]}
    english = {"rate": [{"name": "crawling", "phrases": []}, {"name": "own", "phrases": []}]}
    shipped = {"zh": "很慢", "en": "very slow"}, {"zh": "自编", "en": None}
    assert level_names({"zh": chinese}) == {"rate": list(shipped)}
    assert level_names({"en": english})["rate"][0] == {"zh": None, "en": "crawling"}
    assert level_names({"zh": chinese, "en": english})["rate"][1] == {"zh": "自编", "en": "own"}
    assert level_names({"zh": {}, "de": chinese})["rate"][0] == {
        "zh": None,
        "en": None,
        "de": "很慢",
    }

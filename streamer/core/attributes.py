"""A sentence read back into attributes. In: text, the phrases of each level. Out: attribute ->
level or None.

Level 0 is the physically lowest: slowest, lowest, flattest, softest, fewest pauses, darkest,
calmest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ATTRIBUTES = ("rate", "pitch", "variation", "loudness", "pauses", "timbre", "arousal")

# Attribute -> a level's name -> what it means: the names of the models that ship. Others' names
# stand alone.
ENGLISH = {
    "rate": {
        "很慢": "very slow",
        "偏慢": "slow",
        "适中": "medium",
        "偏快": "fast",
        "很快": "very fast",
    },
    "pitch": {"低沉": "very low", "偏低": "low", "偏高": "high", "很高": "very high"},
    "variation": {"平直": "flat", "自然": "natural", "丰富": "lively"},
    "loudness": {"很轻": "very soft", "偏轻": "soft", "中等": "medium", "响亮": "loud"},
    "pauses": {"连贯": "few", "适度": "some", "频繁": "many"},
    "timbre": {"暗沉": "dark", "均衡": "balanced", "明亮": "bright"},
    "arousal": {"平静": "calm", "平和": "relaxed", "激动": "excited"},
}

# attribute -> levels, lowest first, each {"name": str, "phrases": [str, ...]}; part of
# streamer.json
Phrases = Mapping[str, Sequence[Mapping[str, Any]]]


def with_english(phrases: Phrases) -> dict[str, list[dict[str, Any]]]:
    """The same with `english` beside each level's name, "" where that is not known."""
    return {
        attribute: [
            {**level, "english": ENGLISH.get(attribute, {}).get(level["name"], "")}
            for level in levels
        ]
        for attribute, levels in phrases.items()
    }


def parse(text: str, phrases: Phrases) -> dict[str, int | None]:
    """The level of each of ATTRIBUTES in `text`; None where no phrase of it occurs.

    All attributes' phrases are matched together, longest first, then leftmost, without overlap, so
    that 不太快 is not read as 快. The first match of an attribute decides. Raises ValueError for an
    attribute it does not know.
    """
    levels: dict[str, int | None] = dict.fromkeys(ATTRIBUTES)
    taken = bytearray(len(text))
    for phrase, attribute, level in _longest_first(phrases):
        for start in _places(text, phrase):
            span = slice(start, start + len(phrase))
            if any(taken[span]):
                continue
            taken[span] = b"\x01" * len(phrase)
            if levels[attribute] is None:
                levels[attribute] = level
    return levels


def _longest_first(phrases: Phrases) -> list[tuple[str, str, int]]:
    unknown = sorted(set(phrases) - set(ATTRIBUTES))
    if unknown:
        raise ValueError(
            f"unknown attributes {', '.join(unknown)}: known are {', '.join(ATTRIBUTES)}"
        )
    found = [
        (phrase, attribute, i)
        for attribute in ATTRIBUTES
        for i, level in enumerate(phrases.get(attribute, ()))
        for phrase in level["phrases"]
        if phrase
    ]
    return sorted(found, key=lambda entry: -len(entry[0]))


def _places(text: str, phrase: str) -> list[int]:
    """Every place where `phrase` stands in `text`."""
    places = []
    at = text.find(phrase)
    while at >= 0:
        places.append(at)
        at = text.find(phrase, at + 1)
    return places

"""A description for voice agents: a profile of labels and numbers, and a line for a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from streamer.core.description import Description
from streamer.core.readings import UNITS, readings_of
from streamer.core.text.chinese import told

Language = Literal["en", "zh"]


@dataclass(frozen=True)
class Words:
    """A line in one language. manner: how it words each level; the number follows in
    parentheses."""

    manner: Mapping[str, tuple[str, ...]]
    other: str  # for a level without words
    number: str
    speaks: str
    comma: str
    sounds: str
    line: str
    semicolon: str


WORDS: Mapping[Language, Words] = {
    "en": Words(
        {
            "rate": ("very slowly", "slowly", "at a moderate pace", "fast", "very fast"),
            "loudness": ("very softly", "softly", "at a moderate volume", "loudly"),
            "variation": ("in a monotone", "with moderate intonation", "with lively intonation"),
            "pauses": ("with hardly a pause", "with some pauses", "with many pauses"),
        },
        other="at {} level {}",
        number=" ({} {})",
        speaks="speaks {}",
        comma=", ",
        sounds="sounds {}",
        line="The user {}.",
        semicolon="; ",
    ),
    "zh": Words(
        {
            "rate": ("说得很慢", "说得偏慢", "语速适中", "说得偏快", "说得很快"),
            "loudness": ("声音很轻", "声音偏轻", "音量适中", "声音响亮"),
            "variation": ("语调平直", "语调自然", "语调丰富"),
            "pauses": ("几乎没有停顿", "有一些停顿", "停顿很多"),
        },
        other="{}为第{}级",
        number="（{} {}）",
        speaks="{}",
        comma="，",
        sounds="情绪{}",
        line="用户{}。",
        semicolon="；",
    ),
}


def voice_profile(found: Description, language: Language = "en") -> dict[str, dict[str, Any]]:
    """Attribute -> {"label", "level", "confidence", "value", "error", "unit"}, of the attributes
    that the sentence names.

    label: the level's name, in `language` if it has one. confidence: the chance that the level is
    right. value, error: as in `streamer.core.readings`, None without measures and for arousal,
    which has no number of its own. A description of no speech gives {}.
    """
    rows = {row.attribute: row for row in readings_of(found) if row.level is not None}
    levels: Mapping[str, Any] = found.levels
    return {
        name: {
            "label": (levels[name] or {}).get(language) or row.name,
            "level": row.level,
            "confidence": _rounded(row.chance, 3),
            "value": _rounded(row.value, 2),
            "error": _rounded(row.error, 2),
            "unit": row.unit,
        }
        for name, row in rows.items()
    }


def voice_line(found: Description, language: Language = "en") -> str:
    """One line for the prompt of an agent, "" where nobody spoke: "The user speaks fast
    (6.1 syllables/s), loudly (-18 dBFS), with hardly a pause; sounds excited." Raises ValueError
    for another language."""
    if language not in WORDS:
        raise ValueError(f"language is {language!r}; voice_line speaks {' and '.join(WORDS)}")
    profile, words = voice_profile(found, language), WORDS[language]
    manner = [
        _manner(profile, name, words) + _number(profile, name, words, language)
        for name in words.manner
        if name in profile
    ]
    ends = [words.speaks.format(words.comma.join(manner))] if manner else []
    if "arousal" in profile:
        ends.append(words.sounds.format(profile["arousal"]["label"]))
    return words.line.format(words.semicolon.join(ends)) if ends else ""


def _manner(profile: dict[str, dict[str, Any]], name: str, words: Words) -> str:
    """The words of a level; a model of one's own may have more levels than words."""
    level: int = profile[name]["level"]
    known = words.manner[name]
    return known[level] if level < len(known) else words.other.format(name, level)


def _number(profile: dict[str, dict[str, Any]], name: str, words: Words, language: Language) -> str:
    """The number in parentheses, for the rate and the loudness."""
    value, unit = profile[name]["value"], profile[name]["unit"]
    if value is None or name not in ("rate", "loudness"):
        return ""
    return words.number.format(f"{value:.{UNITS[name][2]}f}", told(language, unit))


def _rounded(value: float | None, decimals: int) -> float | None:
    return None if value is None else round(value, decimals)

"""A description for voice agents: a profile of labels and numbers, and a line for a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamer.core.description import Description
from streamer.core.readings import UNITS, readings_of

MANNER = {  # how a line words each level; the number follows in parentheses
    "rate": ("very slowly", "slowly", "at a moderate pace", "fast", "very fast"),
    "loudness": ("very softly", "softly", "at a moderate volume", "loudly"),
    "variation": ("in a monotone", "with moderate intonation", "with lively intonation"),
    "pauses": ("with hardly a pause", "with some pauses", "with many pauses"),
}


def voice_profile(found: Description) -> dict[str, dict[str, Any]]:
    """Attribute -> {"label", "level", "confidence", "value", "error", "unit"}, of the attributes
    that the sentence names.

    label: the level's name, in English if it has one. confidence: the chance that the level is
    right. value, error: as in `streamer.core.readings`, None without measures and for arousal,
    which has no number of its own. A description of no speech gives {}.
    """
    rows = {row.attribute: row for row in readings_of(found) if row.level is not None}
    levels: Mapping[str, Any] = found.levels
    return {
        name: {
            "label": (levels[name] or {}).get("en") or row.name,
            "level": row.level,
            "confidence": _rounded(row.chance, 3),
            "value": _rounded(row.value, 2),
            "error": _rounded(row.error, 2),
            "unit": row.unit,
        }
        for name, row in rows.items()
    }


def voice_line(found: Description) -> str:
    """One English line for the prompt of an agent, "" where nobody spoke: "The user speaks fast
    (6.1 syllables/s), loudly (-18 dBFS), with hardly a pause; sounds excited." """
    profile = voice_profile(found)
    told = [_manner(profile, name) + _number(profile, name) for name in MANNER if name in profile]
    ends = [f"speaks {', '.join(told)}"] if told else []
    if "arousal" in profile:
        ends.append(f"sounds {profile['arousal']['label']}")
    return f"The user {'; '.join(ends)}." if ends else ""


def _manner(profile: dict[str, dict[str, Any]], name: str) -> str:
    """The words of a level; a model of one's own may have more levels than words."""
    level: int = profile[name]["level"]
    return MANNER[name][level] if level < len(MANNER[name]) else f"at {name} level {level}"


def _number(profile: dict[str, dict[str, Any]], name: str) -> str:
    """The number in parentheses, for the rate and the loudness."""
    value = profile[name]["value"]
    if value is None or name not in ("rate", "loudness"):
        return ""
    return f" ({value:.{UNITS[name][2]}f} {profile[name]['unit']})"


def _rounded(value: float | None, decimals: int) -> float | None:
    return None if value is None else round(value, decimals)

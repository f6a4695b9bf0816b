"""A description for voice agents: a profile of labels and numbers, and a line for a prompt."""

from __future__ import annotations

from typing import Any

from streamer.core.description import Description

# attribute -> the words of its levels, lowest first: those of the models that ship
LABELS = {
    "rate": ("very slow", "slow", "moderate", "fast", "very fast"),
    "pitch": ("very low", "low", "high", "very high"),
    "variation": ("monotone", "moderate", "lively"),
    "loudness": ("very soft", "soft", "moderate", "loud"),
    "pauses": ("few", "some", "many"),
    "timbre": ("dark", "balanced", "bright"),
    "arousal": ("calm", "relaxed", "excited"),
}
NUMBERS = {  # attribute -> the measure that it rests on, its unit
    "rate": ("rate_syllables_per_s", "syllables/s"),
    "pitch": ("pitch_median_hz", "Hz"),
    "variation": ("pitch_sd_semitones", "semitones"),
    "loudness": ("level_dbfs", "dBFS"),
    "pauses": ("pause_share", "share of the time"),
    "timbre": ("timbre_db", "dB"),
}
MANNER = {  # how a line words each level; the number follows in parentheses
    "rate": ("very slowly", "slowly", "at a moderate pace", "fast", "very fast"),
    "loudness": ("very softly", "softly", "at a moderate volume", "loudly"),
    "variation": ("in a monotone", "with moderate intonation", "with lively intonation"),
    "pauses": ("with hardly a pause", "with some pauses", "with many pauses"),
}


def voice_profile(found: Description) -> dict[str, dict[str, Any]]:
    """Attribute -> {"label", "level", "confidence", "value", "unit"}, of the attributes that the
    sentence names.

    confidence: the chance that the level is right, None if unknown. value: the measure in `unit`;
    None without measures, and for arousal, which has no number of its own. A description of no
    speech gives {}.
    """
    return {
        name: {
            "label": _word(LABELS, name, level),
            "level": level,
            "confidence": _chance(found, name),
            "value": _value(found, name),
            "unit": NUMBERS[name][1] if name in NUMBERS else None,
        }
        for name, level in found.attributes.items()
        if level is not None
    }


def voice_line(found: Description) -> str:
    """One English line for the prompt of an agent, "" where nobody spoke: "The user speaks fast
    (6.1 syllables/s), loudly (-18 dBFS), with hardly a pause; sounds excited." """
    levels = {name: level for name, level in found.attributes.items() if level is not None}
    told = [
        _word(MANNER, name, levels[name]) + _number(found, name)
        for name in MANNER
        if name in levels
    ]
    ends = []
    if told:
        ends.append(f"speaks {', '.join(told)}")
    if "arousal" in levels:
        ends.append(f"sounds {_word(LABELS, 'arousal', levels['arousal'])}")
    return f"The user {'; '.join(ends)}." if ends else ""


def _word(words: dict[str, tuple[str, ...]], name: str, level: int) -> str:
    """The word of a level; a model of one's own may have more levels than words."""
    known = words[name]
    return known[level] if level < len(known) else f"{name} level {level}"


def _chance(found: Description, name: str) -> float | None:
    chance = (found.confidence or {}).get(name)
    return None if chance is None else round(chance, 3)


def _value(found: Description, name: str) -> float | None:
    if name not in NUMBERS or found.measures is None:
        return None
    value: float | None = getattr(found.measures, NUMBERS[name][0])
    return None if value is None else round(value, 2)


def _number(found: Description, name: str) -> str:
    """The number in parentheses, for the rate and the loudness."""
    value = _value(found, name)
    if value is None or name not in ("rate", "loudness"):
        return ""
    return f" ({value:.1f} syllables/s)" if name == "rate" else f" ({value:.0f} dBFS)"

"""A description as rows: each attribute's level, name, number with its error, and certainty; and
for voice agents, as labels and a line for a prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from streamer.core.attributes import ATTRIBUTES
from streamer.core.measures.levels import MEASURES, NUM_LEVELS, expected_errors, levels_of
from streamer.core.text.chinese import comma, told

ABSENT = "-"
SURE = 0.9  # the chance of a level, from which on it is called sure
LIKELY = 0.6
# attribute -> the unit that people read, what its measure is multiplied by, decimals
UNITS = {
    "rate": ("syllables/s", 1, 1),
    "pitch": ("Hz", 1, 0),
    "variation": ("semitones", 1, 1),
    "loudness": ("dBFS", 1, 0),
    "pauses": ("% of the time", 100, 0),
    "timbre": ("dB", 1, 1),
}


@dataclass(frozen=True)
class Reading:
    """One attribute of one description.

    level: 0 is the physically lowest, of num_levels. name: of the level, in the description's
    language. value, error: in `unit`, the error as expected on average. chance: that the level is
    right. certainty: that in a word, "sure", "likely" or "unsure"; also "unsure" where a warning
    says that the measure cannot be relied on, or the number lies in another level; "" if it is
    unknown. None: not said, not known, or not measured; arousal has no number of its own.
    """

    attribute: str
    level: int | None
    num_levels: int
    name: str | None
    value: float | None
    error: float | None
    unit: str
    chance: float | None
    certainty: str = ""

    def number(self, language: str = "en") -> str:
        """Such as "4.9 ±0.3 syllables/s"; a dash if there is none."""
        if self.value is None:
            return ABSENT
        decimals = UNITS[self.attribute][2]
        # an error never rounds to 0: 0.3 Hz shows as 1 Hz
        off = None if self.error is None else max(self.error, 10.0**-decimals)
        error = "" if off is None else f" ±{off:.{decimals}f}"
        return f"{self.value:.{decimals}f}{error} {told(language, self.unit)}"


def readings_of(found: Any) -> Sequence[Reading]:
    """A row for each attribute of a Description. Numbers need one with measures."""
    errors: Mapping[str, float] = {}
    known: Mapping[str, int | None] = dict.fromkeys(ATTRIBUTES, 0)
    if found.measures is not None:
        errors, known = expected_errors(found.measures), levels_of(found.measures)
    return [_reading(found, name, errors.get(name), known[name]) for name in ATTRIBUTES]


def _reading(found: Any, name: str, error: float | None, measured: int | None) -> Reading:
    """measured: the level of the measure; None if it cannot be relied on."""
    level, names = found.levels.get(name), found.level_names.get(name)
    unit, times, _ = UNITS.get(name, ("", 1, 0))
    is_measured = found.measures is not None and name in MEASURES
    value = getattr(found.measures, MEASURES[name]) if is_measured else None
    num_levels = len(names) if names else NUM_LEVELS[name]
    is_other = level is not None and value is not None and level.level != measured
    is_doubted = measured is None or (is_other and num_levels == NUM_LEVELS[name])
    certainty, chance = "", (found.confidence or {}).get(name)
    if chance is not None:
        is_likely = chance >= LIKELY and not is_doubted
        certainty = ("sure" if chance >= SURE else "likely") if is_likely else "unsure"
    return Reading(
        name,
        None if level is None else level.level,
        num_levels,
        None if level is None else level.name,
        None if value is None else times * value,
        None if value is None or error is None else times * error,
        unit,
        chance,
        certainty,
    )


Language = Literal["en", "zh"]
# How a line words each level; of the rate and the loudness the number follows in parentheses.
MANNER = {
    "rate": ("very slowly", "slowly", "at a moderate pace", "fast", "very fast"),
    "loudness": ("very softly", "softly", "at a moderate volume", "loudly"),
    "variation": ("in a monotone", "with moderate intonation", "with lively intonation"),
    "pauses": ("with hardly a pause", "with some pauses", "with many pauses"),
}


def voice_profile(found: Any, language: Language = "en") -> dict[str, dict[str, Any]]:
    """Attribute -> {"label", "level", "confidence", "value", "error", "unit"}, of the attributes
    that the sentence names.

    label: the level's name, in `language` if it has one. confidence: the chance that the level is
    right. value, error: as in `streamer.core.readings`, None without measures and for arousal,
    which has no number of its own. A description of no speech gives {}.
    """
    return {
        row.attribute: {
            "label": found.levels[row.attribute].get(language) or row.name,
            "level": row.level,
            "confidence": None if row.chance is None else round(row.chance, 3),
            "value": None if row.value is None else round(row.value, 2),
            "error": None if row.error is None else round(row.error, 2),
            "unit": row.unit,
        }
        for row in readings_of(found)
        if row.level is not None
    }


def voice_line(found: Any, language: Language = "en") -> str:
    """One line for the prompt of an agent, "" without speech: "The user speaks fast
    (6.1 syllables/s), loudly (-18 dBFS), with hardly a pause; sounds excited." Raises ValueError
    for another language."""
    if language not in get_args(Language):
        known = " and ".join(get_args(Language))
        raise ValueError(f"language is {language!r}; voice_line speaks {known}")
    profile = voice_profile(found, language)
    manner = []
    for name, words in MANNER.items():
        if (row := profile.get(name)) is not None:
            # a model of one's own may have more levels than words
            is_worded = row["level"] < len(words)
            word = told(language, words[row["level"]]) if is_worded else row["label"]
            if row["value"] is not None and name in ("rate", "loudness"):
                number = f"{row['value']:.{UNITS[name][2]}f}"
                word += told(language, " ({} {})", number, told(language, row["unit"]))
            manner.append(word)
    ends = [told(language, "speaks {}", comma(language).join(manner))] if manner else []
    if "arousal" in profile:
        ends.append(told(language, "sounds {}", profile["arousal"]["label"]))
    return told(language, "The user {}.", told(language, "; ").join(ends)) if ends else ""

"""A description as rows: each attribute's level, name, number with its error, and certainty; as
HTML for notebooks, with the curves; and for voice agents, as labels and a line for a prompt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, get_args

from streamer.core.attributes import ATTRIBUTES
from streamer.core.measures.levels import MEASURES, NUM_LEVELS, expected_errors, levels_of
from streamer.core.text.chinese import comma, told

ABSENT = "-"
SURE = 0.9  # the chance of a level, from which on it is called sure
LIKELY = 0.6


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
        *_, decimals = MEASURES[self.attribute]
        # an error never rounds to 0: 0.3 Hz shows as 1 Hz
        off = None if self.error is None else max(self.error, 10.0**-decimals)
        error = "" if off is None else f" ±{off:.{decimals}f}"
        return f"{self.value:.{decimals}f}{error} {told(language, self.unit)}"

    def cells(self, language: str) -> tuple[str, str, str, str]:
        """Title, name, number and certainty, in a language."""
        name, title = self.name or ABSENT, told(language, self.attribute)
        return title, name, self.number(language), told(language, self.certainty)


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
    field, unit, times, _ = MEASURES.get(name, ("", "", 1, 0))
    value, chance = getattr(found.measures, field, None), (found.confidence or {}).get(name)
    num_levels = len(names) if names else NUM_LEVELS[name]
    is_other = level is not None and value is not None and level.level != measured
    certainty = ""
    if chance is not None:
        certainty = "sure" if chance >= SURE else "likely"
        if measured is None or (is_other and num_levels == NUM_LEVELS[name]) or chance < LIKELY:
            certainty = "unsure"
    return Reading(
        name,
        level and level.level,
        num_levels,
        level and level.name,
        None if value is None else times * value,
        None if error is None else times * error,
        unit,
        chance,
        certainty,
    )


MAX_POINTS = 1280  # of a curve
KEY = "the line is pitch, the area loudness"


def card(found: Any) -> str:
    """The sentence, a row with a gauge for each attribute, and curves: HTML without scripts or
    outside resources."""
    language, rows = found.language, ""
    for reading in readings_of(found):
        title, *others = map(escape, reading.cells(language))
        gauge = f'<meter min="-1" max="{reading.num_levels - 1}" value="{reading.level}"></meter>'
        cells = title, gauge if reading.level is not None else "", *others
        rows += f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    warning = f"<p>{escape(found.warning)}</p>" if found.warning else ""
    text = escape(found.text) or told(language, "no speech")
    about = [found.file, told(language, "{:.1f} s", found.audio_s)]
    curves = ""
    if found.timeline is not None:
        curves = _curves(found.timeline.curves)
        about.append(told(language, KEY))
    about_it = escape(comma(language).join(about))
    return f"<h4>{text}</h4>{warning}<table>{rows}</table>{curves}<p>{about_it}</p>"


def _curves(curves: Any) -> str:
    """Level from -70 to 0 dBFS as an area, pitch from 60 to 480 Hz as a line. Colours are seen on
    white and on black."""
    shown = curves.thinned(MAX_POINTS)
    area = " ".join(f"{x},{-y:.0f}" for x, y in enumerate(shown.level_dbfs.clip(-70, 0)))
    line = "".join(
        f"M{x},{70 - 70 * math.log2(hz / 60) / 3:.0f}h1"
        for x, hz in enumerate(shown.f0_hz)
        if hz > 0
    )
    return (
        f'<svg viewBox="0 0 {len(shown)} 70" preserveAspectRatio="none" width="640" height="90" '
        f'role="img" aria-label="level and pitch over time">'
        f'<polygon points="0,70 {area} {len(shown)},70" fill="rgba(128,128,128,.3)"/>'
        f'<path d="{line}" stroke="#0d9488" stroke-width="2"/></svg>'
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
                number = f"{row['value']:.{MEASURES[name][3]}f}"
                word += told(language, " ({} {})", number, told(language, row["unit"]))
            manner.append(word)
    ends = [told(language, "speaks {}", comma(language).join(manner))] if manner else []
    if "arousal" in profile:
        ends.append(told(language, "sounds {}", profile["arousal"]["label"]))
    return told(language, "The user {}.", told(language, "; ").join(ends)) if ends else ""

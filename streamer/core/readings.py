"""A description as rows: each attribute's level, name, number with its error, and certainty; as
HTML for notebooks, with the curves; and for voice agents, as labels and a line for a prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Literal, get_args

import numpy as np

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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def readings_of(found: Any) -> Sequence[Reading]:
    """A row for each attribute of a Description. Numbers need one with measures."""
    errors: Mapping[str, float] = {}
    known: Mapping[str, int | None] = dict.fromkeys(ATTRIBUTES, 0)
    if found.measures is not None:
        errors, known = expected_errors(found.measures), levels_of(found.measures)
    return [_reading(found, name, errors.get(name), known[name]) for name in ATTRIBUTES]


def _reading(found: Any, name: str, error: float | None, measured: int | None) -> Reading:
    """measured: the level of the measure; None if it cannot be relied on."""
    chance = (found.confidence or {}).get(name)
    level = found.levels.get(name)
    names = found.level_names.get(name)
    unit, times, _ = UNITS.get(name, ("", 1, 0))
    is_measured = found.measures is not None and name in MEASURES
    value = getattr(found.measures, MEASURES[name]) if is_measured else None
    num_levels = len(names) if names else NUM_LEVELS[name]
    is_other = level is not None and value is not None and level.level != measured
    is_doubted = measured is None or (is_other and num_levels == NUM_LEVELS[name])
    return Reading(
        name,
        None if level is None else level.level,
        num_levels,
        None if level is None else level.name,
        None if value is None else times * value,
        None if value is None or error is None else times * error,
        unit,
        chance,
        _certainty(chance, is_doubted),
    )


def _certainty(chance: float | None, is_doubted: bool) -> str:
    if chance is None:
        return ""
    if is_doubted or chance < LIKELY:
        return "unsure"
    return "sure" if chance >= SURE else "likely"


WIDTH, HEIGHT = 640, 90
MOST_POINTS = 640
CELL = '<td style="padding-right:.8em;text-align:left">'
KEY = "the line is pitch, the area loudness"
ACCENT, GREY = "#0d9488", "rgba(128,128,128,.3)"  # seen on white and on black


def card(found: Any) -> str:
    """A fragment of HTML without scripts or outside resources."""
    language = found.language
    rows = "".join(_row(reading, language) for reading in readings_of(found))
    curves = _curves(found)
    about = [found.file, told(language, "{:.1f} s", found.audio_s)]
    about += [told(language, KEY)] if curves else []
    warning = f'<div style="color:#d93025">{escape(found.warning)}</div>' if found.warning else ""
    return (
        f'<div style="max-width:{WIDTH}px;font-family:sans-serif">'
        f'<div style="font-size:1.2em">{escape(found.text) or told(language, "no speech")}</div>'
        f'{warning}<table style="margin:.5em 0">{rows}</table>{curves}'
        f'<div style="opacity:.7">{escape(comma(language).join(about))}</div></div>'
    )


def _row(reading: Reading, language: str) -> str:
    gauge = f'<meter min="-1" max="{reading.num_levels - 1}" value="{reading.level}"></meter>'
    cells = (
        told(language, reading.attribute),
        gauge if reading.level is not None else "",
        escape(reading.name or ABSENT),
        escape(reading.number(language)),
        told(language, reading.certainty),
    )
    return "<tr>" + "".join(f"{CELL}{cell}</td>" for cell in cells) + "</tr>"


def _curves(found: Any) -> str:
    """Level as an area, pitch as a line; of a recording with curves."""
    timeline = found.timeline
    if timeline is None or len(timeline.curves.level_dbfs) < 2:
        return ""
    curves = timeline.curves
    levels = np.clip(_thinned(curves.level_dbfs), -70, 0)
    area = " ".join(f"{x:.0f},{y:.0f}" for x, y in _places(levels, -70, 0))
    pitch = _thinned(curves.f0_hz)
    voiced = pitch[pitch > 0]
    low, high = (60.0, 400.0) if len(voiced) == 0 else (voiced.min() * 0.9, voiced.max() * 1.1)
    dots = zip(pitch > 0, _places(pitch, float(low), float(high)), strict=True)
    line = "".join(f"M{x:.0f},{y:.0f}h1" for is_voiced, (x, y) in dots if is_voiced)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" style="max-width:100%" role="img" '
        f'aria-label="level and pitch over time">'
        f'<polygon points="0,{HEIGHT} {area} {WIDTH},{HEIGHT}" fill="{GREY}"/>'
        f'<path d="{line}" stroke="{ACCENT}" stroke-width="2"/></svg>'
    )


def _thinned(values: np.ndarray) -> np.ndarray:
    """At most MOST_POINTS values, each the largest of its stretch."""
    step = -(-len(values) // MOST_POINTS)
    padded = np.pad(values, (0, -len(values) % step), mode="edge")
    return padded.reshape(-1, step).max(1)


def _places(values: np.ndarray, low: float, high: float) -> Iterator[tuple[float, float]]:
    for i, value in enumerate(values):
        yield WIDTH * i / (len(values) - 1), HEIGHT * (1 - (value - low) / (high - low))


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
    rows = {row.attribute: row for row in readings_of(found) if row.level is not None}
    levels: Mapping[str, Any] = found.levels
    return {
        name: {
            "label": (levels[name] or {}).get(language) or row.name,
            "level": row.level,
            "confidence": _short(row.chance, 3),
            "value": _short(row.value, 2),
            "error": _short(row.error, 2),
            "unit": row.unit,
        }
        for name, row in rows.items()
    }


def voice_line(found: Any, language: Language = "en") -> str:
    """One line for the prompt of an agent, "" without speech: "The user speaks fast
    (6.1 syllables/s), loudly (-18 dBFS), with hardly a pause; sounds excited." Raises ValueError
    for another language."""
    if language not in get_args(Language):
        known = " and ".join(get_args(Language))
        raise ValueError(f"language is {language!r}; voice_line speaks {known}")
    profile = voice_profile(found, language)
    manner = [_manner(profile[name], name, language) for name in MANNER if name in profile]
    ends = [told(language, "speaks {}", comma(language).join(manner))] if manner else []
    if "arousal" in profile:
        ends.append(told(language, "sounds {}", profile["arousal"]["label"]))
    return told(language, "The user {}.", told(language, "; ").join(ends)) if ends else ""


def _manner(row: dict[str, Any], name: str, language: Language) -> str:
    """A level in words; a model of one's own may have more levels than words."""
    level, value, words = row["level"], row["value"], MANNER[name]
    if level < len(words):
        found = told(language, words[level])
    else:
        found = told(language, "at {} level {}", name, level)
    if value is None or name not in ("rate", "loudness"):
        return found
    number = f"{value:.{UNITS[name][2]}f}"
    return found + told(language, " ({} {})", number, told(language, row["unit"]))


def _short(value: float | None, decimals: int) -> float | None:
    return None if value is None else round(value, decimals)

"""`streamer compare A B`: two takes, the difference of each attribute and whether it is real."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from streamer.commands.describe import voice_lines
from streamer.commands.options import CompareOptions
from streamer.commands.process import aligned, fail, opened, put, put_json
from streamer.config import Config
from streamer.core.attributes import ABSENT, Reading, readings_of
from streamer.core.description import Description, one_line
from streamer.core.measures.levels import MEASURES
from streamer.core.text import told

# Multiples of the error from which a difference is clear, or likely. An error is a mean distance,
# so 2.5 of them are about two standard deviations.
CLEAR, LIKELY = 2.5, 1.25
SAME = "the same, within the error"
WORDS = {  # attribute -> the second take is lower, higher
    "rate": ("slower", "faster"),
    "pitch": ("lower", "higher"),
    "variation": ("flatter", "livelier"),
    "loudness": ("softer", "louder"),
    "pauses": ("fewer pauses", "more pauses"),
    "timbre": ("darker", "brighter"),
    "arousal": ("calmer", "more excited"),
}


def difference(first: Reading, second: Reading) -> tuple[float, float] | None:
    """Second less first, and its error, in the readings' unit; None where one has no number."""
    if first.value is None or second.value is None:
        return None
    return second.value - first.value, math.hypot(first.error or 0.0, second.error or 0.0)


def verdict(first: Reading, second: Reading, language: str = "en") -> str:
    """In words, such as "faster"; "the same" where the difference may be an error."""
    found, words = difference(first, second), WORDS[first.attribute]
    if found is None:
        if first.level is None or second.level is None:
            return ""
        is_same = first.level == second.level
        return told(language, "the same" if is_same else words[second.level > first.level])
    value, error = found
    if not value or abs(value) < LIKELY * error:
        return told(language, SAME)
    word = told(language, words[value > 0])
    return word if abs(value) >= CLEAR * error else told(language, "perhaps {}", word)


def row_of(first: Reading, second: Reading, language: str) -> tuple[str, ...]:
    """Title, both values, their difference, the verdict."""
    title, judged = told(language, first.attribute), verdict(first, second, language)
    if (found := difference(first, second)) is None:
        return title, f"{first.name or ABSENT} → {second.name or ABSENT}", "", judged
    value, error = found
    *_, decimals = MEASURES[first.attribute]
    if abs(value) < 2 * 10.0**-decimals and judged != told(language, SAME):
        decimals += 1  # else the difference would be rounded to nothing
    # of the numbers shown: readers subtract
    before, after = (round(each.value or 0.0, decimals) for each in (first, second))
    numbers = f"{before:.{decimals}f} → {after:.{decimals}f} {told(language, first.unit)}"
    margin = max(error, 10.0**-decimals)
    return title, numbers, f"{after - before:+z.{decimals}f} ±{margin:.{decimals}f}", judged


def differences_of(first: Description, second: Description) -> dict[str, dict[str, Any]]:
    """Attribute -> both readings, difference and verdict, as plain types. Both need measures."""
    rows = {}
    for a, b in zip(readings_of(first), readings_of(second), strict=True):
        value, error = difference(a, b) or (None, None)
        rows[a.attribute] = {
            "first": asdict(a),
            "second": asdict(b),
            "difference": value,
            "error": error,
            "verdict": verdict(a, b),
        }
    return rows


async def run(options: CompareOptions, config: Config) -> int:
    """Print a table, or JSON. Raises ConfigError, AudioError, ModelError, TargetLost."""
    async with opened(config) as describer:
        how: Any = {"measures": True, "pitch_reference": options.pitch_reference}
        found = [await describer.describe(file, **how) for file in options.files]
    for one in found:
        warnings = [one.warning, *(one.measures.warnings if one.measures else ())]
        for warning in filter(None, warnings):
            fail(f"{one.file}: {warning}")
    if options.json:
        texts: list[dict[str, Any]] = [{"file": one.file, "text": one.text} for one in found]
        if options.pitch_reference is not None:
            for text, one in zip(texts, found, strict=True):
                text["voice_pitch"] = one.voice_pitch and one.voice_pitch.as_json()
        put_json({"first": texts[0], "second": texts[1], "attributes": differences_of(*found)})
        return 0
    language = found[0].language
    for one in found:
        put(f"{one_line(one.file)}: {one_line(one.text) or told(language, 'no speech')}")
        if options.pitch_reference is not None:
            put(voice_lines(one))
    pairs = zip(*map(readings_of, found), strict=True)
    put("\n".join(aligned([row_of(a, b, language) for a, b in pairs])))
    return 0

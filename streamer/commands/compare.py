"""`streamer compare A B`: two takes, the difference of each attribute and whether it is real."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from streamer.commands.options import CompareOptions
from streamer.commands.process import fail, opened, put, put_json, run_async
from streamer.commands.screen import aligned, voice_lines
from streamer.config import Config, combined
from streamer.core.description import Description, one_line
from streamer.core.readings import ABSENT, UNITS, Reading, readings_of
from streamer.core.text.chinese import told

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


@dataclass(frozen=True)
class Difference:
    """One attribute of two takes. value, error: second less first, in the readings' unit; None
    where one has no number, as arousal never has."""

    first: Reading
    second: Reading
    value: float | None
    error: float | None

    @classmethod
    def of(cls, first: Reading, second: Reading) -> Difference:
        if first.value is None or second.value is None:
            return cls(first, second, None, None)
        error = math.hypot(first.error or 0.0, second.error or 0.0)
        return cls(first, second, second.value - first.value, error)

    def verdict(self, language: str = "en") -> str:
        """In words, such as "faster"; "the same" where the difference may be an error."""
        if self.value is None or self.error is None:
            levels = self.first.level, self.second.level
            if levels[0] is None or levels[1] is None:
                return ""
            is_same = levels[0] == levels[1]
            return told(language, "the same" if is_same else self._word(levels[1] - levels[0]))
        if self._is_within_error:
            return told(language, SAME)
        word = told(language, self._word(self.value))
        is_clear = abs(self.value) >= CLEAR * self.error
        return word if is_clear else told(language, "perhaps {}", word)

    def _word(self, difference: float) -> str:
        return WORDS[self.first.attribute][difference > 0]

    @property
    def _is_within_error(self) -> bool:
        return not self.value or abs(self.value) < LIKELY * (self.error or 0.0)

    @property
    def _decimals(self) -> int:
        """One more than a reading has, where a difference would be rounded to nothing."""
        decimals = UNITS[self.first.attribute][2]
        is_small = self.value is not None and abs(self.value) < 2 * 10.0**-decimals
        return decimals + (is_small and not self._is_within_error)

    def row(self, language: str) -> tuple[str, ...]:
        """Title, both values, their difference, the verdict."""
        title, verdict = told(language, self.first.attribute), self.verdict(language)
        if self.value is None or self.error is None:
            words = f"{self.first.name or ABSENT} → {self.second.name or ABSENT}"
            return title, words, "", verdict
        decimals = self._decimals
        first, second = (f"{each.value:.{decimals}f}" for each in (self.first, self.second))
        difference = float(second) - float(first)  # of the numbers shown: readers subtract
        error = f"±{max(self.error, 10.0**-decimals):.{decimals}f}"
        return (
            title,
            f"{first} → {second} {told(language, self.first.unit)}",
            f"{difference:+z.{decimals}f} {error}",
            verdict,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "first": asdict(self.first),
            "second": asdict(self.second),
            "difference": self.value,
            "error": self.error,
            "verdict": self.verdict(),
        }


def run(options: CompareOptions, given: Mapping[str, Any]) -> int:
    """Print a table, or JSON. Raises ConfigError, AudioError, ModelError, TargetLost."""
    return run_async(_compare, options, combined(None, given))


async def _compare(options: CompareOptions, config: Config) -> int:
    how: Any = {"measures": True, "pitch_reference": options.pitch_reference}
    async with opened(config) as describer:
        found = [await describer.describe(file, **how) for file in options.files]
    for one in found:
        warnings = [one.warning, *(one.measures.warnings if one.measures else ())]
        for warning in filter(None, warnings):
            fail(f"{one.file}: {warning}")
    differences = differences_of(*found)
    if options.json:
        texts: list[dict[str, Any]] = [{"file": one.file, "text": one.text} for one in found]
        if options.pitch_reference is not None:
            for text, one in zip(texts, found, strict=True):
                text["voice_pitch"] = one.voice_pitch and one.voice_pitch.as_json()
        rows = {each.first.attribute: each.as_json() for each in differences}
        put_json({"first": texts[0], "second": texts[1], "attributes": rows})
        return 0
    language = found[0].language
    for one in found:
        put(f"{one_line(one.file)}: {one_line(one.text) or told(language, 'no speech')}")
        if options.pitch_reference is not None:
            put(voice_lines(one))
    put("\n".join(aligned([each.row(language) for each in differences])))
    return 0


def differences_of(first: Description, second: Description) -> list[Difference]:
    """One for each attribute. Both need measures."""
    return [*map(Difference.of, readings_of(first), readings_of(second))]

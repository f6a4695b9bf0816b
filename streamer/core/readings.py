"""A description as rows: each attribute's level, name, number with its error, and certainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from streamer.core.attributes import ATTRIBUTES, LevelNames
from streamer.core.measures.levels import MEASURES, NUM_LEVELS, expected_errors
from streamer.core.measures.speech_measures import SpeechMeasures

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
    right. None: not said, not known, or not measured; arousal has no number of its own.
    """

    attribute: str
    level: int | None
    num_levels: int
    name: str | None
    value: float | None
    error: float | None
    unit: str
    chance: float | None

    @property
    def number(self) -> str:
        """Such as "4.9 ±0.3 syllables/s"; a dash if there is none."""
        if self.value is None:
            return ABSENT
        decimals = UNITS[self.attribute][2]
        error = "" if self.error is None else f" ±{_rounded(self.error, decimals)}"
        return f"{self.value:.{decimals}f}{error} {self.unit}"

    @property
    def certainty(self) -> str:
        """ "sure", "likely" or "unsure"; "" if it is unknown."""
        if self.chance is None:
            return ""
        return "sure" if self.chance >= SURE else "likely" if self.chance >= LIKELY else "unsure"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, under the names of the fields."""
        return asdict(self) | {"certainty": self.certainty}


class Described(Protocol):
    """The part of a Description that rows are made of."""

    @property
    def levels(self) -> Mapping[str, Any]: ...
    @property
    def level_names(self) -> LevelNames: ...
    @property
    def measures(self) -> SpeechMeasures | None: ...
    @property
    def confidence(self) -> Mapping[str, float | None] | None: ...


def readings_of(found: Described) -> Sequence[Reading]:
    """A row for each attribute. Numbers need a description with measures."""
    errors = {} if found.measures is None else expected_errors(found.measures)
    return [_reading(found, name, errors.get(name)) for name in ATTRIBUTES]


def _reading(found: Described, name: str, error: float | None) -> Reading:
    level = found.levels.get(name)
    names = found.level_names.get(name)
    unit, times, _ = UNITS.get(name, ("", 1, 0))
    value = None
    if found.measures is not None and name in MEASURES:
        value = getattr(found.measures, MEASURES[name])
    return Reading(
        name,
        None if level is None else level.level,
        len(names) if names else NUM_LEVELS[name],
        None if level is None else level.name,
        None if value is None else times * value,
        None if value is None or error is None else times * error,
        unit,
        (found.confidence or {}).get(name),
    )


def _rounded(error: float, decimals: int) -> str:
    """Never rounded to nothing: an error of 0.3 Hz is 1 Hz."""
    return f"{max(error, 10.0**-decimals):.{decimals}f}"

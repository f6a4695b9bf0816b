"""How one speaker usually speaks. In: a saved profile, or what was learnt. Out: numbers with units.

A profile is a small JSON file; every name in it carries its unit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from streamer.core.declare import shown
from streamer.extras.coach.voice import FORM

MAX_PROFILE_BYTES = 10_000
DECIMALS = 4  # that are kept
LIMITS = {  # what a person's voice can be
    "rate_syllables_per_s": (0.5, 15.0),
    "pitch_median_hz": (30.0, 1000.0),
    "pitch_sd_semitones": (0.05, 12.0),
    "level_dbfs": (-120.0, 0.0),
    "pause_share": (0.0, 1.0),
    "speech_s": (5.0, 1e7),
    "loudness_db": (-140.0, 60.0),
    "loudness_sd_db": (0.1, 60.0),
    "tempo_octaves": (-8.0, 8.0),
    "tempo_sd_octaves": (0.01, 8.0),
    "melody_octaves": (-12.0, 12.0),
    "melody_sd_octaves": (0.01, 12.0),
}

OLDER = "another version of streamer saved this baseline; leave it out, and it is learnt anew"


class BaselineError(ValueError):
    """A profile cannot be used. Its text is one line that names the cause and the way out."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What is usual for a speaker; docs/measures.md defines each. speech_s: learnt from so much.
    The level holds for one microphone at one distance. loudness, tempo and melody are what the
    network of voice.py says in the mean. Each sd is that of a second's mean, of loudness
    of a second whose every step counts as 1. Nudges are weighed by them. Raises BaselineError."""

    rate_syllables_per_s: float
    pitch_median_hz: float
    pitch_sd_semitones: float
    level_dbfs: float
    pause_share: float
    speech_s: float
    loudness_db: float
    loudness_sd_db: float
    tempo_octaves: float
    tempo_sd_octaves: float
    melody_octaves: float
    melody_sd_octaves: float

    def __post_init__(self) -> None:
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise BaselineError(f"{name} is {value!r}; give a number")
            if not low <= value <= high:
                raise BaselineError(f"{name} is {shown(value)}; it may be {low:g} to {high:g}")

    def as_json(self) -> dict[str, float]:
        """Plain types, rounded to DECIMALS. form: of the network that it was learnt with."""
        row = {name: round(float(value), DECIMALS) for name, value in asdict(self).items()}
        return row | {"form": FORM}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Baseline:
        """Rounded, so that `as_json` tells what is in force. Raises BaselineError where a name is
        missing, unknown, or its value cannot be."""
        if not isinstance(row, Mapping):
            raise BaselineError(f"a baseline is an object of numbers, not {type(row).__name__}")
        if "speech_s" in row and row.get("form") != FORM:
            raise BaselineError(OLDER)
        row = {name: value for name, value in row.items() if name != "form"}
        names = [field.name for field in fields(cls)]
        if missing := [name for name in names if name not in row]:
            raise BaselineError(f"no {missing[0]} in the baseline; it needs {', '.join(names)}")
        if unknown := [name for name in row if name not in names]:
            raise BaselineError(
                f"unknown {unknown[0]!r} in the baseline; known: {', '.join(names)}"
            )
        told = asdict(cls(**row))
        return cls(**{name: round(value, DECIMALS) for name, value in told.items()})

    def save(self, path: str | Path) -> None:
        """Write the profile. Raises BaselineError where that cannot be done."""
        try:
            Path(path).write_text(json.dumps(self.as_json(), indent=2) + "\n", "utf-8")
        except OSError as error:
            raise BaselineError(f"{path}: cannot be written ({error.strerror})") from None

    @classmethod
    def load(cls, path: str | Path) -> Baseline:
        """Read a profile. Raises BaselineError."""
        try:
            with open(path, "rb") as file:
                data = file.read(MAX_PROFILE_BYTES + 1)
        except OSError as error:
            raise BaselineError(f"{path}: cannot be read ({error.strerror})") from None
        if len(data) > MAX_PROFILE_BYTES:
            raise BaselineError(f"{path}: is no saved baseline; one has under 10 kB")
        try:
            return cls.from_json(json.loads(data))
        except BaselineError as error:
            raise BaselineError(f"{path}: {error}") from None
        except (ValueError, RecursionError):
            raise BaselineError(f"{path}: is not JSON; save one with Baseline.save") from None

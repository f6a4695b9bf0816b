"""The thresholds of a coach, and how a speaker usually speaks.

docs/options.md lists the fields of Coach. They are set by keyword, in a TOML file, on the command
line (`serve --coach`), or over the socket. A baseline is a small JSON file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from streamer.core.declare import REQUIRED, ConfigError, check, check_known, option, read_toml

FORM = 5  # version of the network's weights and the measures, from which a baseline is learnt
MAX_PROFILE_BYTES = 10_000


def number(low: float, high: float, default: Any = REQUIRED) -> Any:
    """A number of a person's voice, or a threshold."""
    return option(default, None, ge=low, le=high)


class BaselineError(ConfigError):
    """A profile cannot be used. Its text is one line that names the cause and the way out."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """How a speaker usually speaks; docs/measures.md defines the first five numbers.

    speech_s: seconds of speech that it was learnt from. The level holds for one microphone at one
    distance. loudness, tempo and melody are means of the network's outputs (nudges.py). Each sd is
    that of the mean over a second. Raises BaselineError.
    """

    rate_syllables_per_s: float = number(0.5, 15)
    pitch_median_hz: float = number(30, 1000)
    pitch_sd_semitones: float = number(0.05, 12)
    level_dbfs: float = number(-120, 0)
    pause_share: float = number(0, 1)
    speech_s: float = number(5, 1e7)
    loudness_db: float = number(-140, 60)
    loudness_sd_db: float = number(0.1, 60)
    tempo_octaves: float = number(-8, 8)
    tempo_sd_octaves: float = number(0.01, 8)
    melody_octaves: float = number(-12, 12)
    melody_sd_octaves: float = number(0.01, 12)

    def __post_init__(self) -> None:
        try:
            check(self)
        except ConfigError as error:
            raise BaselineError(str(error)) from None

    def as_json(self) -> dict[str, float]:
        """Plain types, rounded to 4 decimals, and the form of the network."""
        row = {name: round(float(value), 4) for name, value in asdict(self).items()}
        return row | {"form": FORM}

    @classmethod
    def from_json(cls, row: Any) -> Baseline:
        """The inverse of `as_json`. Raises BaselineError."""
        if not isinstance(row, Mapping) or row.get("form") != FORM:
            told = "another version of streamer saved this baseline; leave it out"
            raise BaselineError(f"{told}, and it is learnt anew")
        try:
            return msgspec.convert(dict(row), cls)
        except (msgspec.ValidationError, OverflowError) as error:
            raise BaselineError(f"the baseline cannot be used: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write the profile. Raises BaselineError."""
        try:
            Path(path).write_text(json.dumps(self.as_json(), indent=2) + "\n", "utf-8")
        except OSError as error:
            raise BaselineError(f"{path}: cannot be written ({error.strerror})") from None

    @classmethod
    def load(cls, path: str | Path) -> Baseline:
        """Read a profile. Raises BaselineError."""
        try:
            with open(path, "rb") as file:
                return cls.from_json(json.loads(file.read(MAX_PROFILE_BYTES)))
        except OSError as error:
            raise BaselineError(f"{path}: cannot be read ({error.strerror})") from None
        except (ValueError, RecursionError) as error:  # JSON's too
            way_out = "give a file that Baseline.save wrote"
            raise BaselineError(f"{path}: is no baseline ({error}); {way_out}") from None


@dataclass(frozen=True)
class Coach:
    """When a Nudge is given. Ratios and decibels are relative to the speaker's own baseline.

    0 turns a kind of nudge off where the help says so. Raises ConfigError.
    """

    baseline: Baseline | None = option(
        None, None, metavar="Baseline", unset="learnt from their first speech"
    )
    learn_s: float = number(5, 120, 30.0)
    fast_ratio: float = number(0, 5, 1.8)
    slow_ratio: float = number(0, 1, 0.5)
    soft_db: float = number(0, 60, 9.0)
    flat_ratio: float = number(0, 1, 0.25)
    silence_s: float = number(0, 600, 5.0)
    breath_s: float = number(0, 35, 15.0)
    filled_per_min: float = number(0, 60, 0.0)

    def __post_init__(self) -> None:
        check(self)
        if 0 < self.fast_ratio <= 1:
            raise ConfigError(f"fast_ratio is {self.fast_ratio:g}; give more than 1, or 0 for off")

    def as_json(self) -> dict[str, Any]:
        """Plain types, which `of` takes back."""
        return asdict(self) | {"baseline": self.baseline and self.baseline.as_json()}

    @classmethod
    def of(cls, options: Mapping[str, Any], default: Coach | None = None) -> Coach:
        """`default` with these options in place of its own; a baseline may be an object. Raises
        ConfigError and BaselineError."""
        check_known(options, cls)
        found = dict(options)
        if isinstance(found.get("baseline"), Mapping):
            found["baseline"] = Baseline.from_json(found["baseline"])
        return replace(default or cls(), **found)

    @classmethod
    def parse(cls, text: str) -> Coach:
        """From FILE.toml, or `fast_ratio=1.3,silence_s=8`. Raises ConfigError."""
        if text.endswith(".toml"):
            return read_toml(text, cls.of)
        found: dict[str, Any] = {}
        for pair in text.split(","):
            name, equals, value = (part.strip() for part in pair.partition("="))
            if not equals:
                raise ConfigError(f"coach is {text!r}; give FILE.toml, or NAME=VALUE with commas")
            found[name] = Baseline.load(value) if name == "baseline" else value
            with suppress(ValueError, TypeError):  # `check` says what a number looks like
                found[name] = float(found[name])
        return cls.of(found)

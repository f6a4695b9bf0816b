"""When the coach says a word: every threshold, once. In: nothing. Out: the frozen dataclass Coach.

docs/options.md lists the fields. They are set by keyword, in a TOML file, on the command line
(`serve --coach`), or over the socket.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from streamer.core.declare import ConfigError, about, check, check_known
from streamer.extras.coach.baseline import Baseline


@dataclass(frozen=True)
class Coach:
    """When a Nudge is given. Ratios and decibels are against the speaker's own baseline.

    0 turns a kind of nudge off where it says so. Raises ConfigError.
    """

    baseline: Annotated[
        Baseline | None,
        about(
            "how the speaker usually speaks",
            group=None,
            metavar="Baseline",
            unset="learnt from their first speech",
        ),
    ] = None
    learn_s: Annotated[
        float,
        about("seconds of speech that a baseline is learnt from", "20", group=None, ge=5, le=120),
    ] = 30.0
    fast_ratio: Annotated[
        float,
        about(
            "too fast: this many times the usual rate, above 1; 0: off",
            "1.5",
            group=None,
            ge=0,
            le=5,
        ),
    ] = 1.8
    slow_ratio: Annotated[
        float,
        about(
            "too slow: this many times the usual rate, below 1; 0: off",
            "0.7",
            group=None,
            ge=0,
            le=1,
        ),
    ] = 0.5
    soft_db: Annotated[
        float,
        about(
            "too soft: this many dB below the usual level; 0: off", "12", group=None, ge=0, le=60
        ),
    ] = 9.0
    flat_ratio: Annotated[
        float,
        about(
            "flat: this many times the usual movement of pitch, below 1; 0: off",
            "0.5",
            group=None,
            ge=0,
            le=1,
        ),
    ] = 0.25
    silence_s: Annotated[
        float,
        about(
            "long silence: this many seconds without speech; 0: off", "8", group=None, ge=0, le=600
        ),
    ] = 5.0
    breath_s: Annotated[
        float,
        about(
            "no pause: this many seconds of speech without one of 0.25 s; 0: off",
            "20",
            group=None,
            ge=0,
            le=35,
        ),
    ] = 15.0
    sureness: Annotated[
        float,
        about(
            "nats of evidence that the voice has changed, for the first four kinds; more: later, "
            "and right more often",
            "15",
            group=None,
            ge=1,
            le=100,
        ),
    ] = 10.0
    cooldown_s: Annotated[
        float,
        about("seconds between two nudges of one kind, at least", "60", group=None, ge=0, le=3600),
    ] = 20.0
    gap_s: Annotated[
        float, about("seconds between any two nudges, at least", "10", group=None, ge=0, le=3600)
    ] = 5.0

    def __post_init__(self) -> None:
        check(self, is_typed=False)
        if 0 < self.fast_ratio <= 1:
            raise ConfigError(f"fast_ratio is {self.fast_ratio:g}; give more than 1, or 0 for off")
        for name in ("slow_ratio", "flat_ratio"):
            if getattr(self, name) == 1:
                raise ConfigError(f"{name} is 1; give less than 1, or 0 for off")

    def as_json(self) -> dict[str, Any]:
        """Plain types, which `of` takes back, whatever its default."""
        row = {f.name: getattr(self, f.name) for f in fields(self)}
        return row | {"baseline": self.baseline and self.baseline.as_json()}

    @classmethod
    def of(cls, options: Mapping[str, Any], default: Coach | None = None) -> Coach:
        """`default` with these in place of its own. Raises ConfigError; BaselineError for a
        baseline, which may be an object."""
        check_known(options, cls)
        kept = {f.name: getattr(default, f.name) for f in fields(cls)} if default else {}
        found = kept | dict(options)
        baseline = found.get("baseline")
        if isinstance(baseline, Mapping):
            found["baseline"] = Baseline.from_json(baseline)
        elif not isinstance(baseline, Baseline | None):
            raise ConfigError(f"baseline is {baseline!r}; give an object, as a baseline is saved")
        return cls(**found)

    @classmethod
    def parse(cls, text: str) -> Coach:
        """From FILE.toml, or `fast_ratio=1.3,silence_s=8`. Raises ConfigError."""
        if text.endswith(".toml"):
            return cls._of_toml(text)
        found: dict[str, float | Baseline] = {}
        for pair in text.split(","):
            name, equals, value = pair.partition("=")
            name = name.strip()
            if not equals:
                raise ConfigError(f"coach is {text!r}; give FILE.toml, or NAME=VALUE with commas")
            if name in found:
                raise ConfigError(f"coach: {name} is given twice; give it once")
            try:
                found[name] = Baseline.load(value) if name == "baseline" else float(value)
            except ValueError as error:
                told = str(error) if name == "baseline" else f"{name} is {value!r}; give a number"
                raise ConfigError(f"coach: {told}") from None
        return cls.of(found)

    @classmethod
    def _of_toml(cls, path: str) -> Coach:
        try:
            with open(path, "rb") as file:
                return cls.of(tomllib.load(file))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
        except (
            ConfigError,
            ValueError,
            RecursionError,
        ) as error:  # TOML's own errors are ValueErrors
            raise ConfigError(f"{path}: {error}") from None

"""Options: fields of frozen dataclasses that carry bounds; their texts stand in options.toml.

    k: int | None = option(None, ge=1, le=64)
    edge: str = option("embedded", metavar="SPEC")

The checks of keywords, the keys of a pipeline file, the command line (streamer/cli.py) and
docs/options.md are made from these fields. msgspec checks types and bounds.
"""

from __future__ import annotations

import functools
import operator
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, ValidationError, convert

T = TypeVar("T")
BOUNDS = ("ge", "gt", "le", "lt", "pattern")  # of msgspec.Meta
REQUIRED: Any = MISSING  # the default of an option that must be given


class ConfigError(ValueError):
    """An option cannot be used. Its text is one line that names the option and the way out."""


def option(default: Any, group: str | None = "options", *, repr: bool = True, **more: Any) -> Any:
    """A field of a dataclass that is an option.

    group: the heading in `--help`; None: not on the command line. more: BOUNDS, metavar, short (of
    a switch, such as "-v"), positional, also (after the bounds), and unset (the default in words
    where it is None).
    """
    return field(default=default, repr=repr, metadata={"group": group, **more})


@dataclass(frozen=True)
class Option:
    """One declared option of a dataclass. type: without None; numbers have their bounds. more: as
    `option` was given it. choices: of a Literal."""

    owner: Any
    name: str
    type: Any
    default: Any
    more: Mapping[str, Any]
    choices: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:
        """group, metavar, short, positional, also, unset; None if it was not given."""
        return self.more.get(name)

    @property
    def flag(self) -> str:
        """--min-new-tokens of min_new_tokens."""
        return "--" + self.name.replace("_", "-")

    @property
    def help(self) -> str:
        """In words: told of the dataclass, of a base of it, or in common."""
        for name in (*(owner.__name__ for owner in self.owner.__mro__), "common"):
            if self.name in (texts := _texts().get(name, {})):
                return texts[self.name]
        return ""

    @property
    def range(self) -> str:
        """The bounds in words; empty if there are none."""
        if self.gt is not None:
            return f"above {self.gt:g} and below {self.lt:g}"
        if self.ge is None:
            return ""
        most = "or more" if self.le is None else f"to {self.le:g}"
        return f"{self.ge:g} {most}{self.also or ''}"

    @property
    def shown_default(self) -> str:
        """The default as a person reads it."""
        if self.default is None or self.default == ():
            return self.unset or "none"
        return f"{self.default:g}" if isinstance(self.default, int | float) else str(self.default)

    @property
    def placeholder(self) -> str:
        """The name of the value in `--help`."""
        if self.choices:
            return "{" + ",".join(self.choices) + "}"
        return str(self.metavar or "N")

    def checked(self, value: Any, name: str, is_typed: bool = False) -> Any:
        """The value, in its type. Raises ConfigError, which calls the option `name`, for a wrong
        type or number. is_typed: a number may be a text that was typed."""
        if value is None and self.default is None:
            return None
        try:
            return convert(value, self.type, strict=not is_typed)
        except (ValidationError, UnicodeEncodeError) as error:
            told = f"choose one of {', '.join(self.choices)}" if self.choices else str(error)
            told = f"it may be {self.range}" if self.range else told
            raise ConfigError(f"{name} is {value!r:.80}; {told}") from None


@functools.cache
def _texts() -> dict[str, dict[str, str]]:
    """Dataclass, or common -> option -> its text."""
    return tomllib.loads(Path(__file__).with_name("options.toml").read_text("utf-8"))


@functools.cache
def options_of(owner: Any) -> tuple[Option, ...]:
    """The options of a dataclass, in order."""
    hints = get_type_hints(owner)
    found = []
    for each in fields(owner):
        hint, more = hints[each.name], each.metadata
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        bounds = {name: more[name] for name in BOUNDS if name in more}
        bounded = [
            Annotated[kind, Meta(**bounds)] if bounds and kind in (int, float, str) else kind
            for kind in kinds
            if kind is not NoneType
        ]
        choices = get_args(kinds[0]) if get_origin(kinds[0]) is Literal else ()
        kind = functools.reduce(operator.or_, bounded)
        found.append(Option(owner, each.name, kind, each.default, more, choices))
    return tuple(found)


def check(options: Any) -> None:
    """Raises ConfigError for the first option with a wrong type, name or number."""
    owner: Any = type(options)
    for each in options_of(owner):
        each.checked(getattr(options, each.name), each.name)


def check_known(names: Iterable[str], owner: type) -> None:
    """Raises ConfigError for a key that is no option of `owner`."""
    known = [each.name for each in fields(owner)]
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown option {name!r}; known are {', '.join(sorted(known))}")


def read_toml(path: str | Path, of: Callable[[dict[str, Any]], T]) -> T:
    """`of` a TOML file's content. Raises ConfigError, whose text begins with the path."""
    try:
        with open(path, "rb") as file:
            return of(tomllib.load(file))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: is not TOML ({error})") from None


def taken(owner: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `owner` among `given`, whose values may be typed text. Raises ConfigError."""
    return {
        each.name: each.checked(given[each.name], each.flag, is_typed=True)
        for each in options_of(owner)
        if each.name in given
    }


EngineName = Literal["fast", "stable", "int8", "int4"]  # what runs a model
DeviceName = Literal["cpu", "cuda"]

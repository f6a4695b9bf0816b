"""Options: fields of frozen dataclasses whose types carry bounds, help and an example.

    k: Annotated[int | None, about("tokens of a draft", "6", ge=1, le=64)] = None

The checks of keywords, the keys of a pipeline file, the command line (streamer/cli.py) and
docs/options.md are made from these fields. msgspec checks types and bounds.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Meta, ValidationError, convert

T = TypeVar("T")
REQUIRED = MISSING  # the default of an option that must be given
MAX_TOML_BYTES = 1 << 20
CLOSE = 0.7  # similarity of 1 that is worth a hint: two dashes alone give 0.5


class ConfigError(ValueError):
    """An option cannot be used. Its text is one line that names the option and the way out."""


def about(help: str, example: str = "", group: str | None = "options", **more: Any) -> Meta:
    """The annotation of an option.

    group: the heading in `--help`; None: not on the command line. more: bounds of msgspec.Meta
    (ge, gt, le, lt), metavar, short (such as "-v"), positional, and unset (the default in words
    where it is None).
    """
    bounds = {name: more.pop(name) for name in ("ge", "gt", "le", "lt") if name in more}
    return Meta(description=help, extra={"example": example, "group": group, **more}, **bounds)


@dataclass(frozen=True)
class Option:
    """One declared option. type: without None."""

    name: str
    type: Any
    default: Any
    meta: Meta

    def __getattr__(self, name: str) -> Any:
        """example, group, metavar, short, positional, unset: as `about` was given them."""
        return (self.meta.extra or {}).get(name)

    @property
    def help(self) -> str:
        return self.meta.description or ""

    @property
    def flag(self) -> str:
        """min_new_tokens -> --min-new-tokens."""
        return "--" + self.name.replace("_", "-")

    @property
    def choices(self) -> tuple[str, ...]:
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def is_many(self) -> bool:
        return get_origin(self.type) is tuple

    @property
    def is_switch(self) -> bool:
        return self.type is bool

    @property
    def range(self) -> str:
        """The bounds in words; empty if there are none."""
        low, high = self.meta.ge, self.meta.le
        if self.meta.gt is not None:
            return f"above {self.meta.gt:g} and below {self.meta.lt:g}"
        if low is None:
            return ""
        return f"{low:g} or more" if high is None else f"{low:g} to {high:g}"

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
        kind = "N" if self.type is int else "S" if self.name.endswith("_s") else "X"
        return str(self.metavar or kind)

    def parse(self, text: str) -> Any:
        """The value of a text that was typed. Raises ConfigError."""
        if self.type not in (int, float):
            self.check(text, self.flag)
            return text
        try:
            value = self.type(text)
        except ValueError:
            raise ConfigError(f"{self.flag} is {text}; give {self._kind}") from None
        self.check(value, self.flag)
        return value

    def check(self, value: Any, name: str) -> None:
        """Raises ConfigError, which calls the option `name`, for a wrong type or number."""
        if (value is None and self.default is None) or self.is_many:
            return
        if not (self.choices or self.type in (bool, int, float, str)):  # an object of Python's
            if not isinstance(value, self.type):
                raise ConfigError(f"{name} is {shown(value)}; give {self._kind}")
            return
        try:
            convert(value, Annotated[self.type, self.meta])
        except ValidationError:
            raise self._refused(value, name) from None

    def _refused(self, value: Any, name: str) -> ConfigError:
        told = f"{name} is {shown(value)}"
        if self.choices:
            meant = did_you_mean(str(value), self.choices)
            return ConfigError(f"{told}{meant}; choose one of {', '.join(self.choices)}")
        numbers = (int, float) if self.type is float else (int,)
        if self.range and isinstance(value, numbers) and not isinstance(value, bool):
            return ConfigError(f"{told}; it may be {self.range}")
        return ConfigError(f"{told}; give {self._kind}")

    @property
    def _kind(self) -> str:
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        return names.get(self.type) or f"a value of type {getattr(self.type, '__name__', 'list')}"


@functools.cache
def options_of(owner: Any) -> tuple[Option, ...]:
    """The options of a dataclass, in order."""
    hints = get_type_hints(owner, include_extras=True)
    found = []
    for each in fields(owner):
        hint, meta = get_args(hints[each.name])
        inner = [arg for arg in get_args(hint) if arg is not NoneType]
        is_optional = NoneType in get_args(hint)
        found.append(Option(each.name, inner[0] if is_optional else hint, each.default, meta))
    return tuple(found)


def check(options: Any, is_typed: bool = True) -> None:
    """Raises ConfigError for the first option with a wrong type, name or number.

    is_typed: messages call an option as it is typed (--k), otherwise by its key (k).
    """
    owner: Any = type(options)
    for each in options_of(owner):
        each.check(getattr(options, each.name), each.flag if is_typed else each.name)


class Checked:
    """A base of dataclasses that check their options when they are made. Raises ConfigError."""

    def __post_init__(self) -> None:
        check(self)


def shown(value: Any) -> str:
    """A value in one line of an error; a number may have more digits than a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return repr(value)
    try:
        return f"{value:g}"
    except OverflowError:
        return "too large"


def check_known(names: Iterable[str], owner: type) -> None:
    """Raises ConfigError for a key that is no option of `owner`."""
    known = sorted(each.name for each in fields(owner))
    for name in names:
        if name not in known:
            raise ConfigError(
                f"unknown option {name!r}{did_you_mean(name, known)}; known are {', '.join(known)}"
            )


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """ "; did you mean X?" if one of `known` is close to `given`, otherwise nothing."""
    near = get_close_matches(given, list(known), 1, CLOSE)
    return f"; did you mean {near[0]}?" if near else ""


def read_toml(path: str | Path, of: Callable[[dict[str, Any]], T]) -> T:
    """`of` a TOML file's content. Raises ConfigError, whose text begins with the path."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_TOML_BYTES + 1)
        if len(data) > MAX_TOML_BYTES:
            raise ConfigError(f"{path}: is larger than {MAX_TOML_BYTES >> 20} MiB")
        found = tomllib.loads(data.decode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # TOML's own, UTF-8's, Python's limits
        raise ConfigError(f"{path}: is not TOML ({error})") from None
    try:
        return of(found)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def taken(owner: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `given` that are options of `owner`; lists become tuples."""
    found = {each.name: given[each.name] for each in fields(owner) if each.name in given}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in found.items()}


EngineName = Literal["fast", "stable", "int8", "int4", "stock"]  # what runs a model
DeviceName = Literal["cpu", "cuda"]

"""How an option is declared: once, as a field of a frozen dataclass.

The declaration gives the field's type, default, bounds, help, group and an example. The checks of
keywords, the keys of a pipeline file, the command line (streamer/cli.py) and docs/options.md
are made from it.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
REQUIRED = MISSING  # in the place of a default


class ConfigError(ValueError):
    """An option cannot be used. Its text is one line that names the option and the way out."""


@dataclass(frozen=True)
class Group:
    """Options that `--help` shows together. example: some of them, as they are typed."""

    title: str
    example: str


@dataclass(frozen=True)
class About:
    """What a declaration says beside type and default."""

    help: str
    group: Group | None  # None: the option is no option of the command line
    example: str = ""  # a value, as it is typed
    low: float | None = None
    high: float | None = None
    is_open: bool = False  # the bounds themselves are excluded
    metavar: str | None = None
    unset: str = "none"  # what holds where the value is None
    short: str | None = None  # such as "-v"
    is_argument: bool = False  # given by its place, not by a name

    def range(self) -> str:
        """The bounds in words; empty where there are none."""
        if self.low is None:
            return ""
        if self.is_open:
            return f"above {self.low:g} and below {self.high:g}"
        return f"{self.low:g} or more" if self.high is None else f"{self.low:g} to {self.high:g}"

    def allows(self, value: float) -> bool:
        """Whether `value` is within the bounds; NaN never is."""
        if self.low is None:
            return True
        high = float("inf") if self.high is None else self.high
        return self.low < value < high if self.is_open else self.low <= value <= high


def option(
    default: Any, group: Group | None, help: str, example: str = "", repr: bool = True, **more: Any
) -> Any:
    """A dataclass field that is an option. `more` are the further fields of About."""
    about = About(help, group, example, **more)
    return field(default=default, repr=repr, metadata={"about": about})


def same(owner: type, name: str, default: Any = MISSING, group: Group | None = None) -> Any:
    """The option `name` of another dataclass, with another default or in another group if given."""
    (found,) = (each for each in fields(owner) if each.name == name)
    about = replace(found.metadata["about"], group=group or found.metadata["about"].group)
    value = found.default if default is MISSING else default
    return field(default=value, repr=found.repr, metadata={"about": about})


@dataclass(frozen=True)
class Kind:
    """The type of an option. choices: the values of a Literal."""

    type: type
    choices: tuple[str, ...] = ()
    is_many: bool = False


def kind_of(hint: Any) -> Kind:
    """The kind of a field from its annotation; `X | None` is of the kind of X."""
    (inner,) = [arg for arg in get_args(hint) if arg is not NoneType] if _is_union(hint) else [hint]
    if get_origin(inner) is Literal:
        return Kind(str, get_args(inner))
    if get_origin(inner) is tuple:
        return Kind(get_args(inner)[0], is_many=True)
    return Kind(inner)


def _is_union(hint: Any) -> bool:
    return NoneType in get_args(hint)


@functools.cache
def declared(owner: Any) -> tuple[tuple[Field[Any], About, Kind], ...]:
    """The options of a dataclass, in order."""
    hints = get_type_hints(owner)
    return tuple((f, f.metadata["about"], kind_of(hints[f.name])) for f in fields(owner))


def flag_of(name: str) -> str:
    """min_new_tokens -> --min-new-tokens."""
    return "--" + name.replace("_", "-")


def check(options: Any, is_typed: bool = True) -> None:
    """Raises ConfigError for the first option whose type, name or number cannot be.

    is_typed: options of a command are told as they are typed, those of Config by their key.
    """
    for each, about, kind in declared(options.__class__):
        value = getattr(options, each.name)
        name = flag_of(each.name) if is_typed else each.name
        if (value is None and each.default is None) or kind.is_many:
            continue
        wanted = (int, float) if kind.type is float else (kind.type,)
        if not isinstance(value, wanted) or (isinstance(value, bool) and kind.type is not bool):
            told = " or ".join(each.__name__ for each in wanted)
            raise ConfigError(f"{name} is {value!r}, the wrong type; give a value of type {told}")
        if kind.choices and value not in kind.choices:
            raise ConfigError(f"{name} is {value!r}; choose one of {', '.join(kind.choices)}")
        number: Any = value
        if not about.allows(number):
            raise ConfigError(f"{name} is {shown(number)}; it may be {about.range()}")


def shown(number: float) -> str:
    """In a line of text: an integer may have more digits than a float can hold."""
    try:
        return f"{number:g}"
    except OverflowError:
        return "too large"


CLOSE = 0.7  # of 1: two dashes alone make two options alike to 0.5


def check_known(names: Iterable[str], owner: type) -> None:
    """Raises ConfigError for a key that is no option of `owner`."""
    known = sorted(each.name for each in fields(owner))
    for name in names:
        if name not in known:
            raise ConfigError(
                f"unknown option {name!r}{did_you_mean(name, known)}; known are {', '.join(known)}"
            )


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """ "; did you mean X?" where one of `known` is close to `given`, else nothing."""
    near = get_close_matches(given, list(known), 1, CLOSE)
    return f"; did you mean {near[0]}?" if near else ""


def metavar_of(name: str, about: About, kind: Kind) -> str:
    """What stands for the value in `--help`."""
    return about.metavar or ("N" if kind.type is int else "S" if name.endswith("_s") else "X")


def help_of(each: Field[Any], about: About, kind: Kind) -> str:
    """What an option does, its bounds and its default."""
    bounds = f" ({about.range()})" if about.range() else ""
    has_default = each.default is not MISSING and kind.type is not bool and not about.is_argument
    default = f"; default {shown_default(each, about)}" if has_default else ""
    return about.help + bounds + default


def shown_default(each: Field[Any], about: About) -> str:
    """The default as a person reads it."""
    if each.default is None or each.default == ():
        return about.unset
    return f"{each.default:g}" if isinstance(each.default, int | float) else str(each.default)


def read_toml(path: str | Path, of: Callable[[dict[str, Any]], T]) -> T:
    """What `of` makes of a TOML file. Raises ConfigError, whose text begins with the path."""
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # TOML's own, UTF-8's, Python's limits
        raise ConfigError(f"{path}: is not TOML ({error})") from None
    try:
        return of(found)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def taken(owner: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """What of `given` are options of `owner`; lists become tuples."""
    found = {each.name: given[each.name] for each in fields(owner) if each.name in given}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in found.items()}

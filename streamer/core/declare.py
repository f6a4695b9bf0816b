"""Options: fields of frozen dataclasses that carry help and bounds.

    k: int | None = option(None, "tokens of a draft", ge=1, le=64)
    edge: str = option("embedded", metavar="SPEC")
    \"""embedded, a model directory, or a hub id\"""

The checks of keywords, the keys of a pipeline file, the command line (streamer/cli.py) and
docs/options.md are made from these fields. msgspec checks types and bounds.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Meta, ValidationError, convert

T = TypeVar("T")
REQUIRED: Any = MISSING  # the default of an option that must be given


class ConfigError(ValueError):
    """An option cannot be used. Its text is one line that names the option and the way out."""


def option(
    default: Any, help: str = "", group: str | None = "options", *, repr: bool = True, **more: Any
) -> Any:
    """A field of a dataclass that is an option.

    help: given here, or as the text below the field. group: the heading in `--help`; None: not on
    the command line. more: bounds of msgspec.Meta (ge, gt, le, lt), metavar, short (of a switch,
    such as "-v"), positional, and unset (the default in words where it is None).
    """
    return field(default=default, repr=repr, metadata={"told": help, "group": group, **more})


@dataclass(frozen=True)
class Option:
    """One declared option of a dataclass. type: without None. more: as `option` was given it.
    choices: of a Literal."""

    owner: Any
    name: str
    type: Any
    default: Any
    more: Mapping[str, Any]
    flag: str  # of min_new_tokens --min-new-tokens
    choices: tuple[str, ...]
    is_many: bool
    is_switch: bool

    def __getattr__(self, name: str) -> Any:
        """group, metavar, short, positional, unset; None if it was not given."""
        return self.more.get(name)

    @property
    def help(self) -> str:
        """In words: given in the declaration, or below it, maybe in a base of the dataclass."""
        owners = [each for each in self.owner.__mro__ if each is not object]
        below = (_texts_in(each.__module__).get((each.__name__, self.name)) for each in owners)
        return self.told or next(filter(None, below), "")

    @property
    def range(self) -> str:
        """The bounds in words; empty if there are none."""
        low, high = self.ge, self.le
        if self.gt is not None:
            return f"above {self.gt:g} and below {self.lt:g}"
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
        if self.metavar:
            return str(self.metavar)
        if self.type is int:
            return "N"
        return "S" if self.name.endswith("_s") else "X"

    def checked(self, value: Any, name: str, is_typed: bool = False) -> Any:
        """The value, in its type. Raises ConfigError, which calls the option `name`, for a wrong
        type or number. is_typed: a number may be a text that was typed."""
        if value is None and self.default is None:
            return None
        bounds = {each: self.more[each] for each in ("ge", "gt", "le", "lt") if each in self.more}
        try:
            return convert(value, Annotated[self.type, Meta(**bounds)], strict=not is_typed)
        except (ValidationError, UnicodeEncodeError) as error:
            told = f"choose one of {', '.join(self.choices)}" if self.choices else str(error)
            told = f"it may be {self.range}" if self.range else told
            raise ConfigError(f"{name} is {value!r:.80}; {told}") from None


@functools.cache
def _texts_in(module: str) -> Mapping[tuple[str, str], str]:
    """(class, field) -> the text below the field, which Python keeps in the source alone."""
    found = {}
    for owner in ast.parse(inspect.getsource(sys.modules[module])).body:
        for pair in pairwise(getattr(owner, "body", ())):
            match pair:
                case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    found[owner.name, name] = " ".join(text.split())  # type: ignore[attr-defined]
    return found


@functools.cache
def options_of(owner: Any) -> tuple[Option, ...]:
    """The options of a dataclass, in order."""
    hints = get_type_hints(owner)
    found = []
    for each in fields(owner):
        kind = hints[each.name]
        if NoneType in get_args(kind):
            (kind,) = (arg for arg in get_args(kind) if arg is not NoneType)
        option = Option(
            owner,
            each.name,
            kind,
            each.default,
            each.metadata,
            flag="--" + each.name.replace("_", "-"),
            choices=get_args(kind) if get_origin(kind) is Literal else (),
            is_many=get_origin(kind) is tuple,
            is_switch=kind is bool,
        )
        found.append(option)
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
    """The options of `owner` among `given`, whose values may be text that was typed. Raises
    ConfigError."""
    return {
        each.name: each.checked(given[each.name], each.flag, is_typed=True)
        for each in options_of(owner)
        if each.name in given
    }


EngineName = Literal["fast", "stable", "int8", "int4"]  # what runs a model
DeviceName = Literal["cpu", "cuda"]
MODELS = "models"
edge_option = partial(
    option, "embedded", "embedded, a model directory, or a hub id", MODELS, metavar="SPEC"
)
device_option = partial(option, "cpu", "cpu, or cuda: both models in bf16 on the first GPU", MODELS)
engine_option = partial(
    option,
    "fast",
    "fast: compiled kernels for small models, torch for large ones. For large models, stable: "
    "exact equals cloud to the last bit, slower; int8, int4: 8 or 4 bits per weight, smaller "
    "and faster",
    MODELS,
)

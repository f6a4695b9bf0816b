"""Options on the command line. In: a dataclass of them (core/declare.py). Out: arguments."""

from __future__ import annotations

import argparse
from dataclasses import MISSING, Field
from typing import Any

from streamer.core.declare import About, Group, Kind, declared, flag_of, help_of, metavar_of


def add_to(parser: argparse.ArgumentParser, owner: type, arguments: str) -> None:
    """Adds the options of `owner`, by groups. What is not given stays out of the namespace.

    arguments: what stands before the options in the examples of the groups.
    """
    groups: dict[Group, argparse._ArgumentGroup] = {}
    for each, about, kind in declared(owner):
        if about.group is None:
            continue
        if about.group not in groups:
            words = [parser.prog, *arguments.split(), about.group.example]
            example = "example: " + " ".join(word for word in words if word)
            groups[about.group] = parser.add_argument_group(about.group.title, example)
        _add(groups[about.group], each, about, kind)


def _add(
    group: argparse._ArgumentGroup, each: Field[Any], about: About, kind: Kind
) -> argparse.Action:
    shown = help_of(each, about, kind).replace("%", "%%")
    more: dict[str, Any] = {"help": shown, "default": argparse.SUPPRESS}
    if about.is_argument:
        nargs = "+" if each.default is MISSING else "*" if kind.is_many else "?"
        return group.add_argument(each.name, nargs=nargs, metavar=about.metavar, **more)
    names = [name for name in (about.short, flag_of(each.name)) if name]
    if kind.type is bool:
        return group.add_argument(*names, action="store_true", **more)
    if kind.choices:
        more["choices"] = kind.choices
    else:
        more |= {"type": kind.type, "metavar": metavar_of(each.name, about, kind)}
    more |= {"action": "append"} if kind.is_many else {}
    return group.add_argument(*names, required=each.default is MISSING, **more)

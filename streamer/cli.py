"""The command line, thin. In: argv. Out: a command's exit status.

0: every file was described; 1: a file or a model failed (the others are still described); 2: bad
usage. The parser is made from the declared options. Nothing here imports torch: `--help` answers
at once.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import MISSING, Field
from typing import Any, NoReturn

from streamer import __version__
from streamer.commands.process import StdoutLost, drop_stderr, drop_stdout, fail, prepare
from streamer.commands.table import COMMANDS, Command
from streamer.config import Config, ConfigError
from streamer.core.declare import (
    About,
    Group,
    Kind,
    declared,
    did_you_mean,
    flag_of,
    help_of,
    metavar_of,
    taken,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    parser = build_parser()
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help(sys.stderr)
        return 2
    found, unknown = parser.parse_known_args(argv)
    given = vars(found)
    own: _Parser = given.pop("parser")
    if unknown:  # told by the command that was given, whose --help has its options
        own.refuse(unknown)
    prepare()
    try:
        return _guarded(COMMANDS[given.pop("command")], given)
    finally:
        drop_stderr()


def _guarded(command: Command, given: dict[str, Any]) -> int:
    """Its exit status, whatever ends it."""
    try:
        return _run(command, given)
    except ConfigError as error:
        fail(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    except StdoutLost as error:
        drop_stdout()
        fail(f"stdout cannot be written ({error}); make room, or write elsewhere")
        return 1
    except BrokenPipeError:  # the reader went away (| head): not an error of ours
        drop_stdout()
        return 0


def _run(command: Command, given: dict[str, Any]) -> int:
    options = command.options(**taken(command.options, given))
    run = command.run()
    return int(run(options, taken(Config, given)) if command.has_config else run(options))


def build_parser() -> argparse.ArgumentParser:
    """The parser of every command, made from the declared options."""
    parser = _Parser(prog="streamer", description="Say in one Chinese sentence HOW someone speaks.")
    parser.add_argument("-V", "--version", action="version", version=f"streamer {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        each = commands.add_parser(name, help=command.help, description=command.description)
        add_options(each, command.options, command.arguments)
        if command.has_config:
            add_options(each, Config, command.arguments)
        each.set_defaults(parser=each, command=name)
    return parser


def add_options(parser: argparse.ArgumentParser, owner: type, arguments: str) -> None:
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


class _Parser(argparse.ArgumentParser):
    """Usage errors as one line: cause and way out. No option may be shortened."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more, allow_abbrev=False)
        self._typed: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        if found := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += did_you_mean(found[1], re.findall(r"[\w-]+", found[2]))
        named = [word for word in self._typed if word[:1] == "-" and os.path.isfile(word)]
        message += f"; ./{named[0]} would be the file" if named else ""
        self.exit(2, f"streamer: {message}; see {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Keeps the words, for `error`."""
        self._typed = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """For words that are no option, with the option that may have been meant."""
        known = [name for name in self._option_string_actions if name.startswith("--")]
        typed = next((word for word in unknown if word.startswith("-")), "")
        meant = did_you_mean(typed.split("=")[0], known)
        self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")

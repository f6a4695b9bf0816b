"""The command line: builds the parser from the declared options and runs one command.

Exit status 0: every file was described; 1: a file or a model failed (the others are still
described); 2: bad usage. Nothing here imports torch: `--help` answers at once.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

from streamer import __version__
from streamer.commands.process import (
    StdoutLost,
    drop_stderr,
    drop_stdout,
    ends_by_ctrl_c,
    fail,
    is_interrupted,
    prepare,
    told_of,
)
from streamer.config import DETAILS, Config, ConfigError
from streamer.core.declare import REQUIRED, Option, did_you_mean, options_of, taken
from streamer.extras import load

HELP_ALL = "--help-all"


EXTRAS = ("fleet", "director", "tune", "mcp")
WITH_CONFIG = ("describe", "compare", "listen", "label", "serve", "mcp")
# MODULE:FUNCTION of `streamer.commands`, where it is not NAME:run
PLACES = {"verifier": "serve:run_verifier", "samples": "models:copy_samples", "warm": "models:warm"}


@dataclass(frozen=True)
class Command:
    """One command: a module of `streamer.commands`, or an extra."""

    name: str
    help: str
    example: str

    @property
    def has_config(self) -> bool:
        """Whether its function takes the options of Config, too."""
        return self.name in WITH_CONFIG

    @property
    def options(self) -> Any:
        """The class of its options, whose docstring describes the command."""
        if self.name in EXTRAS:
            return load(f"{self.name}.options")
        options = import_module("streamer.commands.options")
        return getattr(options, f"{self.name.capitalize()}Options")

    def run(self) -> Callable[..., Any]:
        if self.name in EXTRAS:
            return load(self.name)
        module, _, name = PLACES.get(self.name, f"{self.name}:run").partition(":")
        return getattr(import_module(f"streamer.commands.{module}"), name)


DIRECTED = "director --replicas ws://10.0.0.7:8765 --replicas ws://10.0.0.8:8765"
TUNED = "tune clips --cloud Qwen2.5-Omni-3B --out mine"
_ALL = (
    ("describe", "describe recordings", "describe clip.wav --measures"),
    ("compare", "two takes: what differs, and by how much", "compare before.wav after.wav"),
    ("listen", "describe the microphone, in this terminal", "listen"),
    ("label", "a table of many recordings, with levels and measures", "label clips --out t.csv"),
    ("serve", "a page to speak to, and OpenAI Realtime, on one port", "serve --live-updates 3"),
    ("verifier", "be the cloud of edges elsewhere", "verifier --host 0.0.0.0 --api-key secret"),
    ("fleet", "servers and verifiers on Ray, at one address", "fleet pipelines/fleet.toml"),
    ("director", "send clients on to servers and verifiers that run elsewhere", DIRECTED),
    ("calibrate", "derive a gate from a risk", "calibrate clips --risk 0.05 --out myedge"),
    ("tune", "adapt a large model to pitch, rate and pauses, on your recordings", TUNED),
    ("mcp", "tools for agents, by the Model Context Protocol", "mcp recordings"),
    ("models", "list the models and devices here", "models --json"),
    ("samples", "recordings and a client to try", "samples --out here"),
    ("warm", "prepare the first run: kernels, or a large model", "warm"),
)
COMMANDS = {row[0]: Command(*row) for row in _ALL}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    typed = sys.argv[1:] if argv is None else argv
    parser = build_parser(typed[:1] or None, shows_all=HELP_ALL in typed)
    if not typed:
        parser.print_help(sys.stderr)
        return 2
    found, unknown = parser.parse_known_args(typed)
    given = vars(found)
    own: _Parser = given.pop("parser")
    if unknown:  # reported by the command that was given, whose --help has its options
        own.refuse(unknown)
    prepare()
    try:
        with ends_by_ctrl_c():
            return _guarded(COMMANDS[given.pop("command")], given)
    finally:
        drop_stderr()


def _guarded(command: Command, given: dict[str, Any]) -> int:
    try:
        return _run(command, given)
    except KeyboardInterrupt as interrupt:  # its argument is the signal, none for Ctrl-C
        return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)
    except BrokenPipeError:  # the reader closed the pipe (| head): not an error
        drop_stdout()
        return 0
    except Exception as error:
        if is_interrupted():  # Python hides a KeyboardInterrupt that comes as a class is made
            return 130
        cause = _cause_of(error)
        if isinstance(cause, StdoutLost):
            drop_stdout()
        if (told := told_of(cause)) is None:
            raise
        fail(told)
        return 2 if isinstance(cause, ConfigError) else 1


def _cause_of(error: BaseException) -> BaseException:
    """The innermost error; the one that keeps us from looking, if there is no memory for it."""
    try:
        from streamer.stages.ports import cause_of
    except (ImportError, MemoryError) as full:
        return full
    return cause_of(error)


def _run(command: Command, given: dict[str, Any]) -> int:
    owner = command.options
    own = owner(**taken(owner, given))
    try:
        run = command.run()
    except OSError as error:  # a library that cannot be mapped
        raise ImportError(str(error)) from None
    return int(run(own, taken(Config, given)) if command.has_config else run(own))


def build_parser(
    only: Collection[str] | None = None, shows_all: bool = False
) -> argparse.ArgumentParser:
    """The parser of every command. only: the commands whose options are needed. shows_all:
    `--help` lists the details of decoding, too."""
    parser = _Parser(prog="streamer", description="Say in one sentence HOW someone speaks.")
    parser.add_argument("-V", "--version", action="version", version=f"streamer {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        example = f"example: streamer {command.example}"
        is_needed = only is None or name in only
        described = command.options.__doc__ if is_needed else None
        each = commands.add_parser(name, help=command.help, description=described, epilog=example)
        each.set_defaults(parser=each, command=name)
        if not is_needed:
            continue
        add_options(each, command.options)
        if command.has_config:
            add_options(each, Config, () if shows_all else DETAILS)
            each.add_argument(
                HELP_ALL, action="help", help="show this and the details of decoding, and exit"
            )
    return parser


def add_options(parser: argparse.ArgumentParser, owner: type, hidden: Collection[str] = ()) -> None:
    """Add the options of `owner`, by groups. An option that is not given stays out of the
    namespace. hidden: groups that `--help` leaves out."""
    groups: dict[str, argparse._ActionsContainer] = {}
    for option in options_of(owner):
        if option.group is None:
            continue
        if option.positional or option.group == "options":
            groups[option.group] = parser
        elif option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        _add(groups[option.group], option, option.group in hidden)


def _add(group: argparse._ActionsContainer, option: Option, is_hidden: bool) -> None:
    help = argparse.SUPPRESS if is_hidden else help_of(option).replace("%", "%%")
    more: dict[str, Any] = {"help": help, "default": argparse.SUPPRESS}
    if option.positional:
        nargs = ("+" if option.default is REQUIRED else "*") if option.is_many else None
        group.add_argument(option.name, nargs=nargs, metavar=option.metavar, **more)
        return
    if option.is_switch:
        names = [name for name in (option.short, option.flag) if name]
        group.add_argument(*names, action="store_true", **more)
        return
    more |= {"metavar": option.placeholder, "required": option.default is REQUIRED}
    if option.is_many:
        group.add_argument(option.flag, action="append", **more)
    else:
        group.add_argument(option.flag, action=_Once, **more).option = option  # type: ignore[attr-defined]


def help_of(option: Option) -> str:
    """The help of an option, its bounds and its default."""
    bounds = f" ({option.range})" if option.range else ""
    has_default = option.default is not REQUIRED and not (option.is_switch or option.positional)
    return option.help + bounds + (f"; default {option.shown_default}" if has_default else "")


class _Once(argparse.Action):
    """Parses a value. An option that is given a second time is refused: only one could count."""

    option: Option

    def __call__(
        self, parser: Any, namespace: Any, values: Any, option_string: str | None = None
    ) -> None:
        if hasattr(namespace, self.dest):
            parser.error(f"{self.option.flag} is given twice; give it once")
        try:
            setattr(namespace, self.dest, self.option.parse(values))
        except ConfigError as error:
            parser.error(str(error))


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
        self._typed = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """For words that are no option, with the option that may have been meant."""
        known = [name for name in self._option_string_actions if name.startswith("--")]
        typed = next((word for word in unknown if word.startswith("-")), "")
        meant = did_you_mean(typed.split("=")[0], known)
        self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")

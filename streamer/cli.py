"""The command line: builds the parser from the declared options and runs one command.

Exit status 0: every file was described; 1: a file or a model failed (the others are still
described); 2: bad usage. Nothing here imports torch: `--help` answers at once.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

from streamer import __version__
from streamer.commands.process import drop_stdout, fail, prepare, told_of
from streamer.config import DETAILS, Config, ConfigError
from streamer.core.declare import REQUIRED, Option, options_of, taken
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
    given = vars(parser.parse_args(typed))
    prepare()
    try:
        return _run(COMMANDS[given.pop("command")], given)
    except KeyboardInterrupt as interrupt:  # its argument is the signal, none for Ctrl-C
        return 128 + (interrupt.args or (signal.SIGINT,))[0]
    except Exception as error:
        from streamer.stages.ports import cause_of

        drop_stdout()
        cause = cause_of(error)
        if isinstance(cause, BrokenPipeError):  # the reader closed the pipe (| head): no error
            return 0
        if (told := told_of(cause)) is None:
            raise
        fail(told)
        return 2 if isinstance(cause, ConfigError) else 1


def _run(command: Command, given: dict[str, Any]) -> int:
    own = command.options(**taken(command.options, given))
    more = [taken(Config, given)] if command.has_config else []
    return int(command.run()(own, *more))


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
        each.set_defaults(command=name)
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
    groups: dict[str, argparse._ActionsContainer] = {"options": parser}
    for option in options_of(owner):
        if option.group is None:
            continue
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        help = argparse.SUPPRESS if option.group in hidden else help_of(option).replace("%", "%%")
        _add(parser if option.positional else groups[option.group], option, help)


def _add(group: argparse._ActionsContainer, option: Option, help: str) -> None:
    more: dict[str, Any] = {"help": help, "default": argparse.SUPPRESS}
    if option.positional:
        nargs = ("+" if option.default is REQUIRED else "*") if option.is_many else None
        group.add_argument(option.name, nargs=nargs, metavar=option.metavar, **more)
    elif option.is_switch:
        names = [name for name in (option.short, option.flag) if name]
        group.add_argument(*names, action="store_true", **more)
    else:
        more |= {"metavar": option.placeholder, "required": option.default is REQUIRED}
        group.add_argument(option.flag, action="append" if option.is_many else "store", **more)


def help_of(option: Option) -> str:
    """The help of an option, its bounds and its default."""
    bounds = f" ({option.range})" if option.range else ""
    has_default = option.default is not REQUIRED and not (option.is_switch or option.positional)
    return option.help + bounds + (f"; default {option.shown_default}" if has_default else "")


class _Parser(argparse.ArgumentParser):
    """Usage errors as one line: cause and way out. No option may be shortened."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more, allow_abbrev=False)

    def parse_known_args(self, *given: Any) -> Any:  # type: ignore[override]
        """A command's own parser, not the one above it, refuses what it does not know."""
        found, unknown = super().parse_known_args(*given)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"streamer: {message}; see {self.prog} --help\n")

"""The command line: builds the parser from the declared options and runs one command.

Exit status 0: every file was described; 1: a file or a model failed (the others are still
described); 2: bad usage. Nothing here imports torch: `--help` answers at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, NoReturn, get_args, get_origin

from streamer import __version__
from streamer.commands.process import drop_stdout, fail, prepare, told_of
from streamer.config import DETAILS, Config, ConfigError
from streamer.core.declare import REQUIRED, Option, options_of, taken
from streamer.extras import ENTRY_POINTS, load

HELP_ALL = "--help-all"
WITH_CONFIG = ("describe", "compare", "listen", "label", "serve", "mcp")  # take its options, too
# MODULE:FUNCTION of `streamer.commands`, where it is not NAME:run
PLACES = {"verifier": "serve:run_verifier", "samples": "models:samples", "warm": "models:warm"}
COMMANDS = {  # name -> help, an example
    "describe": ("describe recordings", "describe clip.wav --measures"),
    "compare": ("two takes: what differs, and by how much", "compare before.wav after.wav"),
    "listen": ("describe the microphone, in this terminal", "listen"),
    "label": ("a table of many recordings, with levels and measures", "label clips --out t.csv"),
    "serve": ("a page to speak to, and OpenAI Realtime, on one port", "serve --live-updates 3"),
    "verifier": ("be the cloud of edges elsewhere", "verifier --host 0.0.0.0 --api-key secret"),
    "fleet": ("servers and verifiers on Ray, at one address", "fleet pipelines/fleet.toml"),
    "director": ("send clients on to servers elsewhere", "director --replicas ws://10.0.0.7:8765"),
    "calibrate": ("derive a gate from a risk", "calibrate clips --risk 0.05 --out myedge"),
    "tune": ("adapt a large model to recordings", "tune clips --cloud Qwen2.5-Omni-3B --out mine"),
    "mcp": ("tools for agents, by the Model Context Protocol", "mcp recordings"),
    "models": ("list the models and devices here", "models --json"),
    "samples": ("recordings and a client to try", "samples"),
    "warm": ("prepare the first run: kernels, or a large model", "warm"),
}


def options_class(command: str) -> Any:
    """The dataclass of a command's own options, whose docstring describes the command."""
    if command in ENTRY_POINTS:
        return load(f"{command}.options")
    return getattr(import_module("streamer.commands.options"), f"{command.capitalize()}Options")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    typed = sys.argv[1:] if argv is None else argv
    parser = build_parser(typed[:1] or None, shows_all=HELP_ALL in typed)
    if not typed:
        parser.print_help(sys.stderr)
        return 2
    command = parser.commands.get(typed[0])
    if command is None or "--" in typed:  # of which intermixed parsing makes an error
        found, unknown = parser.parse_known_args(typed)
    else:  # options may stand among the files
        found, unknown = command.parse_known_intermixed_args(typed[1:])
    if unknown:  # also the files after an unknown option
        shown = [each for each in unknown if each.startswith("-")] or unknown
        why = f"unrecognized arguments: {' '.join(shown)}"
        parser.exit(2, f"streamer: {why}; see streamer {found.command} --help\n")
    prepare()
    try:
        return _run(**vars(found))
    except Exception as error:
        from streamer.stages.events import cause_of

        drop_stdout()
        cause = cause_of(error)
        if isinstance(cause, BrokenPipeError):  # the reader closed the pipe (| head): no error
            return 0
        if (told := told_of(cause)) is None:  # a defect
            raise
        fail(told)
        return 2 if isinstance(cause, ConfigError) else 1


def _run(command: str, **given: Any) -> int:
    own = options_class(command)
    arguments = [own(**taken(own, given))]
    if command in WITH_CONFIG:
        config = Config.of(given.get("pipeline") or None, {})
        # --k in mode cloud, or --cloud in edge, is no error: scripts try the modes in turn
        arguments.append(replace(config, **taken(Config, given)))
    if command in ENTRY_POINTS:
        run = load(command)
    else:
        module, _, name = PLACES.get(command, f"{command}:run").partition(":")
        run = getattr(import_module(f"streamer.commands.{module}"), name)
    if iscoroutinefunction(run):
        import anyio

        return int(anyio.run(run, *arguments))
    return int(run(*arguments))


def build_parser(only: Collection[str] | None = None, shows_all: bool = False) -> _Parser:
    """The parser of every command. only: the commands whose options are needed. shows_all:
    `--help` lists the details of decoding, too."""
    about = "Say in one sentence HOW someone speaks."
    parser = _Parser(prog="streamer", description=about, allow_abbrev=False)
    parser.add_argument("-V", "--version", action="version", version=f"streamer {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    parser.commands = commands.choices
    for name, (help, example) in COMMANDS.items():
        shown = f"example: streamer {example}"
        each = commands.add_parser(name, help=help, epilog=shown, allow_abbrev=False)
        each.set_defaults(command=name)
        if only is not None and name not in only:
            continue
        own = options_class(name)
        each.description = own.__doc__
        add_options(each, own)
        if name in WITH_CONFIG:
            add_options(each, Config, () if shows_all else DETAILS)
            told = "show this and the details of decoding, and exit"
            each.add_argument(HELP_ALL, action="help", help=told)
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
        group = groups[option.group]
        help = argparse.SUPPRESS if option.group in hidden else help_of(option).replace("%", "%%")
        more: dict[str, Any] = {"help": help, "default": argparse.SUPPRESS}
        is_required, is_many = option.default is REQUIRED, get_origin(option.type) is tuple
        if option.positional:
            kinds = get_args(option.type)  # of a tuple
            nargs: Any = ("+" if is_required else "*") if ... in kinds else len(kinds) or None
            parser.add_argument(option.name, metavar=option.metavar, nargs=nargs, **more)
        elif option.type is bool:
            names = filter(None, (option.short, option.flag))
            group.add_argument(*names, action="store_true", **more)
        else:
            more |= {"metavar": option.placeholder, "required": is_required}
            group.add_argument(option.flag, action="append" if is_many else "store", **more)


def help_of(option: Option) -> str:
    """The help of an option, its bounds and its default."""
    bounds = f" ({option.range})" if option.range else ""
    has_default = option.default is not REQUIRED and not (option.type is bool or option.positional)
    return option.help + bounds + (f"; default {option.shown_default}" if has_default else "")


class _Parser(argparse.ArgumentParser):
    """Usage errors as one line: cause and way out. commands: name -> its parser."""

    commands: Mapping[str, argparse.ArgumentParser]

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"streamer: {message}; see {self.prog} --help\n")

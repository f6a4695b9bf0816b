"""The command line, thin. In: argv. Out: text or JSON on stdout, one-line errors on stderr, an exit
status.

0: every file was described; 1: a file or a model failed (the others are still described); 2: bad
usage. Nothing here imports torch: `--help` answers at once.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from streamer import __version__
from streamer.commands.process import tell_warnings_plainly
from streamer.commands.stdout import StdoutLost, guarded_stdout

MODEL_OPTIONS = (
    "mode",
    "preset",
    "k",
    "threshold",
    "edge",
    "cloud",
    "draft",
    "engine",
    "device",
    "temperature",
    "top_p",
    "seed",
    "min_new_tokens",
    "max_new_tokens",
    "cloud_key",
    "cloud_ca",
    "cloud_audio",
    "verify_budget_s",
    "draft_ahead",
    "degrade",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    parser = build_parser()
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help(sys.stderr)
        return 2
    options, unknown = parser.parse_known_args(argv)
    if unknown:  # told by the command that was given, whose --help has its options
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    # a name that is not UTF-8 is spelled out, in JSON as JSON does
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    tell_warnings_plainly()
    try:
        with guarded_stdout():
            return int(options.run(options))
    except KeyboardInterrupt:
        return 130
    except StdoutLost as error:
        print(
            f"streamer: stdout cannot be written ({error.strerror}); make room, or write elsewhere",
            file=sys.stderr,
        )
        return 1
    except BrokenPipeError:  # the reader went away (| head): not an error of ours
        sys.stderr.close()
        return 0


def build_parser() -> argparse.ArgumentParser:
    """The parser of every command; also what the README's option table is held against."""
    parser = _Parser(prog="streamer", description="Say in one Chinese sentence HOW someone speaks.")
    parser.add_argument("--version", action="version", version=f"streamer {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_describe(commands)
    _add_serve(commands)
    _add_verifier(commands)
    _add_calibrate(commands)
    models = commands.add_parser(
        "models",
        help="list what can be loaded here",
        description="List the models and devices that can be used here.",
    )
    models.add_argument(
        "directories",
        nargs="*",
        metavar="DIRECTORY",
        help="a model of your own, or a directory of such; the embedded pair and the hub's cache "
        "are always listed",
    )
    models.add_argument(
        "--json", action="store_true", help="one JSON object on stdout, with every level's name"
    )
    models.set_defaults(run=_models)
    for command in commands.choices.values():
        command.set_defaults(parser=command)
    return parser


def _add_describe(commands: argparse._SubParsersAction[_Parser]) -> None:
    p = commands.add_parser(
        "describe",
        help="describe recordings",
        description="Describe recordings: one sentence on stdout for each.",
        parents=[_model_parser()],
    )
    p.add_argument(
        "files", nargs="+", metavar="FILE", help="any format libsndfile reads; - for a WAV on stdin"
    )
    p.add_argument(
        "--json", action="store_true", help="one JSON object per file on stdout, nothing else"
    )
    p.add_argument(
        "--quiet", action="store_true", help="the sentence only: no line of numbers on stderr"
    )
    p.add_argument(
        "--names",
        action="store_true",
        help="FILE: before each sentence on stdout, for several files",
    )
    p.add_argument(
        "--log", metavar="FILE", help="append structured logs (JSON lines) to FILE; default none"
    )
    p.add_argument("--log-text", action="store_true", help="let the log hold the sentences, too")
    p.set_defaults(run=_describe)


def _model_parser() -> _Parser:
    """What `describe` and `serve` share; an option that is not given leaves the default, or the
    pipeline's value."""
    parent = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    p = parent.add_argument_group("models and decoding")
    p.add_argument(
        "--mode",
        choices=("gated", "exact", "edge", "cloud"),
        help=(
            "gated (default): the cloud verifies when the edge is unsure; exact: every block; "
            "edge, cloud: "
            "that model alone"
        ),
    )
    p.add_argument(
        "--preset",
        choices=("fluent", "quality"),
        help="fluent (default): short drafts, few of them verified; quality: longer ones, more",
    )
    p.add_argument(
        "--k", type=int, metavar="N", help="draft length, 1 to 64 ids; default the preset's"
    )
    p.add_argument(
        "--threshold",
        type=float,
        metavar="X",
        help="verify what the edge drafts with more entropy than this, in nats; default the "
        "preset's gate",
    )
    p.add_argument(
        "--edge", metavar="SPEC", help="embedded (default), a model directory, or a hub id"
    )
    p.add_argument(
        "--cloud",
        metavar="SPEC",
        help=(
            "the same (default embedded), or ws://HOST:PORT or wss://HOST:PORT of a `streamer "
            "verifier`, "
            "or none"
        ),
    )
    p.add_argument(
        "--cloud-key",
        metavar="K",
        help="API key of that verifier; default STREAMER_CLOUD_KEY, if it is set",
    )
    p.add_argument(
        "--cloud-ca",
        metavar="FILE",
        help="PEM of the authority behind a wss:// verifier's certificate; default the system's",
    )
    p.add_argument(
        "--cloud-audio",
        choices=("eager", "lazy"),
        help=(
            "audio goes to that verifier while someone speaks (eager, default), or when a verdict "
            "is first "
            "wanted (lazy)"
        ),
    )
    p.add_argument(
        "--verify-budget-s",
        type=float,
        metavar="S",
        help=(
            "seconds for a verdict; default in gated 5, then the block goes on unverified; in "
            "exact and "
            "cloud 30, then an error"
        ),
    )
    p.add_argument(
        "--draft-ahead",
        type=int,
        metavar="N",
        help="ids drafted while a verdict of that verifier is on its way, 0 to 128; default 48",
    )
    p.add_argument(
        "--degrade",
        action="store_true",
        help="exact: go on unverified instead of ending with an error",
    )
    p.add_argument(
        "--draft",
        choices=("incremental", "generate"),
        help=(
            "how the edge drafts; default incremental. generate: transformers' own, per block: "
            "slow, "
            "greedy (temperature 0 only) and by none of our rules: none at all in mode edge; "
            "verified "
            "ids "
            "still follow them"
        ),
    )
    p.add_argument(
        "--engine",
        choices=("fast", "stable", "int8", "stock"),
        help=(
            "fast (default): compiled kernels or torch, whichever was measured to be faster here. "
            "For "
            "large models, stable: exact equals cloud to the last bit, slower; int8: the same with "
            "8-bit "
            "weights, faster; stock: transformers' modules, for comparison, slow"
        ),
    )
    p.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        help="cpu (default), or cuda: both models in bf16 on a GPU",
    )
    p.add_argument("--temperature", type=float, metavar="T", help="0 (default) is greedy")
    p.add_argument(
        "--top-p",
        type=float,
        metavar="P",
        help="sample within this share of the mass; default 1, all of it",
    )
    p.add_argument("--seed", type=int, metavar="N", help="same seed, same sentence; default 0")
    p.add_argument(
        "--min-new-tokens",
        type=int,
        metavar="N",
        help="ids of a sentence at least; default 16, or the maximum where that is less",
    )
    p.add_argument(
        "--max-new-tokens",
        type=int,
        metavar="N",
        help="ids of a sentence at most, 1 to 128; default 96",
    )
    return parent


def _describe(options: argparse.Namespace) -> int:
    import anyio

    from streamer.commands.describe import Style, describe_files, fail
    from streamer.config import Config, ConfigError
    from streamer.contradictions import check_given

    try:
        given = _model_options(options)
        config = Config.from_mapping(given)
        check_given(given, config)
        if options.log_text and not options.log:
            raise ConfigError(
                "--log-text is given without --log FILE; say where the log goes, or leave it out"
            )
    except ConfigError as error:
        fail(str(error))
        return 2
    style = Style(options.json, options.quiet, options.names)
    if not options.log:
        return anyio.run(describe_files, options.files, config, style)
    from streamer.logs import log_to

    try:
        file = open(options.log, "a", encoding="utf-8")  # noqa: SIM115 - closed below; only its opening is guarded
    except OSError as error:
        fail(f"--log {options.log}: cannot be written ({error.strerror})")
        return 2
    with file:
        log_to(file, text=options.log_text)
        return anyio.run(describe_files, options.files, config, style)


def _model_options(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in MODEL_OPTIONS if hasattr(options, name)}


def _add_serve(commands: argparse._SubParsersAction[_Parser]) -> None:
    p = commands.add_parser(
        "serve",
        help="describe live audio over a websocket",
        description="Serve OpenAI Realtime at /v1/realtime: audio in, text out.",
        parents=[_model_parser()],
    )
    p.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="H",
        help="address to listen on, default 127.0.0.1; a public one needs --api-key",
    )
    p.add_argument(
        "--port", type=int, default=8765, metavar="P", help="default 8765; 0 takes a free one"
    )
    p.add_argument(
        "--pipeline",
        metavar="FILE",
        help="a TOML file of model options; those given here win; default none",
    )
    p.add_argument(
        "--api-key",
        metavar="K",
        help="who connects must show it; default STREAMER_API_KEY, if it is set",
    )
    p.add_argument(
        "--max-sessions",
        type=int,
        default=16,
        metavar="N",
        help="sessions at once, 1 to 100, default 16; then 503",
    )
    p.add_argument(
        "--allow-origin",
        action="append",
        metavar="O",
        help="a page's Origin that may connect, again for each; default its own page",
    )
    p.add_argument(
        "--live-updates",
        type=float,
        metavar="S",
        help="a sentence every S seconds of a turn, 0.5 to 3600, for clients that ask for "
        "events; default none",
    )
    p.add_argument(
        "--resume-s",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds a lost client may take to come back; default 30",
    )
    p.add_argument(
        "--cert", metavar="FILE", help="TLS certificate chain, PEM; default none: no TLS"
    )
    p.add_argument(
        "--key", metavar="FILE", help="its private key, PEM without a password; default none"
    )
    p.set_defaults(run=_serve)


def _serve(options: argparse.Namespace) -> int:
    from streamer.commands.serve import run

    return run(options, _model_options(options))


def _add_verifier(commands: argparse._SubParsersAction[_Parser]) -> None:
    p = commands.add_parser(
        "verifier",
        help="be the cloud of edges elsewhere (--cloud ws://HOST:PORT there)",
        description="Hold the cloud model and verify what edges elsewhere draft.",
    )
    p.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="H",
        help="address to listen on, default 127.0.0.1; a public one needs --api-key",
    )
    p.add_argument(
        "--port", type=int, default=8766, metavar="P", help="default 8766; 0 takes a free one"
    )
    p.add_argument(
        "--cloud",
        default="embedded",
        metavar="SPEC",
        help="embedded (default), a model directory, or a hub id",
    )
    p.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="default cpu; cuda: bf16 on a GPU"
    )
    p.add_argument(
        "--engine",
        choices=("fast", "stable", "int8", "stock"),
        default="fast",
        help="default fast; for large models, as `streamer describe --help` has them",
    )
    p.add_argument(
        "--api-key",
        metavar="K",
        help="who connects must show it; default STREAMER_API_KEY, if it is set",
    )
    p.add_argument(
        "--max-sessions",
        type=int,
        default=32,
        metavar="N",
        help="turns at once, 1 to 255, default 32; then 503",
    )
    p.add_argument(
        "--resume-s",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds a lost edge may take to come back; default 30",
    )
    p.add_argument(
        "--cert", metavar="FILE", help="TLS certificate chain, PEM; default none: no TLS"
    )
    p.add_argument(
        "--key", metavar="FILE", help="its private key, PEM without a password; default none"
    )
    p.set_defaults(run=_verifier)


def _verifier(options: argparse.Namespace) -> int:
    from streamer.commands.verifier import run

    return run(options)


def _add_calibrate(commands: argparse._SubParsersAction[_Parser]) -> None:
    p = commands.add_parser(
        "calibrate",
        help="derive a gate's thresholds from a risk",
        description="Write thresholds that keep a stated risk into a model's card.",
    )
    p.add_argument(
        "clips", nargs="+", metavar="CLIP", help="recordings of the kind the gate will meet"
    )
    p.add_argument(
        "--risk",
        type=float,
        required=True,
        metavar="R",
        help="expected share of blocks that the cloud would change but is not asked about, e.g. "
        "0.05",
    )
    p.add_argument(
        "--quality-risk",
        type=float,
        metavar="R",
        help="the same for preset quality; default half of --risk",
    )
    p.add_argument(
        "--confidence",
        type=float,
        default=0.0,
        metavar="C",
        help="e.g. 0.9: keep the risk with this confidence, too; default 0: in expectation alone",
    )
    p.add_argument(
        "--by-folder",
        action="store_true",
        help="keep the risk for each folder of clips by itself, e.g. short and long ones",
    )
    p.add_argument(
        "--signal",
        choices=("auto", "entropy", "margin", "log_prob", "surprise"),
        default="auto",
        help="what the gate looks at; default auto: a part of the clips chooses",
    )
    p.add_argument(
        "--edge",
        default="embedded",
        metavar="SPEC",
        help="embedded (default), a model directory, or a hub id",
    )
    p.add_argument("--cloud", default="embedded", metavar="SPEC", help="the same, default embedded")
    p.add_argument(
        "--out",
        metavar="DIR_OR_FILE",
        help=(
            "DIR: a copy of the edge with the new thresholds; FILE.json: its card alone; default: "
            "the "
            "edge's own streamer.json, where it is not the embedded one"
        ),
    )
    p.add_argument(
        "--force", action="store_true", help="replace the embedded edge's own thresholds"
    )
    p.add_argument(
        "--plot", metavar="FILE", help="default: calibration.png in that directory, or FILE.png"
    )
    p.add_argument("--json", action="store_true", help="one JSON object on stdout")
    p.set_defaults(run=_calibrate)


def _calibrate(options: argparse.Namespace) -> int:
    from streamer.calibrate.command import run

    return run(options)


def _models(options: argparse.Namespace) -> int:
    from streamer.commands.models import print_models

    return print_models(options.json, options.directories)


class _Parser(argparse.ArgumentParser):
    """Usage errors as one line: cause and way out."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"streamer: {message}; see {self.prog} --help\n")

"""The commands. In: nothing. Out: of each its options, its module and its help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from streamer.commands import options as of
from streamer.commands import service_options as services
from streamer.commands.calibrate_options import CalibrateOptions
from streamer.extras import load


@dataclass(frozen=True)
class Command:
    """One command. Its module's function is `run(options)`, or `run(options, given)` with Config's;
    an extra's module is "extras:NAME", NAME one of streamer.extras.ENTRY_POINTS."""

    options: type
    module: str
    help: str
    description: str
    arguments: str = ""  # what its examples begin with
    has_config: bool = False

    def run(self) -> Callable[..., Any]:
        """Import the function that runs it."""
        place, _, extra = self.module.partition(":")
        return load(extra) if extra else import_module(f"streamer.{place}").run


COMMANDS = {
    "describe": Command(
        of.DescribeOptions,
        "commands.describe",
        "describe recordings",
        "Describe recordings: one sentence on stdout for each.",
        "clip.wav",
        has_config=True,
    ),
    "label": Command(
        of.LabelOptions,
        "commands.label",
        "a table of many recordings: levels, measures, sentences",
        "Label a corpus: one row for each recording, with what is said and what is measured.",
        "clips --out labels.jsonl",
        has_config=True,
    ),
    "serve": Command(
        services.ServeOptions,
        "commands.serve",
        "describe live audio over a websocket",
        "Serve OpenAI Realtime at /v1/realtime: audio in, text out.",
        has_config=True,
    ),
    "verifier": Command(
        services.VerifierOptions,
        "commands.verifier",
        "be the cloud of edges elsewhere (--cloud ws://HOST:PORT there)",
        "Hold the cloud model and verify what edges elsewhere draft.",
    ),
    "fleet": Command(
        load("fleet.options"),
        "extras:fleet",
        "many servers and verifiers on Ray, behind one address",
        "Run servers and verifiers as a fleet: start, scale, restart, and send clients to them.",
    ),
    "director": Command(
        load("director.options"),
        "extras:director",
        "send clients on to servers and verifiers that run elsewhere",
        "Send each client to a server or verifier with room. No Ray is needed.",
    ),
    "calibrate": Command(
        CalibrateOptions,
        "calibrate.command",
        "derive a gate's thresholds from a risk",
        "Write thresholds that keep a stated risk into a model's card.",
        "clips/*.wav",
    ),
    "tune": Command(
        load("tune.options"),
        "extras:tune",
        "make a model tell pitch, rate and pauses well, from recordings of yours",
        "Tune a model on recordings, labelled by measures: adapters are learnt and merged.",
        "clips --model Qwen2.5-Omni-3B --out mine",
    ),
    "models": Command(
        of.ModelsOptions,
        "commands.models",
        "list what can be loaded here",
        "List the models and devices that can be used here.",
    ),
    "samples": Command(
        of.SamplesOptions,
        "commands.samples",
        "recordings and clients to try",
        "Tell where the bundled recordings and clients are, or copy them.",
    ),
    "warm": Command(
        of.WarmOptions,
        "commands.warm",
        "compile ahead what the first run would compile",
        "Compile the embedded pair's kernels for this processor and keep them on disk.",
    ),
}

"""The commands. In: nothing. Out: of each its options, its module and its help."""

from __future__ import annotations

from dataclasses import dataclass

from streamer.commands import options as of
from streamer.commands import service_options as services
from streamer.commands.calibrate_options import CalibrateOptions
from streamer.commands.tune_options import TuneOptions


@dataclass(frozen=True)
class Command:
    """One command. `run(options)`, or `run(options, given)` with Config's, is in `module`."""

    options: type
    module: str
    help: str
    description: str
    arguments: str = ""  # what its examples begin with
    has_config: bool = False


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
        services.FleetOptions,
        "fleet.command",
        "many servers and verifiers on Ray, behind one address",
        "Run servers and verifiers as a fleet: start, scale, restart, and send clients to them.",
    ),
    "director": Command(
        services.DirectorOptions,
        "fleet.standalone",
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
        TuneOptions,
        "tune.command",
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

"""The commands: the options, the module and the help of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from streamer.extras import load


@dataclass(frozen=True)
class Command:
    """One command. module: where `run` is, of `streamer.commands`; None: an extra of this name.
    options: their class, as MODULE:NAME; None: the extra's.

    With has_config, `run` takes the options and those of Config, otherwise the options alone.
    """

    name: str
    help: str
    description: str
    example: str
    module: str | None = None
    options_at: str | None = None
    has_config: bool = False

    @property
    def options(self) -> Any:
        """The class of its options."""
        if self.options_at is None:
            return load(f"{self.name}.options")
        module, _, name = self.options_at.partition(":")
        return getattr(import_module(f"streamer.commands.{module}"), name)

    def run(self) -> Callable[..., Any]:
        """Import the function that runs it."""
        if self.module is None:
            run: Callable[..., Any] = load(self.name)
            return run
        found: Callable[..., Any] = import_module(f"streamer.commands.{self.module}").run
        return found


_ALL = (
    Command(
        "describe",
        "describe recordings",
        "Describe recordings: one sentence on stdout for each.",
        "describe clip.wav --measures",
        "describe",
        "options:DescribeOptions",
        has_config=True,
    ),
    Command(
        "compare",
        "two takes: what differs, and by how much",
        "Compare two recordings: both numbers of each attribute, and their difference.",
        "compare before.wav after.wav",
        "compare",
        "options:CompareOptions",
        has_config=True,
    ),
    Command(
        "listen",
        "describe the microphone, in this terminal",
        "Describe the microphone: gauges while you speak, a sentence at each pause.",
        "listen",
        "listen",
        "options:ListenOptions",
        has_config=True,
    ),
    Command(
        "label",
        "a table of many recordings: levels, measures, sentences",
        "Label a corpus: one row for each recording, with its sentence and its measures.",
        "label clips --out labels.csv",
        "label",
        "options:LabelOptions",
        has_config=True,
    ),
    Command(
        "serve",
        "a page to speak to, and OpenAI Realtime, on one port",
        "Serve OpenAI Realtime at /v1/realtime: audio in, text out. The page is at /.",
        "serve --live-updates 3",
        "serve",
        "service_options:ServeOptions",
        has_config=True,
    ),
    Command(
        "verifier",
        "be the cloud of edges elsewhere (--cloud ws://HOST:PORT there)",
        "Hold the cloud model and verify the drafts of edges elsewhere.",
        "verifier --host 0.0.0.0 --api-key secret",
        "verifier",
        "service_options:VerifierOptions",
    ),
    Command(
        "fleet",
        "many servers and verifiers on Ray, at one address",
        "Run servers and verifiers as a fleet: start, scale, restart, and send clients to them.",
        "fleet --config pipelines/fleet.toml",
    ),
    Command(
        "director",
        "send clients on to servers and verifiers that run elsewhere",
        "Send each client to a server or verifier with room. No Ray is needed.",
        "director --replicas ws://10.0.0.7:8765 --replicas ws://10.0.0.8:8765",
    ),
    Command(
        "calibrate",
        "derive a gate's thresholds from a risk",
        "Write thresholds that keep a stated risk into a model's card.",
        "calibrate clips --risk 0.05 --out myedge",
        "calibrate",
        "options:CalibrateOptions",
    ),
    Command(
        "tune",
        "adapt a large model to pitch, rate and pauses, on your recordings",
        "Tune a model on recordings that are labelled by measures: adapters are learnt and merged.",
        "tune clips --model Qwen2.5-Omni-3B --out mine",
    ),
    Command(
        "mcp",
        "tools for agents, by the Model Context Protocol",
        "Offer describe, measure and compare as tools, over stdin and stdout.",
        "mcp --allow recordings",
        has_config=True,
    ),
    Command(
        "models",
        "list the models and devices here",
        "List the models and devices that can be used here.",
        "models --json",
        "models",
        "options:ModelsOptions",
    ),
    Command(
        "samples",
        "recordings and a client to try",
        "Show where the bundled recordings and the client are, or copy them.",
        "samples --copy here",
        "samples",
        "options:SamplesOptions",
    ),
    Command(
        "warm",
        "compile the kernels before the first run",
        "Compile the embedded pair's kernels for this processor and keep them on disk.",
        "warm",
        "warm",
        "options:WarmOptions",
    ),
)
COMMANDS = {command.name: command for command in _ALL}

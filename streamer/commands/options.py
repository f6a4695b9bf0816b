"""The options of commands that do one thing and end, beside Config's; each declared once.

Light on purpose: `--help` reads this file and loads no model's code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamer.config import ConfigError
from streamer.core.declare import REQUIRED, Group, check, option, same

OUTPUT = Group("what is shown", "--json")
BATCH = Group("many recordings", "--jobs 2")
LOGS = Group("logs", "--log log.jsonl")
PIPELINE = Group("options from a file", "--pipeline pipelines/edge.toml")
PREPARE = Group("a large model", "--prepare DIRECTORY --engine int4")
TABLE = Group("the table", "--out labels.csv")


class Checked:
    """Checks its own fields when it is made. Raises ConfigError."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True)
class DescribeOptions(Checked):
    """Of `streamer describe`."""

    files: tuple[str, ...] = option(
        REQUIRED,
        BATCH,
        "a recording, or a directory of recordings; - for a WAV on stdin",
        metavar="FILE",
        is_argument=True,
    )
    jobs: int = option(
        1,
        BATCH,
        "recordings at once; with more than 1, lines come as recordings are done",
        "2",
        low=1,
        high=64,
    )
    channels: Literal["mixed", "apart"] = option(
        "mixed",
        BATCH,
        "apart: each channel is a speaker of its own, with a description of its own",
        "apart",
    )
    names: bool = option(
        False, BATCH, "FILE: before each sentence, also where only one is given or with --quiet"
    )
    json: bool = option(
        False,
        OUTPUT,
        "one JSON object per recording on stdout, nothing else; one that failed has `error`",
    )
    quiet: bool = option(False, OUTPUT, "the sentences only: no names, no times, no numbers")
    measures: bool = option(
        False,
        OUTPUT,
        "numbers beside the words, which keep to them: a table below each sentence, `measures` in "
        "each JSON object",
    )
    timeline: str | None = option(
        None,
        OUTPUT,
        "the recording over time: pitch, level, rate, pauses, turns; FILE in .json, .vtt or .png",
        "s.png",
        metavar="FILE",
    )
    verbose: bool = option(
        False, OUTPUT, "a line of numbers on stderr for each recording", short="-v"
    )
    pipeline: str | None = option(
        None,
        PIPELINE,
        "a TOML file of the model's options; those given here win",
        "pipelines/edge.toml",
        metavar="FILE",
    )
    log: str | None = option(
        None, LOGS, "append structured logs (JSON lines) to FILE", "log.jsonl", metavar="FILE"
    )
    log_text: bool = option(False, LOGS, "let the log hold the sentences, too")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.log_text and not self.log:
            told = "--log-text is given without --log FILE"
            raise ConfigError(f"{told}; say where the log goes, or leave it out")


@dataclass(frozen=True, kw_only=True)
class LabelOptions(Checked):
    """Of `streamer label`."""

    files: tuple[str, ...] = option(
        REQUIRED,
        BATCH,
        "a recording, or a directory of recordings",
        metavar="FILE",
        is_argument=True,
    )
    out: str = option(
        REQUIRED,
        TABLE,
        "the table: .jsonl grows as recordings are done; .csv and .parquet come at the end",
        "labels.jsonl",
        metavar="FILE",
    )
    jobs: int | None = option(
        None, BATCH, "processes", "2", low=1, high=64, unset="one for each core"
    )
    pipeline: str | None = same(DescribeOptions, "pipeline")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.out.lower().endswith((".jsonl", ".csv", ".parquet")):
            raise ConfigError(f"--out is {self.out}; give a name in .jsonl, .csv or .parquet")
        if "-" in self.files:
            raise ConfigError("label reads files; give a file or a directory, not -")


@dataclass(frozen=True, kw_only=True)
class ModelsOptions(Checked):
    """Of `streamer models`."""

    directories: tuple[str, ...] = option(
        (),
        OUTPUT,
        "a model of your own, or a directory of such; the embedded pair and the hub's cache "
        "are always listed",
        metavar="DIRECTORY",
        is_argument=True,
    )
    json: bool = option(False, OUTPUT, "one JSON object on stdout, with every level's name")
    prepare: str | None = option(
        None,
        PREPARE,
        "convert this model for the engine once, into STREAMER_CACHE or the user's cache, so that "
        "it loads in seconds; lists nothing",
        "DIRECTORY",
        metavar="SPEC",
    )
    engine: Literal["int8", "int4"] = option(
        "int8", PREPARE, "8 or 4 bits per weight, as in `streamer describe`", "int4"
    )


@dataclass(frozen=True, kw_only=True)
class WarmOptions(Checked):
    """Of `streamer warm`."""


@dataclass(frozen=True, kw_only=True)
class SamplesOptions(Checked):
    """Of `streamer samples`."""

    copy: str | None = option(
        None,
        Group("where it goes", "--copy here"),
        "copy recordings and clients into DIR, which is made where it does not exist",
        "here",
        metavar="DIR",
        unset="none: only their paths are told",
    )

"""The options of every command.

Light on purpose: `--help` reads this file and loads no model's code.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

from streamer.config import Config, ConfigError, check_engine
from streamer.core.declare import (
    REQUIRED,
    DeviceName,
    EngineName,
    device_option,
    edge_option,
    engine_option,
    option,
)
from streamer.core.measures.speech_measures import REFERENCE_HZ, PitchReference

LISTEN = "address and access"
FEW_BITS = ("int8", "int4")


def reference_of(text: str | None) -> PitchReference:
    """--pitch-reference as the API takes it. Raises ConfigError."""
    if text is None or text == "auto":
        return text  # type: ignore[return-value]
    low, high = REFERENCE_HZ
    with suppress(ValueError):
        if low <= float(text) <= high:
            return float(text)
    raise ConfigError(f"pitch_reference is {text!r}; give {low:g} to {high:g} Hz, or auto")


files_option = partial(
    option,
    REQUIRED,
    "a recording, or a directory of recordings; - for a recording on stdin",
    metavar="FILE",
    positional=True,
)
pipeline_option = partial(
    option,
    None,
    "a TOML file of the model's options; the command line overrides it",
    metavar="FILE",
)
port_option = partial(
    option, help="port to listen on; 0: any free one", group=LISTEN, ge=0, le=65_535, metavar="P"
)


@dataclass(frozen=True, kw_only=True)
class DescribeOptions:
    """Describe recordings: one sentence on stdout for each."""

    files: tuple[str, ...] = files_option()
    json: bool = option(False, "one JSON object per recording; a failed one has `error`")
    quiet: bool = option(False, "the sentences only, without names and warnings")
    measures: bool = option(False)
    """also the numbers: a table below each sentence, or `measures` in each JSON object"""
    timeline: str | None = option(None, metavar="FILE")
    """pitch, level, rate and pauses over time; FILE in .json, .vtt, .TextGrid or .png. .png needs
    pip install '.[plot]'"""
    verbose: bool = option(False, short="-v")
    """times, and how much of the sentence is verified, on stderr"""
    intervals: str | None = option(None, metavar="FILE")
    """measures of each interval of FILE: .srt, .vtt, .TextGrid, or whisper's .json"""
    pitch_reference: str | None = option(None, metavar="HZ", unset="none")
    """a voice's usual pitch in Hz, to also tell low and high for this voice; auto: the median of
    the turns of a recording over 60 s"""
    filled_pauses: bool = option(False)
    """count filled pauses (um, 嗯) by their sound; it misses up to about half of them"""
    channels: Literal["mixed", "apart"] = option("mixed")
    """apart: each channel is a speaker with a description of their own"""
    track: int | None = option(None, "sound track of a film, from 0", unset="the default one", ge=0)
    jobs: int = option(1, "recordings at once; each is shown when it is done", ge=1, le=64)
    pipeline: str | None = pipeline_option()


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Compare two recordings: both numbers of each attribute, and their difference."""

    files: tuple[str, ...] = option(REQUIRED, metavar="FILE", positional=True)
    """two recordings: the first take, the second"""
    pitch_reference: float | None = option(None, ge=30, le=1000)
    """a voice's usual pitch in Hz, to also tell low and high for this voice"""
    json: bool = option(False, "JSON on stdout, nothing else")

    def __post_init__(self) -> None:
        if len(self.files) != 2:
            raise ConfigError(f"compare takes two recordings, not {len(self.files)}")


@dataclass(frozen=True, kw_only=True)
class ListenOptions:
    """Describe the microphone: gauges while you speak, a sentence at each pause. Needs
    `pip install '.[listen]'`."""

    microphone: str | None = option(None, metavar="D", unset="the system's")
    """its number, or a part of its name"""


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """Label a corpus: one row for each recording, with its sentence and its measures."""

    files: tuple[str, ...] = files_option()
    out: str = option(REQUIRED, metavar="FILE")
    """the table: .jsonl grows row by row; .csv and .parquet are written at the end. .parquet needs
    pip install '.[parquet]'"""
    jobs: int | None = option(None, "processes", ge=1, le=64, unset="one for each core")
    intervals: Literal["srt", "vtt", "TextGrid", "json"] | None = option(None)
    """rows of measures of the intervals in the file of this kind beside each recording, in place of
    sentences"""
    pipeline: str | None = pipeline_option()

    def __post_init__(self) -> None:
        if not self.out.lower().endswith((".jsonl", ".csv", ".parquet")):
            raise ConfigError(f"--out is {self.out}; give a name in .jsonl, .csv or .parquet")
        if "-" in self.files:
            raise ConfigError("label reads files; give a file or a directory, not -")


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions:
    """Write thresholds that keep a stated risk into a model's card."""

    files: tuple[str, ...] = option(REQUIRED, metavar="FILE", positional=True)
    """recordings of the kind that the gate will meet, or directories of them"""
    risk: float = option(REQUIRED, gt=0, lt=1, metavar="R")
    """expected share of blocks that the cloud would change but is not asked about"""
    confidence: float = option(0.0, ge=0, le=0.999, metavar="C")
    """keep the risk with this confidence, too, e.g. 0.9; 0: in expectation only"""
    language: str | None = option(None, metavar="L", unset="the edge's first")
    """of the sentences; another language than the first gets thresholds of its own"""
    edge: str = edge_option()
    cloud: str = option("embedded", metavar="SPEC")
    """the model itself: embedded, a directory, or a hub id"""
    out: str | None = option(
        None,
        metavar="DIR_OR_FILE",
        unset="the edge's own streamer.json, except for the embedded one",
    )
    """DIR: a copy of the edge with the new thresholds; FILE.json: its card alone"""
    json: bool = option(False, "JSON on stdout, nothing else")

    def __post_init__(self) -> None:
        if not Config(cloud=self.cloud).loads_cloud:
            told = "calibration needs the model itself: a directory or a hub id"
            raise ConfigError(f"--cloud is {self.cloud}; {told}")


@dataclass(frozen=True, kw_only=True)
class ModelsOptions:
    """List the models and devices that can be used here."""

    files: tuple[str, ...] = option((), metavar="DIR", positional=True)
    """also the model of this directory, or the models in it; the embedded pair and the hub's cache
    are always listed"""
    json: bool = option(False, "JSON on stdout, nothing else")


@dataclass(frozen=True, kw_only=True)
class WarmOptions:
    """Prepare the first run, once. The embedded pair: compile its kernels for this processor. A
    large model: convert it for int8 or int4 into STREAMER_CACHE or the user's cache, so that it
    loads in seconds."""

    cloud: str = option("embedded", "embedded, a model directory, or a hub id", metavar="SPEC")
    engine: EngineName = engine_option()

    def __post_init__(self) -> None:
        if self.cloud != "embedded" and self.engine not in FEW_BITS:
            told = "a large model is prepared for int8 or int4; give one of them"
            raise ConfigError(f"--engine is {self.engine}; {told}")


@dataclass(frozen=True, kw_only=True)
class SamplesOptions:
    """Show where the bundled recordings and the client are, or copy them."""

    out: str | None = option(None, metavar="DIR", unset="none: only their paths are shown")
    """copy recordings and the client into DIR, which is made if it does not exist"""


@dataclass(frozen=True, kw_only=True)
class AddressOptions:
    """Options of every command that listens."""

    host: str = option("127.0.0.1", group=LISTEN, metavar="H")
    """address to listen on; a public one needs --api-key"""
    port: int = port_option(8765)
    api_key: str | None = option(
        None, group=LISTEN, metavar="K", unset="STREAMER_API_KEY, if it is set"
    )
    """clients must send it; several, one for each tenant, with commas between them"""
    cert: str | None = option(None, group=LISTEN, metavar="FILE", unset="none: no TLS")
    """TLS certificate chain, PEM"""
    key: str | None = option(None, group=LISTEN, metavar="FILE")
    """its private key, PEM without a password"""


@dataclass(frozen=True, kw_only=True)
class DoorOptions(AddressOptions):
    """Options of both servers."""

    max_sessions: int = option(16, "sessions at once; further ones get 503", LISTEN, ge=1, le=1_024)
    max_per_key: int | None = option(None, group=LISTEN, ge=1, le=1_024, unset="as many as in all")
    """sessions at once of each API key"""
    name: str | None = option(None, group=LISTEN, metavar="N")
    """name of this process among its kind; its session ids begin with it"""
    resume_s: float = option(30.0, group=LISTEN, ge=0, le=300)
    """seconds in which a lost client may return"""

    def __post_init__(self) -> None:
        if self.name and not re.fullmatch("[a-z0-9][a-z0-9-]{0,62}", self.name):
            told = "lower-case letters, digits and -, at most 63, as in a host's name"
            raise ConfigError(f"--name is {self.name!r}; give {told}")


@dataclass(frozen=True, kw_only=True)
class ServeOptions(DoorOptions):
    """Serve OpenAI Realtime at /v1/realtime: audio in, text out. The page is at /."""

    allow_origin: tuple[str, ...] = option((), group=LISTEN, metavar="O", unset="its own page")
    """also accept pages of this Origin; may be repeated"""
    live_updates: float | None = option(None, ge=0.5, le=3600, metavar="S")
    """a sentence every S seconds of a turn, for clients that ask for events"""
    coach: str | None = option(None, metavar="HOW", unset="its defaults")
    """thresholds of the coach, for clients that ask for one: FILE.toml, or NAME=VALUE with commas
    between them"""
    pipeline: str | None = pipeline_option()


@dataclass(frozen=True, kw_only=True)
class VerifierOptions(DoorOptions):
    """Hold the cloud model and verify the drafts of edges elsewhere."""

    port: int = port_option(8766)
    max_sessions: int = option(32, "turns at once; further ones are rejected", LISTEN, ge=1, le=255)
    cloud: str = option("embedded", metavar="SPEC")
    """the model: embedded, a model directory, or a hub id"""
    device: DeviceName = device_option()
    engine: EngineName = engine_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_engine(self.engine, self.device)

"""The options of every command.

Light on purpose: `--help` reads this file and loads no model's code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamer.config import Config, ConfigError, check_engine
from streamer.core.declare import REQUIRED, DeviceName, EngineName, option
from streamer.core.measures.speech_measures import REFERENCE_HZ, PitchReference

LISTEN = "address and access"
FEW_BITS = ("int8", "int4")
LOW_HZ, HIGH_HZ = REFERENCE_HZ


@dataclass(frozen=True, kw_only=True)
class DescribeOptions:
    """Describe recordings: one sentence on stdout for each."""

    files: tuple[str, ...] = option(REQUIRED, metavar="FILE", positional=True)
    json: bool = option(False)
    quiet: bool = option(False)
    measures: bool = option(False)
    timeline: str | None = option(None, metavar="FILE")
    verbose: bool = option(False, short="-v")
    intervals: str | None = option(None, metavar="FILE")
    pitch_reference: PitchReference = option(None, ge=LOW_HZ, le=HIGH_HZ, also=" Hz, or auto")
    filled_pauses: bool = option(False)
    channels: Literal["mixed", "apart"] = option("mixed")
    track: int | None = option(None, unset="the default one", ge=0)
    jobs: int = option(1, ge=1, le=64)
    pipeline: str | None = option(None, metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Compare two recordings: both numbers of each attribute, and their difference."""

    files: tuple[str, str] = option(REQUIRED, metavar="FILE", positional=True)
    pitch_reference: PitchReference = option(None, ge=LOW_HZ, le=HIGH_HZ, also=" Hz, or auto")
    json: bool = option(False)


@dataclass(frozen=True, kw_only=True)
class ListenOptions:
    """Describe the microphone: gauges while you speak, a sentence at each pause. Needs
    `pip install '.[listen]'`."""

    microphone: str | None = option(None, metavar="D", unset="the system's")


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """Label a corpus: one row for each recording, with its sentence and its measures."""

    files: tuple[str, ...] = option(REQUIRED, metavar="FILE", positional=True)
    out: str = option(REQUIRED, metavar="FILE")
    jobs: int | None = option(None, ge=1, le=64, unset="one for each core")
    intervals: Literal["srt", "vtt", "TextGrid", "json"] | None = option(None)
    pipeline: str | None = option(None, metavar="FILE")

    def __post_init__(self) -> None:
        if not self.out.lower().endswith((".jsonl", ".csv", ".parquet")):
            raise ConfigError(f"--out is {self.out}; give a name in .jsonl, .csv or .parquet")
        if "-" in self.files:
            raise ConfigError("label reads files; give a file or a directory, not -")


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions:
    """Write thresholds that keep a stated risk into a model's card."""

    files: tuple[str, ...] = option(REQUIRED, metavar="FILE", positional=True)
    risk: float = option(REQUIRED, gt=0, lt=1, metavar="R")
    confidence: float = option(0.0, ge=0, le=0.999, metavar="C")
    language: str | None = option(None, metavar="L", unset="the edge's first")
    edge: str = option("embedded", metavar="SPEC")
    cloud: str = option("embedded", metavar="SPEC")
    out: str | None = option(None, metavar="DIR", unset="the edge itself, unless it is embedded")

    def __post_init__(self) -> None:
        if not Config(cloud=self.cloud).loads_cloud:
            told = "calibration needs the model itself: a directory or a hub id"
            raise ConfigError(f"--cloud is {self.cloud}; {told}")


@dataclass(frozen=True, kw_only=True)
class ModelsOptions:
    """List the models and devices that can be used here."""

    files: tuple[str, ...] = option((), metavar="DIR", positional=True)
    json: bool = option(False)


@dataclass(frozen=True, kw_only=True)
class WarmOptions:
    """Prepare the first run, once. The embedded pair: compile its kernels for this processor. A
    large model: convert it for int8 or int4 into STREAMER_CACHE or the user's cache, so that it
    loads in seconds."""

    cloud: str = option("embedded", metavar="SPEC")
    engine: EngineName = option("fast")

    def __post_init__(self) -> None:
        if self.cloud != "embedded" and self.engine not in FEW_BITS:
            told = "a large model is prepared for int8 or int4; give one of them"
            raise ConfigError(f"--engine is {self.engine}; {told}")


@dataclass(frozen=True, kw_only=True)
class SamplesOptions:
    """List the paths of the bundled recordings and the client."""


@dataclass(frozen=True, kw_only=True)
class AddressOptions:
    """Options of every command that listens."""

    host: str = option("127.0.0.1", LISTEN, metavar="H")
    port: int = option(8765, LISTEN, ge=0, le=65_535, metavar="P")
    api_key: str | None = option(None, LISTEN, metavar="K", unset="STREAMER_API_KEY, if set")
    cert: str | None = option(None, LISTEN, metavar="FILE", unset="none: no TLS")
    key: str | None = option(None, LISTEN, metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class DoorOptions(AddressOptions):
    """Options of both servers."""

    max_sessions: int = option(16, LISTEN, ge=1, le=1_024)
    max_per_key: int | None = option(None, LISTEN, ge=1, le=1_024, unset="as many as in all")
    name: str | None = option(None, LISTEN, metavar="N", pattern="^[a-z0-9][a-z0-9-]{0,62}$")
    resume_s: float = option(30.0, LISTEN, ge=0, le=300)


@dataclass(frozen=True, kw_only=True)
class ServeOptions(DoorOptions):
    """Serve OpenAI Realtime at /v1/realtime: audio in, text out. The page is at /."""

    allow_origin: tuple[str, ...] = option((), LISTEN, metavar="O", unset="its own page")
    live_updates: float | None = option(None, ge=0.5, le=3600, metavar="S")
    coach: str | None = option(None, metavar="HOW", unset="its defaults")
    pipeline: str | None = option(None, metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class VerifierOptions(DoorOptions):
    """Hold the cloud model and verify the drafts of edges elsewhere."""

    port: int = option(8766, LISTEN, ge=0, le=65_535, metavar="P")
    max_sessions: int = option(32, LISTEN, ge=1, le=255)
    cloud: str = option("embedded", metavar="SPEC")
    device: DeviceName = option("cpu")
    engine: EngineName = option("fast")

    def __post_init__(self) -> None:
        check_engine(self.engine, self.device)

"""The options of commands that listen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from streamer.commands.options import Pipeline
from streamer.config import Config, ConfigError, Device, Engine, check_engine
from streamer.core.declare import Checked, about
from streamer.core.installed import missing
from streamer.extras import load
from streamer.stages.events import CoachOptions

REPLICA_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
LISTEN = "address and access"
FOR_TRACES = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")
Port = Annotated[
    int, about("port to listen on; 0: any free one", "9000", LISTEN, ge=0, le=65_535, metavar="P")
]


@dataclass(frozen=True, kw_only=True)
class ListenOptions(Checked):
    """Options of every command that listens."""

    host: Annotated[
        str,
        about("address to listen on; a public one needs --api-key", "0.0.0.0", LISTEN, metavar="H"),
    ] = "127.0.0.1"
    port: Port = 8765
    api_key: Annotated[
        str | None,
        about(
            "clients must send it; several, one for each tenant, with commas between them",
            "secret",
            LISTEN,
            metavar="K",
            unset="STREAMER_API_KEY, if it is set",
        ),
    ] = None
    cert: Annotated[
        str | None,
        about(
            "TLS certificate chain, PEM", "chain.pem", LISTEN, metavar="FILE", unset="none: no TLS"
        ),
    ] = None
    key: Annotated[
        str | None,
        about("its private key, PEM without a password", "key.pem", LISTEN, metavar="FILE"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class DoorOptions(ListenOptions):
    """Options of both servers."""

    max_sessions: Annotated[
        int, about("sessions at once; further ones get 503", "32", LISTEN, ge=1, le=1_024)
    ] = 16
    max_per_key: Annotated[
        int | None,
        about("the same for each API key", "8", LISTEN, ge=1, le=1_024, unset="as many as in all"),
    ] = None
    name: Annotated[
        str | None,
        about(
            "this process among others of its kind; its session ids begin with it",
            "server-1",
            LISTEN,
            metavar="N",
        ),
    ] = None
    resume_s: Annotated[
        float, about("seconds in which a lost client may return", "60", LISTEN, ge=0, le=300)
    ] = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name and not REPLICA_NAME.fullmatch(self.name):
            told = "lower-case letters, digits and -, at most 63, as in a host's name"
            raise ConfigError(f"--name is {self.name!r}; give {told}")


@dataclass(frozen=True, kw_only=True)
class ServeOptions(DoorOptions):
    """Options of `streamer serve`."""

    allow_origin: Annotated[
        tuple[str, ...],
        about(
            "also accept pages of this Origin; may be repeated",
            "https://example.org",
            LISTEN,
            metavar="O",
            unset="its own page",
        ),
    ] = ()
    live_updates: Annotated[
        float | None,
        about(
            "a sentence every S seconds of a turn, for clients that ask for events",
            "3",
            ge=0.5,
            le=3600,
            metavar="S",
        ),
    ] = None
    coach: Annotated[
        str | None,
        about(
            "thresholds of the coach, for clients that ask for one: FILE.toml, or NAME=VALUE with "
            "commas between them",
            "fast_ratio=1.3,silence_s=8",
            metavar="HOW",
            unset="its defaults",
        ),
    ] = None
    traces: Annotated[
        bool,
        about(
            "send an OpenTelemetry span for each turn, by OTLP over HTTP; its address is in "
            "OTEL_EXPORTER_OTLP_ENDPOINT"
        ),
    ] = False
    pipeline: Pipeline = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.coaching()
        if self.traces and (why := missing("--traces", *FOR_TRACES)) is not None:
            raise ConfigError(why)

    def coaching(self) -> CoachOptions | None:
        """The coach of clients that ask for one. Raises ConfigError."""
        return load("coach").parse(self.coach) if self.coach is not None else None


@dataclass(frozen=True, kw_only=True)
class VerifierOptions(DoorOptions):
    """Options of `streamer verifier`."""

    port: Port = 8766
    max_sessions: Annotated[
        int, about("turns at once; further ones get 503", "64", LISTEN, ge=1, le=255)
    ] = 32
    cloud: Annotated[
        str,
        about("the model: embedded, a model directory, or a hub id", "embedded", metavar="SPEC"),
    ] = "embedded"
    device: Device = "cpu"
    engine: Engine = "fast"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_engine(self.engine, self.device)
        if not Config(cloud=self.cloud).has_cloud_here:
            told = "a verifier holds the model itself: give a model"
            raise ConfigError(f"cloud is {self.cloud!r}; {told}")

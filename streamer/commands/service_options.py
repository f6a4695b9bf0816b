"""The options of commands that listen, each declared once (core/declare.py)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from streamer.commands.options import Checked, DescribeOptions
from streamer.config import Config, ConfigError, check_engine
from streamer.core.choices import DeviceName, EngineName
from streamer.core.coach.coach import Coach
from streamer.core.declare import Group, option, same

DOOR = Group("who may connect", "--host 0.0.0.0 --api-key KEY --cert chain.pem --key key.pem")
CLIENTS = Group("for clients", "--live-updates 3")
MODEL = Group("the model", "--cloud embedded --engine stable")
REPLICA_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@dataclass(frozen=True, kw_only=True)
class ListenOptions(Checked):
    """What everything that listens shares."""

    host: str = option(
        "127.0.0.1",
        DOOR,
        "address to listen on; a public one needs --api-key",
        "0.0.0.0",
        metavar="H",
    )
    port: int = option(
        8765, DOOR, "port to listen on, 0 takes a free one", "9000", low=0, high=65_535, metavar="P"
    )
    api_key: str | None = option(
        None,
        DOOR,
        "who connects must show it; several with commas between, one for each tenant",
        "secret",
        metavar="K",
        unset="STREAMER_API_KEY, if it is set",
    )
    cert: str | None = option(
        None, DOOR, "TLS certificate chain, PEM", "chain.pem", metavar="FILE", unset="none: no TLS"
    )
    key: str | None = option(
        None, DOOR, "its private key, PEM without a password", "key.pem", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class DoorOptions(ListenOptions):
    """What both servers share."""

    max_sessions: int = option(16, DOOR, "sessions at once; then 503", "32", low=1, high=1_024)
    max_per_key: int | None = option(
        None,
        DOOR,
        "sessions at once for each API key; then 503",
        "8",
        low=1,
        high=1_024,
        unset="all that there are",
    )
    name: str | None = option(
        None,
        DOOR,
        "this process among others of its kind; ids of its sessions begin with it",
        "server-1",
        metavar="N",
        unset="none",
    )
    resume_s: float = option(
        30.0, DOOR, "seconds a lost client may take to come back", "60", low=0, high=300
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name and not REPLICA_NAME.fullmatch(self.name):
            told = "lower-case letters, digits and -, at most 63, as in a host's name"
            raise ConfigError(f"--name is {self.name!r}; give {told}")


@dataclass(frozen=True, kw_only=True)
class ServeOptions(DoorOptions):
    """Of `streamer serve`."""

    allow_origin: tuple[str, ...] = option(
        (),
        CLIENTS,
        "a page's Origin that may connect, again for each",
        "https://example.org",
        metavar="O",
        unset="its own page",
    )
    live_updates: float | None = option(
        None,
        CLIENTS,
        "a sentence every S seconds of a turn, for clients that ask for events",
        "3",
        low=0.5,
        high=3600,
        metavar="S",
    )
    coach: str | None = option(
        None,
        CLIENTS,
        "how the coach judges, for clients that ask for one: FILE.toml, or NAME=VALUE with "
        "commas; the coach's own table lists the names",
        "fast_ratio=1.3,silence_s=8",
        metavar="HOW",
        unset="its defaults",
    )
    pipeline: str | None = same(DescribeOptions, "pipeline")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.coaching()

    def coaching(self) -> Coach | None:
        """The coach of clients that ask for one. Raises ConfigError."""
        return Coach.parse(self.coach) if self.coach is not None else None


@dataclass(frozen=True, kw_only=True)
class VerifierOptions(DoorOptions):
    """Of `streamer verifier`."""

    port: int = same(DoorOptions, "port", 8766)
    max_sessions: int = option(32, DOOR, "turns at once; then 503", "64", low=1, high=255)
    cloud: str = option(
        "embedded",
        MODEL,
        "the model: embedded, a model directory, or a hub id",
        "embedded",
        metavar="SPEC",
    )
    device: DeviceName = same(Config, "device", group=MODEL)
    engine: EngineName = same(Config, "engine", group=MODEL)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_engine(self.engine, self.device)
        if not Config(cloud=self.cloud).has_cloud_here:
            told = "a verifier holds the model itself: give a model"
            raise ConfigError(f"cloud is {self.cloud!r}; {told}")

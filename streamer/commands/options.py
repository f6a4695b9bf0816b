"""The options of each command, beside those of Config. Each is declared once (streamer/options.py).

Light on purpose: `--help` reads this file and loads no model's code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from streamer.config import Config, ConfigError, check_engine, has_host
from streamer.core.choices import DeviceName, EngineName
from streamer.core.coach.coach import Coach
from streamer.options import REQUIRED, Group, check, option, same

OUTPUT = Group("what is shown", "--json")
BATCH = Group("many recordings", "--jobs 2")
LOGS = Group("logs", "--log log.jsonl")
PIPELINE = Group("options from a file", "--pipeline pipelines/edge.toml")
DOOR = Group("who may connect", "--host 0.0.0.0 --api-key KEY --cert chain.pem --key key.pem")
CLIENTS = Group("for clients", "--live-updates 3")
RISK = Group("the promise", "--risk 0.05 --confidence 0.9")
PREPARE = Group("a large model", "--prepare DIRECTORY --engine int4")
PAIR = Group("the pair", "--edge myedge --risk 0.05")
MODEL = Group("the model", "--cloud embedded --engine stable")
REPLICAS = Group("whom it sends clients to", "--replicas ws://127.0.0.1:8765")
FLEET = Group("the fleet", "--config pipelines/fleet.toml")
REPLICA_SCHEMES = ("ws://", "wss://", "http://", "https://")
REPLICA_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
RESULT = Group("where it goes", "--risk 0.05 --out myedge")
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
        "numbers beside the words: a table below each sentence, `measures` in each JSON object",
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
            raise ConfigError(
                "--log-text is given without --log FILE; say where the log goes, or leave it out"
            )


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
        if self.cloud == "none" or Config(cloud=self.cloud).is_away:
            raise ConfigError(
                f"cloud is {self.cloud!r}; a verifier holds the model itself: give a model"
            )


@dataclass(frozen=True, kw_only=True)
class DirectorOptions(ListenOptions):
    """Of `streamer director`, and the table [director] of fleet.toml."""

    port: int = same(ListenOptions, "port", 8764)
    replicas: tuple[str, ...] = option(
        (),
        REPLICAS,
        "ws://HOST:PORT of a replica, again for each; or http://HOST:PORT of another director, "
        "whose list is followed",
        "ws://10.0.0.7:8765",
        metavar="URL",
    )
    ca: str | None = option(
        None,
        REPLICAS,
        "PEM file of the authority that signed the replicas' certificates",
        "chain.pem",
        metavar="FILE",
        unset="the system's",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for url in self.replicas:
            if not url.startswith(REPLICA_SCHEMES) or not has_host(url):
                told = "give ws://HOST:PORT of a replica, or http://HOST:PORT of a director"
                raise ConfigError(f"--replicas is {url!r}; {told}")


@dataclass(frozen=True, kw_only=True)
class FleetOptions(Checked):
    """Of `streamer fleet`."""

    config: str = option(
        REQUIRED, FLEET, "what runs, and how many of it", "pipelines/fleet.toml", metavar="FILE"
    )
    down: bool = option(False, FLEET, "drain and end the replicas of a cluster, then exit")


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(Checked):
    """Of `streamer calibrate`."""

    clips: tuple[str, ...] = option(
        REQUIRED,
        RISK,
        "recordings of the kind the gate will meet, or directories of such",
        metavar="CLIP",
        is_argument=True,
    )
    risk: float = option(
        REQUIRED,
        RISK,
        "expected share of blocks that the cloud would change but is not asked about",
        "0.05",
        low=0,
        high=1,
        is_open=True,
        metavar="R",
    )
    quality_risk: float | None = option(
        None,
        RISK,
        "the same for preset quality",
        "0.02",
        low=0,
        high=1,
        is_open=True,
        metavar="R",
        unset="half of --risk",
    )
    confidence: float = option(
        0.0,
        RISK,
        "e.g. 0.9: keep the risk with this confidence, too; 0: in expectation alone",
        "0.9",
        low=0,
        high=0.999,
        metavar="C",
    )
    by_folder: bool = option(
        False, RISK, "keep the risk for each folder of clips by itself, e.g. short and long ones"
    )
    signal: Literal["auto", "entropy", "margin", "log_prob", "surprise"] = option(
        "auto", RISK, "what the gate looks at; auto: a part of the clips chooses", "entropy"
    )
    edge: str = same(Config, "edge", group=PAIR)
    cloud: str = option(
        "embedded",
        PAIR,
        "the model itself: embedded, a model directory, or a hub id",
        "embedded",
        metavar="SPEC",
    )
    out: str | None = option(
        None,
        RESULT,
        "DIR: a copy of the edge with the new thresholds; FILE.json: its card alone",
        "myedge",
        metavar="DIR_OR_FILE",
        unset="the edge's own streamer.json, where it is not the embedded one",
    )
    force: bool = option(False, RESULT, "replace the embedded edge's own thresholds")
    plot: str | None = option(
        None,
        RESULT,
        "the curves as a picture",
        "curves.png",
        metavar="FILE",
        unset="calibration.png in that directory, or FILE.png",
    )
    json: bool = option(False, RESULT, "one JSON object on stdout")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cloud == "none" or Config(cloud=self.cloud).is_away:
            told = "calibration needs the model itself: a directory or a hub id"
            raise ConfigError(f"--cloud is {self.cloud}; {told}")


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

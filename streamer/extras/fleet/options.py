"""Options of `streamer fleet` and `streamer director`, and fleet.toml: what runs, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from streamer.commands.options import AddressOptions, ServeOptions, VerifierOptions, port_option
from streamer.config import Config, ConfigError, has_host
from streamer.core.declare import (
    REQUIRED,
    Checked,
    check_known,
    did_you_mean,
    option,
    read_toml,
    taken,
)

NO_KEYS = {"host", "name"}  # set per replica
TABLES_OF_FILE = ("ray", "director", "server", "verifier")
MAX_PORT = 65_535
OF_THE_DIRECTOR = ("api_key", "cert", "key")  # they hold for all replicas
REPLICA_SCHEMES = ("ws://", "wss://")
LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class DirectorOptions(AddressOptions):
    """Send each client to a server or verifier with room. No Ray is needed."""

    port: int = port_option(8764)
    replicas: tuple[str, ...] = option(
        (), "ws://HOST:PORT of a replica, may be repeated", metavar="URL"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for url in self.replicas:
            if not url.startswith(REPLICA_SCHEMES) or not has_host(url):
                raise ConfigError(f"--replicas is {url!r}; give ws://HOST:PORT of a replica")
            if self.replicas.count(url) > 1:
                raise ConfigError(f"--replicas has {url} twice; each is another replica")


@dataclass(frozen=True, kw_only=True)
class FleetOptions(Checked):
    """Run servers and verifiers as a fleet: start, scale, restart, and send clients to them. Needs
    `pip install '.[scale]'`."""

    pipeline: str = option(
        REQUIRED, "fleet.toml: what runs, and how many replicas", metavar="FILE", positional=True
    )
    down: bool = option(False, "drain and stop the replicas of a cluster, then exit")


@dataclass(frozen=True, kw_only=True)
class RayOptions(Checked):
    """The table [ray] of fleet.toml."""

    address: str = option(
        LOCAL, "local: a Ray of our own, on this machine; auto, or HOST:PORT: a cluster's", None
    )


@dataclass(frozen=True, kw_only=True)
class PlacingOptions(Checked):
    """How many replicas of one kind, and what each needs: in [server] and in [verifier], beside
    the options of `streamer serve` and `streamer verifier`."""

    least: int = option(1, "fewest replicas", None, ge=0, le=1000)
    most: int = option(1, "most replicas", None, ge=1, le=1000)
    port: int = option(
        9100, "port of the first replica; each further one has the next port", None, ge=1, le=65_535
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.least > self.most:
            raise ConfigError(f"least is {self.least}; it may be at most {self.most}, as most says")


OWNERS: dict[str, tuple[Any, ...]] = {
    "verifier": (VerifierOptions,),
    "server": (ServeOptions, Config),
}
TABLES = {"[ray]": RayOptions, "[server] and [verifier]": PlacingOptions}


@dataclass(frozen=True)
class KindOptions:
    """One kind of replica. given: the table without the keys of PlacingOptions."""

    placing: PlacingOptions
    given: Mapping[str, Any]


@dataclass(frozen=True)
class FleetConfig:
    """All of fleet.toml. kinds: those that run, verifiers first, since servers connect to them."""

    ray: RayOptions
    director: DirectorOptions
    kinds: Mapping[str, KindOptions]


def read(path: str | Path) -> FleetConfig:
    """Raises ConfigError."""
    return read_toml(path, of)


def of(tables: Mapping[str, Any]) -> FleetConfig:
    """From what a TOML file holds. Raises ConfigError."""
    for name, table in tables.items():
        if name not in TABLES_OF_FILE:
            known = ", ".join(TABLES_OF_FILE)
            meant = did_you_mean(name, TABLES_OF_FILE)
            raise ConfigError(f"unknown table [{name}]{meant}; known are {known}")
        if not isinstance(table, dict):
            raise ConfigError(f"{name} is no table; write [{name}] above its keys")
    kinds = {name: _kind(name, tables[name]) for name in OWNERS if name in tables}
    if not kinds:
        raise ConfigError("there is neither [server] nor [verifier]; a fleet needs one of them")
    ray, director = _table(RayOptions, tables, "ray"), _table(DirectorOptions, tables, "director")
    config = FleetConfig(ray, director, kinds)
    _check_director(director)
    _check_ports(config)
    return config


def _check_director(director: DirectorOptions) -> None:
    if director.replicas:
        told = "are of `streamer director`; a fleet's are those that it starts"
        raise ConfigError(f"[director] replicas {told}")
    if not director.port:
        raise ConfigError("[director] port is 0; servers must know it before it is there: give one")


def _check_ports(config: FleetConfig) -> None:
    """Raises ConfigError unless every possible replica has a port of its own."""
    ports = {"director": (config.director.port, config.director.port)}
    for name, kind in config.kinds.items():
        first = kind.placing.port
        last = first + kind.placing.most - 1
        if last > MAX_PORT:
            told = f"{first} is too high for {kind.placing.most} replicas"
            raise ConfigError(f"[{name}] port {told}; the last port is {MAX_PORT}")
        for other, (low, high) in ports.items():
            if first <= high and low <= last:
                told = f"{first} to {last} are its ports; [{other}] has {low} to {high}"
                raise ConfigError(f"[{name}] {told}; choose another port")
        ports[name] = (first, last)


def _table(owner: Any, tables: Mapping[str, Any], name: str) -> Any:
    given = tables.get(name, {})
    try:
        check_known(given, owner)
        return owner(**taken(owner, given))
    except ConfigError as error:
        raise ConfigError(f"[{name}] {error}") from None


def _kind(name: str, table: Mapping[str, Any]) -> KindOptions:
    owners = OWNERS[name]
    known = sorted({f.name for each in (PlacingOptions, *owners) for f in fields(each)} - NO_KEYS)
    for key in table:
        if key in OF_THE_DIRECTOR:
            told = "stands in [director], and holds for all replicas"
            raise ConfigError(f"[{name}] {key} {told}")
        if key not in known:
            told = f"unknown key {key!r}{did_you_mean(key, known)}"
            raise ConfigError(f"[{name}] {told}; docs/options.md has those that there are")
    placing = taken(PlacingOptions, table)
    given = {key: value for key, value in table.items() if key not in placing}
    try:
        for each in owners:
            each(**taken(each, given))
        return KindOptions(PlacingOptions(**placing), given)
    except ConfigError as error:
        raise ConfigError(f"[{name}] {error}") from None

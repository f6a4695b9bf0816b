"""Options of `streamer fleet` and `streamer director`, and fleet.toml: what runs, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from streamer.commands.options import AddressOptions, ServeOptions, VerifierOptions, port_option
from streamer.config import Config, ConfigError, has_host
from streamer.core.declare import REQUIRED, option, read_toml, taken

OF_THE_FLEET = {"host", "name", "api_key", "cert", "key"}  # the director's hold for all replicas
LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class DirectorOptions(AddressOptions):
    """Send each client to a server or verifier with room. No Ray is needed."""

    port: int = port_option(8764)
    replicas: tuple[str, ...] = option((), metavar="URL")
    """ws://HOST:PORT of a replica, may be repeated"""

    def __post_init__(self) -> None:
        for url in self.replicas:
            if not url.startswith(("ws://", "wss://")) or not has_host(url):
                raise ConfigError(f"--replicas is {url!r}; give ws://HOST:PORT of a replica")


@dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """Run servers and verifiers as a fleet: start, scale, restart, and send clients to them. Needs
    `pip install '.[scale]'`."""

    pipeline: str = option(REQUIRED, metavar="FILE", positional=True)
    """fleet.toml: what runs, and how many replicas"""
    down: bool = option(False, "drain and stop the replicas of a cluster, then exit")


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """The table [ray] of fleet.toml."""

    address: str = option(LOCAL, group=None)
    """local: a Ray of our own, on this machine; auto, or HOST:PORT: a cluster's"""


@dataclass(frozen=True, kw_only=True)
class PlacingOptions:
    """How many replicas of one kind, and what each needs: in [server] and in [verifier], beside
    the options of `streamer serve` and `streamer verifier`."""

    least: int = option(1, "fewest replicas", None, ge=0, le=1000)
    most: int = option(1, "most replicas", None, ge=1, le=1000)
    port: int = option(9100, group=None, ge=1, le=65_535)
    """port of the first replica; each further one has the next port"""

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise ConfigError(f"least is {self.least}; it may be at most {self.most}, as most says")


# table -> the options that its keys are. Verifiers first, since servers connect to them.
OWNERS: dict[str, tuple[Any, ...]] = {
    "ray": (RayOptions,),
    "director": (DirectorOptions,),
    "verifier": (PlacingOptions, VerifierOptions),
    "server": (PlacingOptions, ServeOptions, Config),
}
TABLES = {"[ray]": RayOptions, "[server] and [verifier]": PlacingOptions}


@dataclass(frozen=True)
class KindOptions:
    """One kind of replica. given: the table without the keys of PlacingOptions."""

    placing: PlacingOptions
    given: Mapping[str, Any]


@dataclass(frozen=True)
class FleetConfig:
    """All of fleet.toml. kinds: those that run, in the order of their start."""

    ray: RayOptions
    director: DirectorOptions
    kinds: Mapping[str, KindOptions]


def read(path: str | Path) -> FleetConfig:
    """Raises ConfigError."""
    return read_toml(path, of)


def of(tables: Mapping[str, Any]) -> FleetConfig:
    """From what a TOML file holds. Raises ConfigError."""
    for name, table in tables.items():
        if name not in OWNERS or not isinstance(table, dict):
            raise ConfigError(f"{name} is no table of a fleet; known are [{'], ['.join(OWNERS)}]")
    (ray,), (director,) = (_table(name, tables.get(name, {})) for name in ("ray", "director"))
    kinds = {}
    for name in ("verifier", "server"):
        if name in tables:
            placing, *_ = _table(name, tables[name])
            own = taken(PlacingOptions, tables[name])
            kinds[name] = KindOptions(
                placing, {key: value for key, value in tables[name].items() if key not in own}
            )
    if not kinds:
        raise ConfigError("there is neither [server] nor [verifier]; a fleet needs one of them")
    ports = [director.port]
    for kind in kinds.values():
        ports += range(kind.placing.port, kind.placing.port + kind.placing.most)
    if len(set(ports)) < len(ports):
        told = "[director], [server] and [verifier] share a port"
        raise ConfigError(f"{told}; each kind takes as many from its port on as `most` says")
    return FleetConfig(ray, director, kinds)


def _table(name: str, table: Mapping[str, Any]) -> list[Any]:
    """The options of a table, one of each owner. Raises ConfigError."""
    owners = OWNERS[name]
    known = {f.name for owner in owners for f in fields(owner)}
    known -= {"replicas"} if name == "director" else OF_THE_FLEET
    for key in table.keys() - known:
        told = f"unknown key {key!r}"
        raise ConfigError(f"[{name}] {told}; docs/options.md has those that there are")
    try:
        return [owner(**taken(owner, table)) for owner in owners]
    except ConfigError as error:
        raise ConfigError(f"[{name}] {error}") from None

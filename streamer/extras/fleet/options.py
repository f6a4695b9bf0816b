"""Options of `streamer fleet` and `streamer director`, and fleet.toml: what runs, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from streamer.commands.options import LISTEN, AddressOptions, ServeOptions, VerifierOptions
from streamer.config import Config, ConfigError, has_host
from streamer.core.declare import REQUIRED, option, taken

LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class DirectorOptions(AddressOptions):
    """Send each client to a server or verifier with room. No Ray is needed."""

    port: int = option(8764, LISTEN, ge=0, le=65_535, metavar="P")
    replicas: tuple[str, ...] = option((), metavar="URL")

    def __post_init__(self) -> None:
        for url in self.replicas:
            if not url.startswith(("ws://", "wss://")) or not has_host(url):
                raise ConfigError(f"--replicas is {url!r}; give ws://HOST:PORT of a replica")


@dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """Run servers and verifiers as a fleet: start, scale, restart, and send clients to them. Needs
    `pip install '.[scale]'`."""

    pipeline: str = option(REQUIRED, metavar="FILE", positional=True)
    down: bool = option(False)


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """The table [ray] of fleet.toml."""

    address: str = option(LOCAL, None, metavar="HOST:PORT")


@dataclass(frozen=True, kw_only=True)
class PlacingOptions:
    """How many replicas of one kind, and what each needs: in [server] and in [verifier], beside
    the options of `streamer serve` and `streamer verifier`."""

    least: int = option(1, None, ge=0, le=1000)
    most: int = option(1, None, ge=1, le=1000)
    port: int = option(9100, None, ge=1, le=65_535)

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise ConfigError(f"least is {self.least}; it may be at most {self.most}, as most says")


# table -> the options that its keys are, and keys that it may not have: the director's hold for all
# replicas. Verifiers come first, since servers connect to them.
OF_THE_FLEET = {"host", "name", "api_key", "cert", "key"}
OWNERS: dict[str, tuple[Any, ...]] = {
    "ray": (RayOptions,),
    "director": (DirectorOptions,),
    "verifier": (PlacingOptions, VerifierOptions),
    "server": (PlacingOptions, ServeOptions, Config),
}
WITHOUT = {"director": {"replicas"}, "verifier": OF_THE_FLEET, "server": OF_THE_FLEET}
TABLES = {"[ray]": RayOptions, "[server] and [verifier]": PlacingOptions}


@dataclass(frozen=True)
class FleetConfig:
    """All of fleet.toml. kinds: those that run, in the order of their start. tables: as given."""

    ray: RayOptions
    director: DirectorOptions
    kinds: Mapping[str, PlacingOptions]
    tables: Mapping[str, Mapping[str, Any]]


def of(tables: Mapping[str, Any]) -> FleetConfig:
    """From what a TOML file holds. Raises ConfigError."""
    for name, table in tables.items():
        if name not in OWNERS or not isinstance(table, dict):
            raise ConfigError(f"{name} is no table of a fleet; known are [{'], ['.join(OWNERS)}]")
    found = {name: _options_of(name, tables.get(name, {})) for name in OWNERS}
    kinds = {name: found[name] for name in ("verifier", "server") if name in tables}
    if not kinds:
        raise ConfigError("there is neither [server] nor [verifier]; a fleet needs one of them")
    ports = [found["director"].port]
    for placing in kinds.values():
        ports += range(placing.port, placing.port + placing.most)
    if len(set(ports)) < len(ports):
        told = "[director], [server] and [verifier] share a port"
        raise ConfigError(f"{told}; each kind takes as many from its port on as `most` says")
    return FleetConfig(found["ray"], found["director"], kinds, tables)


def _options_of(name: str, table: Mapping[str, Any]) -> Any:
    """The options of a table's first owner; the others' are checked. Raises ConfigError."""
    known = {f.name for owner in OWNERS[name] for f in fields(owner)} - WITHOUT.get(name, set())
    try:
        if unknown := table.keys() - known:
            told = f"unknown key {min(unknown)!r}"
            raise ConfigError(f"{told}; docs/options.md has those that there are")
        first, *_ = [owner(**taken(owner, table)) for owner in OWNERS[name]]
    except ConfigError as error:
        raise ConfigError(f"[{name}] {error}") from None
    return first

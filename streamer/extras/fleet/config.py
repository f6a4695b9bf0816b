"""fleet.toml: which replicas run, how many, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from streamer.commands.service_options import ServeOptions, VerifierOptions
from streamer.config import Config, ConfigError
from streamer.core.declare import check_known, did_you_mean, read_toml, taken
from streamer.extras.fleet.options import (
    DirectorOptions,
    PlacingOptions,
    RayOptions,
    ScalingOptions,
)

NO_KEYS = {"host", "port", "name", "rules"}  # set per replica; rules are for Python alone
TABLES = ("ray", "director", "server", "verifier", "scaling")
MAX_PORT = 65_535
OF_THE_DIRECTOR = ("api_key", "cert", "key")  # they hold for all replicas


@dataclass(frozen=True)
class KindOptions:
    """One kind of replica. given: the table without the keys of PlacingOptions."""

    placing: PlacingOptions
    options: ServeOptions | VerifierOptions
    given: Mapping[str, Any]


@dataclass(frozen=True)
class FleetConfig:
    """All of fleet.toml. server, verifier: None without such a table."""

    ray: RayOptions
    director: DirectorOptions
    scaling: ScalingOptions
    server: KindOptions | None
    verifier: KindOptions | None

    @property
    def kinds(self) -> dict[str, KindOptions]:
        """By name, verifiers first: servers connect to them at their start."""
        both = {"verifier": self.verifier, "server": self.server}
        return {name: kind for name, kind in both.items() if kind is not None}


def read(path: str | Path) -> FleetConfig:
    """Raises ConfigError."""
    return read_toml(path, of)


def of(tables: Mapping[str, Any]) -> FleetConfig:
    """From what a TOML file holds. Raises ConfigError."""
    for name, table in tables.items():
        if name not in TABLES:
            known = ", ".join(TABLES)
            raise ConfigError(
                f"unknown table [{name}]{did_you_mean(name, TABLES)}; known are {known}"
            )
        if not isinstance(table, dict):
            raise ConfigError(f"{name} is no table; write [{name}] above its keys")
    if not {"server", "verifier"} & tables.keys():
        raise ConfigError("there is neither [server] nor [verifier]; a fleet needs one of them")
    config = FleetConfig(
        _table(RayOptions, tables, "ray"),
        _table(DirectorOptions, tables, "director"),
        _table(ScalingOptions, tables, "scaling"),
        _kind(ServeOptions, Config, tables, "server"),
        _kind(VerifierOptions, None, tables, "verifier"),
    )
    _check_director(config.director)
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
        first = kind.placing.first_port
        last = first + kind.placing.most - 1
        if last > MAX_PORT:
            told = f"{first} is too high for {kind.placing.most} replicas"
            raise ConfigError(f"[{name}] first_port {told}; the last port is {MAX_PORT}")
        for other, (low, high) in ports.items():
            if first <= high and low <= last:
                told = f"{first} to {last} are its ports; [{other}] has {low} to {high}"
                raise ConfigError(f"[{name}] {told}; choose another first_port")
        ports[name] = (first, last)


def _table(owner: Any, tables: Mapping[str, Any], name: str) -> Any:
    given = tables.get(name, {})
    try:
        check_known(given, owner)
        return owner(**taken(owner, given))
    except ConfigError as error:
        raise ConfigError(f"[{name}] {error}") from None


def _kind(owner: Any, more: Any, tables: Mapping[str, Any], name: str) -> KindOptions | None:
    if name not in tables:
        return None
    table = tables[name]
    owners = [PlacingOptions, owner, *([more] if more else [])]
    known = sorted({f.name for each in owners for f in fields(each)} - NO_KEYS)
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
        options = owner(**taken(owner, given))
        if more is not None:
            more(**taken(more, given))
        return KindOptions(PlacingOptions(**placing), options, given)
    except ConfigError as error:
        raise ConfigError(f"[{name}] {error}") from None

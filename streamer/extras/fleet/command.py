"""`streamer fleet`: a director with replicas on Ray. `streamer director`: one without Ray. Their
options, and those of fleet.toml.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from streamer.commands.options import LISTEN, AddressOptions, ServeOptions, VerifierOptions
from streamer.commands.process import put, tell
from streamer.commands.serve import check_free, door_of, run_opened, shown_host
from streamer.config import Config, ConfigError, has_host
from streamer.core.declare import REQUIRED, option, read_toml, taken
from streamer.extras.fleet.director import Director, Known
from streamer.extras.fleet.manager import (
    LOCAL,
    Manager,
    PlacingOptions,
    Plan,
    RayPlacement,
    drain_all,
    node_host,
)

ANYWHERE = ("0.0.0.0", "::")
TOLD = "listening on ws{s}://{at} (a director)"


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


# OWNERS: table -> the options that its keys set. WITHOUT: table -> keys that it may not have, since
# the director's hold for all replicas. Verifiers come first, since servers connect to them.
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
    """From the content of a TOML file. Raises ConfigError."""
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


async def direct(options: DirectorOptions) -> int:
    """`streamer director`, until SIGTERM. Raises ConfigError, and Failed if the port is taken."""
    if not options.replicas:
        raise ConfigError("no --replicas; give ws://HOST:PORT of each")
    tls, key = door_of(options)
    known = {address: Known(address) for address in (url.rstrip("/") for url in options.replicas)}
    return await run_opened(options, tls, nullcontext(Director(known, key)), TOLD)


async def run(options: FleetOptions) -> int:
    """`streamer fleet`, until SIGTERM. Raises ConfigError, and Failed if the port is taken."""
    config = read_toml(options.pipeline, of)
    door, where = config.director, config.ray.address
    tls, key = door_of(door)
    if not options.down:
        check_free(door)  # before Ray is started
    tell("starting Ray ..." if where == LOCAL else f"joining Ray at {where} ...")
    placement = RayPlacement(where, partial(plan_of, config, key))
    try:
        if options.down:
            drained = await drain_all(placement, placement.running(), config.kinds)
            put(f"{', '.join(sorted(drained)) or 'no replica'} drained")
        else:
            manager = Manager(placement, config.kinds)
            director = Director(manager.replicas, key, manager.run)
            await run_opened(door, tls, nullcontext(director), TOLD)
            if placement.is_local:
                await drain_all(placement, manager.replicas, config.kinds)
    finally:
        placement.close()
    os._exit(0)  # a thread may still wait for Ray's lost head, and Python for that thread


def plan_of(config: FleetConfig, key: str | None, name: str) -> Plan:
    """The plan of a replica, such as server-2. Servers find verifiers through the director."""
    door, (kind, _, number) = config.director, name.rpartition("-")
    port = config.kinds[kind].port + int(number) - 1
    scheme, is_anywhere = "wss" if door.cert else "ws", door.host in ANYWHERE
    given = {k: v for k, v in config.tables[kind].items() if k not in ("least", "most")}
    keys = {"STREAMER_API_KEY": key or ""}
    if kind == "server" and "verifier" in config.kinds and "cloud" not in given:
        at = shown_host(node_host() if is_anywhere else door.host)
        given["cloud"] = f"{scheme}://{at}:{door.port}"
        keys["STREAMER_CLOUD_KEY"] = (key or "").partition(",")[0]
    if "cloud_key" in given:
        keys["STREAMER_CLOUD_KEY"] = given.pop("cloud_key")
    given |= {"host": door.host, "port": port, "name": name, "cert": door.cert, "key": door.key}
    host = "{}" if is_anywhere else shown_host(door.host)
    return Plan(
        name,
        ["serve" if kind == "server" else kind, *_flags(given)],
        {name: value for name, value in keys.items() if value},
        f"{scheme}://{host}:{port}",
        int(given.get("device") == "cuda"),
    )


def _flags(given: Mapping[str, Any]) -> list[str]:
    """Options as they are typed; one with several values is repeated."""
    flags = []
    for key, value in given.items():
        flag = f"--{key.replace('_', '-')}"
        several = value if isinstance(value, list) else [value]
        flags += [f"{flag}={one}" for one in several if one is not None]
    return flags

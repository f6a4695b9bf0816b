"""`streamer fleet`, a director with replicas on Ray, and `streamer director`, one without."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import anyio

from streamer.commands.options import AddressOptions
from streamer.commands.process import put, tell
from streamer.commands.serve import check_free, door_of, run_opened, shown_host
from streamer.config import ConfigError
from streamer.core.declare import read_toml
from streamer.extras.fleet.director import Director, Known
from streamer.extras.fleet.manager import Manager, Plan, RayPlacement, drain_all, kind_of, node_host
from streamer.extras.fleet.options import LOCAL, DirectorOptions, FleetConfig, FleetOptions, of

ANYWHERE = ("0.0.0.0", "::")


def direct(options: DirectorOptions) -> int:
    """`streamer director`, until SIGTERM. Raises ConfigError, and Failed if the port is taken."""
    if not options.replicas:
        raise ConfigError("no --replicas; give ws://HOST:PORT of each")
    tls, key = door_of(options)
    known = {address: Known(address) for address in (url.rstrip("/") for url in options.replicas)}
    return anyio.run(_direct, options, tls, key, known, anyio.sleep_forever)


def run(options: FleetOptions) -> int:
    """`streamer fleet`, until SIGTERM. Raises ConfigError, and Failed if the port is taken."""
    config = read_toml(options.pipeline, of)
    where = config.ray.address
    tls, key = door_of(config.director)
    if not options.down:
        check_free(config.director)  # before Ray is started
    tell("starting Ray ..." if where == LOCAL else f"joining Ray at {where} ...")
    placement = RayPlacement(where)
    try:
        if options.down:
            status = anyio.run(_end, config, placement)
        else:
            status = anyio.run(_run, config, placement, tls, key)
    finally:
        placement.close()
    os._exit(status)  # a thread may still wait for Ray's lost head, and Python for that thread


async def _end(config: FleetConfig, placement: RayPlacement) -> int:
    """Drain the replicas of a cluster."""
    names = [name for name in placement.running() if kind_of(name) in config.kinds]
    await drain_all(placement, names, config.kinds)
    put(f"{', '.join(sorted(names)) or 'no replica'} drained")
    return 0


async def _run(
    config: FleetConfig, placement: RayPlacement, tls: ssl.SSLContext | None, key: str | None
) -> int:
    door = config.director
    host = node_host() if door.host in ANYWHERE else door.host
    url = f"ws{'s' if tls else ''}://{shown_host(host)}:{door.port}"
    manager = Manager(placement, config.kinds, partial(plan_of, config, key, url))
    status = await _direct(door, tls, key, manager.replicas, manager.run)
    if placement.is_local:
        await drain_all(placement, manager.replicas, config.kinds)
    return status


async def _direct(
    options: AddressOptions,
    tls: ssl.SSLContext | None,
    key: str | None,
    known: Mapping[str, Known | None],
    beside: Callable[[], Coroutine[Any, Any, None]],
) -> int:
    """A director, and `beside`, until SIGTERM."""
    opening = nullcontext(Director(known, key, beside))
    return await run_opened(options, tls, opening, "listening on ws{s}://{at} (a director)")


def plan_of(config: FleetConfig, key: str | None, director: str, kind: str, number: int) -> Plan:
    """The plan of a kind's replica of this number. Servers find verifiers through the director."""
    door, name = config.director, f"{kind}-{number}"
    port = config.kinds[kind].port + number - 1
    table = config.tables[kind].items()
    given = {key: value for key, value in table if key not in ("least", "most")}
    keys = {"STREAMER_API_KEY": key or ""}
    if kind == "server" and "verifier" in config.kinds and "cloud" not in given:
        given["cloud"] = director
        keys["STREAMER_CLOUD_KEY"] = (key or "").partition(",")[0]
    if "cloud_key" in given:
        keys["STREAMER_CLOUD_KEY"] = given.pop("cloud_key")
    given |= {"host": door.host, "port": port, "name": name, "cert": door.cert, "key": door.key}
    host = "{}" if door.host in ANYWHERE else shown_host(door.host)
    return Plan(
        name,
        ["serve" if kind == "server" else kind, *_flags(given)],
        {name: value for name, value in keys.items() if value},
        f"ws{'s' if door.cert else ''}://{host}:{port}",
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

"""`streamer fleet`, a director with replicas on Ray, and `streamer director`, one without."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from streamer.commands.options import ServeOptions
from streamer.commands.process import fail, put, run_async, tell
from streamer.commands.serve import (
    cannot_listen,
    check_free,
    config_of,
    door_of,
    run_opened,
    shown_host,
)
from streamer.config import Config, ConfigError
from streamer.core.declare import taken
from streamer.extras.fleet.options import LOCAL, DirectorOptions, FleetConfig, FleetOptions, read
from streamer.extras.fleet.replica import ReplicaPlan

if TYPE_CHECKING:
    from streamer.extras.fleet.on_ray import RayPlacement
    from streamer.extras.fleet.replicas import Roster

ANYWHERE = ("0.0.0.0", "::")


def direct(options: DirectorOptions) -> int:
    """`streamer director`, until SIGTERM: 0, or 1 if the port is taken. Raises ConfigError."""
    import anyio

    from streamer.extras.fleet.replicas import Roster

    if not options.replicas:
        raise ConfigError("no --replicas; give ws://HOST:PORT of each")
    tls, key = door_of(options)
    roster = Roster()
    roster.set(url.rstrip("/") for url in options.replicas)
    return run_async(run_director, options, tls, key, roster, anyio.sleep_forever)


def run(options: FleetOptions) -> int:
    """`streamer fleet`, until SIGTERM: 0, or 1 if the port is taken. Raises ConfigError."""
    from streamer.extras.fleet.on_ray import RayPlacement

    config = read(options.pipeline)
    tls, key = door_of(config.director)
    try:
        _check(config, key, options.down)
    except ConfigError as error:
        raise ConfigError(f"{options.pipeline}: {error}") from None
    except OSError as error:
        fail(cannot_listen(config.director, error, "director"))
        return 1
    placement = RayPlacement(config.ray.address)
    tell("starting Ray ..." if placement.is_local else f"joining Ray at {config.ray.address} ...")
    placement.open()
    try:
        if options.down:
            status = run_async(_end, config, placement)
        else:
            status = run_async(_run, config, placement, tls, key)
    finally:
        placement.close()
    os._exit(status)  # a thread may still wait for Ray's lost head, and Python for that thread


def _check(config: FleetConfig, key: str | None, is_down: bool) -> None:
    """Check, before Ray starts, options that fit no replica. Raises ConfigError, and OSError if the
    director's port is taken."""
    if is_down:
        if config.ray.address == LOCAL:
            told = "[ray] address is local: that fleet ends with the command that started it"
            raise ConfigError(f"{told} (Ctrl-C); --down is for a cluster's")
        return
    if "server" in config.kinds:
        given = plan_of(config, key, "ws://127.0.0.1", "server", 1).given
        try:
            options = ServeOptions(**taken(ServeOptions, given))
            config_of(options, taken(Config, given))
        except ConfigError as error:
            raise ConfigError(f"[server] {error}") from None
    check_free(config.director)


async def _end(config: FleetConfig, placement: RayPlacement) -> int:
    """Drain the replicas of a cluster."""
    from streamer.extras.fleet.manager import drain_all

    names = [n for n in placement.running() if n.rpartition("-")[0] in config.kinds]
    await drain_all(placement, names, config.kinds)
    put(f"{', '.join(sorted(names)) or 'no replica'} drained")
    return 0


async def _run(
    config: FleetConfig, placement: RayPlacement, tls: ssl.SSLContext | None, key: str | None
) -> int:
    from streamer.extras.fleet.manager import Manager, Scaling
    from streamer.extras.fleet.replicas import Roster

    door = config.director
    s = "s" if tls else ""
    roster = Roster()
    host = placement.own_host() if door.host in ANYWHERE else door.host
    plan = partial(plan_of, config, key, f"ws{s}://{shown_host(host)}:{door.port}")
    manager = Manager(placement, roster, config.kinds, plan, Scaling())
    status = await run_director(door, tls, key, roster, manager.run)
    if placement.is_local:
        await manager.stop_all()
    return status


def plan_of(
    config: FleetConfig, key: str | None, director: str, kind: str, number: int
) -> ReplicaPlan:
    """The plan of a kind's replica of this number. Servers find verifiers through the director."""
    table, door = config.kinds[kind], config.director
    given = dict(table.given)
    if kind == "server" and "verifier" in config.kinds and "cloud" not in given:
        given |= {"cloud": director, "cloud_key": key.partition(",")[0] if key else None}
    given |= {"host": door.host, "port": table.placing.port + number - 1}
    given |= {"name": f"{kind}-{number}", "api_key": key, "cert": door.cert, "key": door.key}
    given = {name: value for name, value in given.items() if value is not None}
    return ReplicaPlan(kind, given, "" if door.host in ANYWHERE else door.host)


async def run_director(
    options: DirectorOptions,
    tls: ssl.SSLContext | None,
    key: str | None,
    roster: Roster,
    beside: Callable[[], Coroutine[Any, Any, None]],
) -> int:
    """A director, and `beside`, which sets the addresses, until SIGTERM: 0, or 1 if the port is
    taken."""
    from streamer.extras.fleet.director import Director

    def told(_: Director, s: str, at: str) -> str:
        return f"listening on ws{s}://{at} (a director)"

    return await run_opened(options, tls, nullcontext(Director(roster, key, beside)), told)

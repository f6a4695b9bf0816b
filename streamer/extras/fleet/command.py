"""`streamer fleet`: a director, replicas on Ray. In: fleet.toml. Out: a running fleet, a status."""

from __future__ import annotations

import os
import threading
from typing import Any

from streamer.commands.process import fail, put, tell
from streamer.commands.serve import cannot_listen, check_free, door_of, shown_host
from streamer.config import ConfigError
from streamer.extras.fleet.config import FleetConfig, read
from streamer.extras.fleet.on_ray import RayPlacement
from streamer.extras.fleet.options import LOCAL, FleetOptions
from streamer.extras.fleet.served import ReplicaPlan
from streamer.extras.fleet.standalone import run_director, trust_of

THREADS_S = 1.0  # that a thread may take to end behind the loop
ANYWHERE = ("0.0.0.0", "::")


def run(options: FleetOptions) -> int:
    """Until SIGTERM; 0 after a clean end, 1 where the port cannot be had. Raises ConfigError."""
    import anyio

    config = read(options.config)
    tls, key = door_of(config.director)
    try:
        _check(config, key, options.down)
    except ConfigError as error:
        raise ConfigError(f"{options.config}: {error}") from None
    except OSError as error:
        fail(cannot_listen(config.director, error, "director"))
        return 1
    placement = RayPlacement(config.ray)
    tell("starting Ray ..." if placement.is_local else f"joining Ray at {config.ray.address} ...")
    placement.open()
    status = 1
    try:
        status = anyio.run(_run, config, placement, tls, key, options.down)
    finally:
        if not placement.close() or _is_held_up():
            os._exit(status)  # nothing of ours is left to end
    return status


def _check(config: FleetConfig, key: str | None, is_down: bool) -> None:
    """What would else be told seconds later, or by each replica again and again. Raises
    ConfigError, and OSError where the director's port is taken."""
    if is_down and config.ray.address == LOCAL:
        told = "[ray] address is local: that fleet ends with the command that started it (Ctrl-C)"
        raise ConfigError(f"{told}; --down is for a cluster's")
    if is_down:
        return
    if config.server is not None:
        try:
            plan_of(config, key, "ws://127.0.0.1", "server", 1).config()
        except ConfigError as error:
            raise ConfigError(f"[server] {error}") from None
    check_free(config.director)


def _is_held_up() -> bool:
    """Whether a thread still waits for Ray, whose head is lost: Python would wait for it, too."""
    others = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
    for thread in others:
        thread.join(THREADS_S)
    return any(thread.is_alive() for thread in others)


async def _run(
    config: FleetConfig, placement: RayPlacement, tls: Any, key: str | None, is_down: bool
) -> int:
    from streamer.extras.fleet.manager import Manager
    from streamer.extras.fleet.roster import Roster

    if is_down:
        await _take_down(config, placement)
        return 0
    door = config.director
    s = "s" if tls else ""
    roster = Roster(trust_of(door))
    host = placement.own_host() if door.host in ANYWHERE else door.host
    here = f"ws{s}://{shown_host(host)}:{door.port}"

    def plan(kind: str, number: int) -> ReplicaPlan:
        return plan_of(config, key, here, kind, number)

    manager = Manager(placement, roster, config.kinds, config.scaling, plan)
    status = await run_director(door, tls, key, roster, manager.run)
    if placement.is_local:
        await manager.stop_all()
    return status


async def _take_down(config: FleetConfig, placement: RayPlacement) -> None:
    """Every replica of these kinds drained."""
    from streamer.extras.fleet.manager import drain_all

    names = [n for n in placement.running() if n.rpartition("-")[0] in config.kinds]
    await drain_all(placement, names, config.kinds)
    put(f"{', '.join(sorted(names)) or 'no replica'} drained")


def plan_of(
    config: FleetConfig, key: str | None, director: str, kind: str, number: int
) -> ReplicaPlan:
    """What the replica of this number runs. Servers find verifiers through the director."""
    table = config.kinds[kind]
    door = config.director
    given = dict(table.given)
    if kind == "server" and config.verifier is not None and "cloud" not in given:
        given["cloud"] = director
        given["cloud_key"] = key.partition(",")[0] if key else None
    given |= {
        "host": door.host,
        "port": table.placing.first_port + number - 1,
        "name": f"{kind}-{number}",
        "api_key": key,
        "cert": door.cert,
        "key": door.key,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return ReplicaPlan(kind, given, "" if door.host in ANYWHERE else door.host)

"""`streamer fleet`: a director, replicas on Ray. In: fleet.toml. Out: a running fleet, a status."""

from __future__ import annotations

import os
import threading
from typing import Any

from streamer.commands.serve import door_of, shown_host
from streamer.commands.service_options import FleetOptions
from streamer.fleet.config import FleetConfig, read
from streamer.fleet.on_ray import RayPlacement
from streamer.fleet.served import ReplicaPlan
from streamer.fleet.standalone import run_director, trust_of

THREADS_S = 1.0  # that a thread may take to end behind the loop
ANYWHERE = ("0.0.0.0", "::")


def run(options: FleetOptions) -> int:
    """Until SIGTERM; 0 after a clean end, 1 where the port cannot be had. Raises ConfigError."""
    import anyio

    config = read(options.config)
    tls, key = door_of(config.director)
    placement = RayPlacement(config.ray)
    placement.open()
    status = 1
    try:
        status = anyio.run(_run, config, placement, tls, key, options.down)
    finally:
        if not placement.close() or _is_held_up():
            os._exit(status)  # nothing of ours is left to end
    return status


def _is_held_up() -> bool:
    """Whether a thread still waits for Ray, whose head is lost: Python would wait for it, too."""
    others = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
    for thread in others:
        thread.join(THREADS_S)
    return any(thread.is_alive() for thread in others)


async def _run(
    config: FleetConfig, placement: RayPlacement, tls: Any, key: str | None, is_down: bool
) -> int:
    from streamer.fleet.manager import Manager
    from streamer.fleet.roster import Roster

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
    """Every replica of these kinds drained, all at once."""
    import anyio

    from streamer.net.service.service import DRAIN_S

    async with anyio.create_task_group() as group:
        for name in placement.running():
            if name.rpartition("-")[0] in config.kinds:
                group.start_soon(placement.stop, name, DRAIN_S)


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

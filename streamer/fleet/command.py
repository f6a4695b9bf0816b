"""`streamer fleet`: a director, and replicas on Ray. In: fleet.toml. Out: a running fleet, an exit
status."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import Any

from streamer.commands.options import FleetOptions
from streamer.commands.process import fail, put
from streamer.commands.serve import cannot_listen, door_of, shown_host
from streamer.fleet.config import FleetConfig, read
from streamer.fleet.on_ray import RayPlacement
from streamer.fleet.served import ReplicaPlan

THREADS_S = 1.0  # that a thread may take to end behind the loop
ANYWHERE = ("0.0.0.0", "::")


def run(options: FleetOptions) -> int:
    """Until SIGTERM; 0 after a clean end, 1 where the port cannot be had. Raises ConfigError."""
    import anyio

    config = read(options.config)
    tls, key = door_of(config.director)
    logging.getLogger("streamer.fleet").addHandler(_to_stderr())
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
    import anyio

    from streamer.fleet.director import Director
    from streamer.fleet.manager import Manager
    from streamer.fleet.roster import Roster
    from streamer.fleet.standalone import trust_of
    from streamer.net.service.service import Address

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

    trouble: Any = None
    manager = Manager(placement, roster, config.kinds, config.scaling, plan)

    def ready(port: int) -> None:
        put(f"listening on ws{s}://{shown_host(door.host)}:{port} (a director)")

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(roster.run)
            group.start_soon(Director(roster, key).run, Address(door.host, door.port, tls), ready)
            group.start_soon(manager.run)
            await _until_told()
            group.cancel_scope.cancel()
    except* OSError as errors:
        trouble = errors.exceptions[0]
    if placement.is_local:
        await manager.stop_all()
    if trouble is not None:
        fail(cannot_listen(door, trouble))
    return 0 if trouble is None else 1


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


async def _until_told() -> None:
    import anyio

    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            return


def _to_stderr() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("streamer: %(message)s"))
    return handler

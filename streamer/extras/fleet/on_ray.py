"""Replicas as actors of Ray. In: plans. Out: addresses, and processes that come back when they die.

Ray places and supervises them, and carries a few calls: no byte of audio, no token. The actors have
names, so a manager that starts again finds those that run.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from streamer.config import ConfigError
from streamer.extras.fleet.options import LOCAL, PlacingOptions, RayOptions
from streamer.extras.fleet.replica import START_S, ReplicaHost
from streamer.extras.fleet.served import ReplicaPlan

# that processes live on without Ray's head. Ray's own 60 s would end every session with them.
HEADLESS_S = 86_400
HUNG_S = 3.0  # that an actor may take to say where it is
ASK_AGAIN_S = 0.2  # of an actor that is being started
# that a Ray of our own starts ahead, one for each processor it is told of. On one machine our own
# bounds hold, not a count of processors: there a replica is placed without any.
LOCAL_WORKERS = 1
REACH_S = 5.0  # for a cluster's head to take a connection
CLOSE_S = 20.0  # to leave Ray
CALL_S = 70.0  # for Ray to end an actor
TRIES = 4  # to start one: its patience is 30 s, which a busy machine may need twice
CALLS = 4  # of an actor at once: one drains, others ask
MISSING = "Ray is not installed; pip install 'streamer-speech[scale]'"


class ReplicaLost(Exception):
    """A replica could not be started. One line."""


class RayPlacement:
    """`start` and `stop` replicas by name. Open it before anything else; Ray's own start takes
    seconds. Raises ConfigError where there is no Ray."""

    def __init__(self, options: RayOptions) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would write home
        if not sys.stderr.isatty():
            os.environ.setdefault("RAY_COLOR_PREFIX", "0")
        os.environ.setdefault("RAY_worker_niceness", "0")  # 15 is for batches; people wait for us
        os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(HEADLESS_S))
        if options.address != LOCAL and _has_token():
            os.environ.setdefault("RAY_AUTH_MODE", "token")
        try:
            import ray
        except ImportError:
            raise ConfigError(MISSING) from None
        self._ray: Any = ray
        self._options = options
        self._actors: dict[str, Any] = {}
        self.is_local = options.address == LOCAL

    def open(self) -> None:
        """Start a Ray of our own, or join the cluster. Raises ConfigError where none is there."""
        _check_reached(self._options.address)
        more: dict[str, Any] = {}
        if self.is_local:
            more = {"include_dashboard": False, "num_cpus": LOCAL_WORKERS}
        for num_left in reversed(range(TRIES if self.is_local else 1)):
            try:
                # also where it is local: else a cluster that is there already would be joined
                place = {"address": self._options.address, "namespace": self._options.namespace}
                self._ray.init(**place, logging_level="ERROR", **more)
                return
            except Exception as error:  # Ray has no class of its own for it
                self._ray.shutdown()
                if not num_left:
                    ways = "look into /tmp/ray" if self.is_local else "start one with `ray start`"
                    told = f"no Ray at {self._options.address!r} ({error}); {ways}"
                    raise ConfigError(f"[ray] {told}") from None

    def close(self) -> bool:
        """Leave Ray; one of our own ends. Whether that is done: Ray waits for a head that is lost,
        and keeps the process from its end."""
        leaving = threading.Thread(target=self._ray.shutdown, daemon=True)
        leaving.start()
        leaving.join(CLOSE_S)
        return not leaving.is_alive()

    def running(self) -> Sequence[str]:
        """Names of replicas that are there already."""
        listed = self._ray.util.list_named_actors(all_namespaces=True)
        return [a["name"] for a in listed if a["namespace"] == self._options.namespace]

    async def start(self, name: str, plan: ReplicaPlan, placing: PlacingOptions) -> str:
        """Its address, as soon as it is served; the one that runs already under this name where
        there is one. Raises ReplicaLost."""
        try:
            self._actors[name] = await _aside(self._placed, name, plan, placing)
        except (self._ray.exceptions.RayError, ValueError) as error:  # the latter of what it needs
            raise _lost(name, error) from None
        return await self._address(name, START_S)

    def _placed(self, name: str, plan: ReplicaPlan, placing: PlacingOptions) -> Any:
        actor = self._ray.remote(ReplicaHost).options(
            name=name,
            get_if_exists=True,
            lifetime=None if self.is_local else "detached",
            num_cpus=0 if self.is_local else placing.cpus,
            num_gpus=placing.gpus,
            max_restarts=-1,
            max_concurrency=CALLS,
            scheduling_strategy="SPREAD",
        )
        return actor.remote(plan)

    async def revive(self, name: str, pid: int) -> str:
        """Of one whose server, of this process, does not answer. It is started again; where it
        hangs, it is killed first, and so is what should start it. The address. Raises
        ReplicaLost."""
        actor = self._actors[name]
        try:
            with anyio.fail_after(HUNG_S):
                await actor.revive.remote(pid)
        except TimeoutError:
            await _aside(partial(self._ray.kill, actor, no_restart=False))
        except self._ray.exceptions.RayError:
            pass  # it died: it is asked again while Ray starts it
        return await self._address(name, START_S)

    async def stop(self, name: str, within_s: float) -> None:
        """Drained, then gone. One that is not there is gone already, and one that Ray cannot find
        now, because its head is lost, is found when it is started again."""
        actor = self._actors.pop(name, None)
        try:
            actor = actor or await _aside(self._ray.get_actor, name)
        except (ValueError, self._ray.exceptions.RayError):
            return
        try:
            with anyio.move_on_after(within_s):
                await actor.drain.remote()
        except self._ray.exceptions.RayError:
            pass  # it died meanwhile
        with anyio.move_on_after(CALL_S), suppress(self._ray.exceptions.RayError):
            await _aside(self._ray.kill, actor)

    def own_host(self) -> str:
        """This machine's address, as others of the cluster reach it."""
        return str(self._ray.util.get_node_ip_address())

    async def _address(self, name: str, within_s: float) -> str:
        try:
            with anyio.fail_after(within_s):
                while True:
                    with suppress(self._ray.exceptions.ActorUnavailableError):  # Ray restarts it
                        if address := await self._actors[name].address.remote():
                            return str(address)
                    await anyio.sleep(ASK_AGAIN_S)
        except TimeoutError:
            told = f"{name}: not ready within {within_s:g} s"
            raise ReplicaLost(f"{told}; has Ray room for its cpus and gpus?") from None
        except self._ray.exceptions.RayError as error:
            raise _lost(name, error) from None


def _check_reached(address: str) -> None:
    """Raises ConfigError where nobody listens at HOST:PORT. Ray would try for minutes, in its own
    words."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except (OSError, OverflowError) as error:
        way = "start one with `ray start --head`, or mend the address"
        raise ConfigError(f"[ray] no Ray at {address!r} ({error}); {way}") from None


def _lost(name: str, error: Exception) -> ReplicaLost:
    why = str(getattr(error, "cause", None) or error).strip().splitlines()[-1]
    return ReplicaLost(f"{name}: {why}")


async def _aside(call: Callable[..., Any], *arguments: Any) -> Any:
    """In a thread: Ray's calls wait up to 60 s for its head, and the director shares our loop."""
    return await anyio.to_thread.run_sync(partial(call, *arguments), abandon_on_cancel=True)


def _has_token() -> bool:
    """Whether `ray start` would have asked for a token here. It does so where there is one, and a
    first Ray of our own leaves one behind; who joins shows it only when told to."""
    named = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys()
    return bool(named) or (Path.home() / ".ray" / "auth_token").exists()

"""Replicas as named actors of Ray, which places and restarts them.

Ray carries a few calls; no audio, no token. A manager that starts again finds the actors by name.
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
from streamer.extras import missing
from streamer.extras.fleet.options import LOCAL, PlacingOptions
from streamer.extras.fleet.replica import START_S, ReplicaHost, ReplicaLost, ReplicaPlan

HEADLESS_S = 86_400  # that processes outlive Ray's head; Ray's own 60 s would end every session
HUNG_S = 3.0  # for an actor to answer
ASK_AGAIN_S = 0.2  # of an actor that is starting
LOCAL_WORKERS = 1  # that a local Ray starts ahead; there, replicas ask for no processors
REACH_S = 5.0  # for a cluster's head to take a connection
CLOSE_S = 20.0  # to leave Ray
CALL_S = 70.0  # for Ray to end an actor
TRIES = 4  # of starting a local Ray: its own patience of 30 s is short on a busy machine
CALLS = 4  # of an actor at once: one drains, others ask
NAMESPACE = "streamer"  # of the replicas' names
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # it would report to its makers
    "RAY_worker_niceness": "0",  # its own 15 is for batches
    "RAY_gcs_rpc_server_reconnect_timeout_s": str(HEADLESS_S),
}


class RayPlacement:
    """`start` and `stop` replicas by name. address: local, auto or HOST:PORT. Raises ConfigError if
    Ray is not installed."""

    def __init__(self, address: str) -> None:
        self.is_local = address == LOCAL
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        if not sys.stderr.isatty():
            os.environ.setdefault("RAY_COLOR_PREFIX", "0")
        if not self.is_local and _has_token():
            os.environ.setdefault("RAY_AUTH_MODE", "token")
        if (why := missing("streamer fleet", "ray")) is not None:
            raise ConfigError(why)
        import ray

        self._ray: Any = ray
        self._where = address
        self._actors: dict[str, Any] = {}

    def open(self) -> None:
        """Start a local Ray, or join the cluster. Raises ConfigError if there is none."""
        _check_reached(self._where)
        # the address is given for a local one too, or a running cluster would be joined
        more: dict[str, Any] = {"address": self._where}
        if self.is_local:
            more |= {"include_dashboard": False, "num_cpus": LOCAL_WORKERS}
        for num_left in reversed(range(TRIES if self.is_local else 1)):
            try:
                self._ray.init(namespace=NAMESPACE, logging_level="ERROR", **more)
                return
            except Exception as error:  # Ray has no class of its own for it
                self._ray.shutdown()
                if not num_left:
                    way = "look into /tmp/ray" if self.is_local else "start one with `ray start`"
                    told = f"no Ray at {self._where!r} ({error}); {way}"
                    raise ConfigError(f"[ray] {told}") from None

    def close(self) -> None:
        """Leave Ray, and end a local one; within CLOSE_S if Ray waits for a lost head."""
        leaving = threading.Thread(target=self._ray.shutdown, daemon=True)
        leaving.start()
        leaving.join(CLOSE_S)

    def running(self) -> Sequence[str]:
        """Names of replicas that are there already."""
        listed = self._ray.util.list_named_actors(all_namespaces=True)
        return [a["name"] for a in listed if a["namespace"] == NAMESPACE]

    async def start(self, name: str, plan: ReplicaPlan, placing: PlacingOptions) -> str:
        """Its address once it serves; a running replica of this name is taken. Raises
        ReplicaLost."""
        try:
            self._actors[name] = await _aside(self._placed, name, plan, placing)
        except (self._ray.exceptions.RayError, ValueError) as error:
            raise _lost(name, error) from None
        return await self._address(name)

    def _placed(self, name: str, plan: ReplicaPlan, placing: PlacingOptions) -> Any:
        actor = self._ray.remote(ReplicaHost).options(
            name=name,
            get_if_exists=True,
            lifetime=None if self.is_local else "detached",
            num_cpus=0 if self.is_local else 1,
            num_gpus=plan.given.get("device") == "cuda",
            max_restarts=-1,
            max_concurrency=CALLS,
            scheduling_strategy="SPREAD",
        )
        return actor.remote(plan)

    async def revive(self, name: str, pid: int) -> str:
        """Restart a replica whose server, process `pid`, does not answer; its address.

        A host that does not answer either is killed, and Ray starts it anew. Raises ReplicaLost.
        """
        actor = self._actors[name]
        try:
            with anyio.fail_after(HUNG_S):
                await actor.revive.remote(pid)
        except TimeoutError:
            await _aside(partial(self._ray.kill, actor, no_restart=False))
        except self._ray.exceptions.RayError:
            pass  # it died, and Ray starts it
        return await self._address(name)

    async def stop(self, name: str, within_s: float) -> None:
        """Drain it, then remove it."""
        actor = self._actors.pop(name, None)
        try:
            actor = actor or await _aside(self._ray.get_actor, name)
        except (ValueError, self._ray.exceptions.RayError):
            return  # it is gone, or the head is
        with suppress(self._ray.exceptions.RayError), anyio.move_on_after(within_s):
            await actor.drain.remote()
        with anyio.move_on_after(CALL_S), suppress(self._ray.exceptions.RayError):
            await _aside(self._ray.kill, actor)

    def own_host(self) -> str:
        """This machine's address, as others of the cluster reach it."""
        return str(self._ray.util.get_node_ip_address())

    async def _address(self, name: str) -> str:
        try:
            with anyio.fail_after(START_S):
                while True:
                    with suppress(self._ray.exceptions.ActorUnavailableError):  # Ray restarts it
                        if address := await self._actors[name].address.remote():
                            return str(address)
                    await anyio.sleep(ASK_AGAIN_S)
        except TimeoutError:
            told = f"{name}: not ready within {START_S:g} s"
            raise ReplicaLost(
                f"{told}; has Ray a processor for it, and a GPU if its device is cuda?"
            ) from None
        except self._ray.exceptions.RayError as error:
            raise _lost(name, error) from None


def _check_reached(address: str) -> None:
    """Raises ConfigError if nothing listens at HOST:PORT; Ray would try for minutes."""
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
    """In a thread: Ray's calls wait up to 60 s for its head, and the director shares the loop."""
    return await anyio.to_thread.run_sync(partial(call, *arguments), abandon_on_cancel=True)


def _has_token() -> bool:
    """Whether `ray start` would have asked for a token on this machine."""
    named = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys()
    return bool(named) or (Path.home() / ".ray" / "auth_token").exists()

"""Replicas as named actors of Ray, which places them: each hosts one process of `streamer serve` or
`streamer verifier`.

Ray carries a few calls; no audio, no token. A manager that starts again finds the actors by name.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from streamer.config import ConfigError
from streamer.extras import missing
from streamer.extras.fleet.options import LOCAL

START_S = 120.0  # to load a model; a large one comes from a disk
HUNG_S = 3.0  # for an actor to answer
ASK_AGAIN_S = 0.2  # of an actor that is starting
REACH_S = 5.0  # for a cluster's head to take a connection
CALL_S = 70.0  # for Ray to end an actor
CALLS = 4  # of an actor at once: one drains, others ask
NAMESPACE = "streamer"  # of the replicas' names
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # it would report to its makers
    "RAY_worker_niceness": "0",  # its own 15 is for batches
    # that processes outlive Ray's head; its own 60 s would end every session
    "RAY_gcs_rpc_server_reconnect_timeout_s": "86400",
}
# prctl's PR_SET_PDEATHSIG, SIGKILL: the server ends with its host
CHILD = """import ctypes, sys
ctypes.CDLL(None).prctl(1, 9)
from streamer.cli import main
sys.exit(main())
"""


class ReplicaLost(Exception):
    """A replica could not be started. Its text is one line."""


@dataclass(frozen=True)
class Plan:
    """One replica: the arguments of `streamer`, its keys, which other users must not see, and its
    address, with {} for the node's own host."""

    name: str
    words: Sequence[str]
    keys: Mapping[str, str]
    address: str
    num_gpus: int = 0


class ReplicaHost:
    """The actor. It never raises where it is made: Ray would retry it for ever."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._begin()

    def __repr__(self) -> str:
        """Prefix of each line that Ray prints for it."""
        return self._plan.name

    def address(self) -> str:
        """The address; empty while the server starts. Raises RuntimeError if it cannot start."""
        if not (self._is_serving or self._reader.is_alive()):
            raise RuntimeError(self._last)
        return self._plan.address.format(node_host()) if self._is_serving else ""

    def restart(self) -> None:
        """Kill the server, and start another one."""
        self._process.kill()
        self._reader.join()
        self._begin()

    def drain(self) -> None:
        """Accept no more clients, answer what was said, end. Returns when that is done."""
        self._process.terminate()
        self._reader.join()

    def _begin(self) -> None:
        self._is_serving, self._last = False, "it died"
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, *self._plan.words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **path, **self._plan.keys},
            text=True,
            errors="backslashreplace",
            start_new_session=True,  # ^C is for the fleet's command, which drains it
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Print the server's lines until it ends."""
        with self._process as process:
            for line in process.stdout or ():
                self._is_serving |= line.startswith("listening on ")
                self._last = line.strip()
                print(self._last, file=sys.stderr, flush=True)


class RayPlacement:
    """`start`, `restart` and `stop` replicas by name."""

    def __init__(self, address: str) -> None:
        """Start a local Ray, or join a cluster's. address: local, auto or HOST:PORT. Raises
        ConfigError if there is none, or Ray is not installed."""
        self.is_local = address == LOCAL
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        if not self.is_local and (Path.home() / ".ray" / "auth_token").exists():
            os.environ.setdefault("RAY_AUTH_MODE", "token")  # as `ray start` asks for
        if (why := missing("streamer fleet", "ray")) is not None:
            raise ConfigError(why)
        import ray

        self._ray: Any = ray
        self._actors: dict[str, Any] = {}
        # one worker is started ahead: replicas of a local Ray ask for no processor
        more = {"include_dashboard": False, "num_cpus": 1} if self.is_local else {}
        try:
            _check_reached(address)
            # the address is given for a local one too, or a running cluster would be joined
            ray.init(address=address, namespace=NAMESPACE, logging_level="ERROR", **more)
        except Exception as error:  # Ray has no class of its own for it
            ray.shutdown()
            way = "look into /tmp/ray" if self.is_local else "start one with `ray start --head`"
            raise ConfigError(f"[ray] no Ray at {address!r} ({error}); {way}") from None

    def close(self) -> None:
        """End a local Ray. A cluster is just left: its head may be lost, and Ray would wait."""
        if self.is_local:
            self._ray.shutdown()

    def running(self) -> Sequence[str]:
        """Names of replicas that are there already."""
        listed = self._ray.util.list_named_actors(all_namespaces=True)
        return [a["name"] for a in listed if a["namespace"] == NAMESPACE]

    async def start(self, plan: Plan) -> str:
        """Its address once it serves; a running replica of this name is taken. Raises
        ReplicaLost."""
        host = self._ray.remote(ReplicaHost).options(
            name=plan.name,
            get_if_exists=True,
            lifetime=None if self.is_local else "detached",
            num_cpus=0 if self.is_local else 1,
            num_gpus=plan.num_gpus,
            max_restarts=-1,
            max_concurrency=CALLS,
            scheduling_strategy="SPREAD",
        )
        try:
            self._actors[plan.name] = await _aside(host.remote, plan)
        except (self._ray.exceptions.RayError, ValueError) as error:
            raise _lost(plan.name, error) from None
        return await self._address(plan.name)

    async def restart(self, name: str) -> str:
        """Restart a replica that does not answer; its address. Raises ReplicaLost."""
        actor = self._actors[name]
        try:
            with anyio.fail_after(HUNG_S):
                await actor.restart.remote()
        except TimeoutError:
            await _aside(partial(self._ray.kill, actor, no_restart=False))
        except self._ray.exceptions.RayError:
            pass  # the host died, and Ray starts it
        return await self._address(name)

    async def stop(self, name: str, within_s: float) -> None:
        """Drain it, then remove it."""
        actor = self._actors.pop(name, None)
        lost = self._ray.exceptions.RayError
        with suppress(ValueError, lost):  # it is gone, or the head is
            actor = actor or await _aside(self._ray.get_actor, name)
            with suppress(lost), anyio.move_on_after(within_s):
                await actor.drain.remote()
            with anyio.move_on_after(CALL_S):
                await _aside(self._ray.kill, actor)

    async def _address(self, name: str) -> str:
        errors = self._ray.exceptions
        try:
            with anyio.move_on_after(START_S):
                while True:
                    with suppress(errors.ActorUnavailableError):  # Ray restarts it
                        if address := await self._actors[name].address.remote():
                            return str(address)
                    await anyio.sleep(ASK_AGAIN_S)
        except errors.RayError as error:
            raise _lost(name, error) from None
        told = f"{name}: not ready within {START_S:g} s"
        way = "has Ray a processor for it, and a GPU if its device is cuda?"
        raise ReplicaLost(f"{told}; {way}")


def _check_reached(address: str) -> None:
    """Raises OSError if nothing listens at HOST:PORT; Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()


def _lost(name: str, error: Exception) -> ReplicaLost:
    why = str(getattr(error, "cause", None) or error).strip().splitlines()[-1]
    return ReplicaLost(f"{name}: {why}")


async def _aside(call: Callable[..., Any], *arguments: Any) -> Any:
    """In a thread: Ray's calls wait up to 60 s for its head, and the director shares the loop."""
    return await anyio.to_thread.run_sync(partial(call, *arguments), abandon_on_cancel=True)


def node_host() -> str:
    """This machine's address, as others of the cluster reach it."""
    import ray.util

    return str(ray.util.get_node_ip_address())

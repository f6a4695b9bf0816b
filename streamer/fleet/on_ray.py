"""Replicas as actors of Ray. In: plans. Out: addresses, and processes that are restarted when they
die.

Ray places and supervises them, and carries a few calls: no byte of audio, no token. The actors have
names, so a manager that starts again finds those that run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import anyio

from streamer.commands.fleet_options import LOCAL, PlacingOptions, RayOptions
from streamer.config import ConfigError
from streamer.fleet.replica import START_S, ReplicaHost, ReplicaPlan

HUNG_S = 3.0  # that an actor may take to say where it is
ASK_AGAIN_S = 0.2  # of an actor that is being started
# that a Ray of our own starts ahead, one for each processor it is told of. On one machine our own
# bounds hold, not a count of processors: there a replica is placed without any.
LOCAL_WORKERS = 1
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
        os.environ.setdefault("RAY_worker_niceness", "0")  # 15 is for batches; people wait for us
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
        more: dict[str, Any] = (
            {"include_dashboard": False, "num_cpus": LOCAL_WORKERS}
            if self.is_local
            else {"address": self._options.address}
        )
        for num_left in reversed(range(TRIES if self.is_local else 1)):
            try:
                self._ray.init(namespace=self._options.namespace, logging_level="ERROR", **more)
                return
            except Exception as error:  # Ray has no class of its own for it
                self._ray.shutdown()
                if not num_left:
                    ways = "look into /tmp/ray" if self.is_local else "start one with `ray start`"
                    told = f"no Ray at {self._options.address!r} ({error}); {ways}"
                    raise ConfigError(f"[ray] {told}") from None

    def close(self) -> None:
        """Leave Ray; one of our own ends."""
        self._ray.shutdown()

    def running(self) -> Sequence[str]:
        """Names of replicas that are there already."""
        listed = self._ray.util.list_named_actors(all_namespaces=True)
        return [a["name"] for a in listed if a["namespace"] == self._options.namespace]

    async def start(self, name: str, plan: ReplicaPlan, placing: PlacingOptions) -> str:
        """Its address, as soon as it is served; the one that runs already under this name where
        there is one. Raises ReplicaLost."""
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
        self._actors[name] = actor.remote(plan)
        return await self._address(name, START_S)

    async def revive(self, name: str) -> str:
        """Of one that does not answer: Ray has it restarted if it died; one that hangs is killed
        first. Its address. Raises ReplicaLost."""
        actor = self._actors[name]
        try:
            with anyio.fail_after(HUNG_S):
                return str(await actor.address.remote())
        except TimeoutError:
            self._ray.kill(actor, no_restart=False)
        except self._ray.exceptions.RayError:
            pass  # it died: it is asked again while Ray starts it
        return await self._address(name, START_S)

    async def stop(self, name: str, within_s: float) -> None:
        """Drained, then gone. One that is not there is gone already."""
        actor = self._actors.pop(name, None)
        try:
            actor = actor or self._ray.get_actor(name)
        except ValueError:
            return
        try:
            with anyio.move_on_after(within_s):
                await actor.drain.remote()
        except self._ray.exceptions.RayError:
            pass  # it died meanwhile
        self._ray.kill(actor)

    def own_host(self) -> str:
        """This machine's address, as others of the cluster reach it."""
        return str(self._ray.util.get_node_ip_address())

    async def _address(self, name: str, within_s: float) -> str:
        try:
            with anyio.fail_after(within_s):
                while True:
                    try:
                        return str(await self._actors[name].address.remote())
                    except self._ray.exceptions.ActorUnavailableError:  # Ray starts it again
                        await anyio.sleep(ASK_AGAIN_S)
        except self._ray.exceptions.RayError as error:
            why = str(getattr(error, "cause", None) or error).strip().splitlines()[-1]
            raise ReplicaLost(f"{name}: {why}") from None

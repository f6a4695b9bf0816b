"""How many replicas run, and their life from start to drain, as named actors of Ray.

Replicas are added when most places are taken or speech waits to be heard; a processor's load
decides nothing, since a model always fills it. One is removed when the others would still have
places to spare; it gets no new clients, and drains. A replica keeps its name and port through
restarts.

Each actor hosts one process of `streamer serve` or `streamer verifier`. Ray carries a few calls; no
audio, no token. A manager that starts again finds the actors by name.
"""

from __future__ import annotations

import itertools
import math
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from streamer.config import ConfigError
from streamer.core.declare import option
from streamer.extras import missing
from streamer.extras.fleet.director import Known, ReplicaStatus
from streamer.net.service.metrics import notices
from streamer.net.service.service import DRAIN_S

TICK_S = 0.25
RETRY_S = 5.0  # after a replica that could not be started
UP_AT = 0.75  # share of the places taken above which replicas are added
DOWN_AT = 0.4  # the same of the others if one is removed; far below, or replicas come and go
LAG_S = 1.0  # of speech that the median replica has not heard
UP_PAUSE_S = 10.0  # between two additions
DOWN_PAUSE_S = 60.0  # of low load
START_S = 120.0  # to load a model; a large one comes from a disk
ASK_AGAIN_S = 0.2  # of an actor that is starting
REACH_S = 5.0  # for a cluster's head to take a connection
CALL_S = 70.0  # for Ray to end an actor
CALLS = 4  # of an actor at once: one drains, others ask
NAMESPACE = "streamer"  # of the replicas' names
LOCAL = "local"
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


@dataclass(frozen=True, kw_only=True)
class PlacingOptions:
    """How many replicas of one kind, and what each needs: in [server] and in [verifier], beside
    the options of `streamer serve` and `streamer verifier`."""

    least: int = option(1, None, ge=0, le=1000)
    most: int = option(1, None, ge=1, le=1000)
    port: int = option(9100, None, ge=1, le=65_535)

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise ConfigError(f"least is {self.least}; it may be at most {self.most}, as most says")


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
    """An actor of Ray: one replica."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._is_serving, self._last = plan, False, "it died"
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, *plan.words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **path, **plan.keys},
            text=True,
            errors="backslashreplace",
            start_new_session=True,  # ^C is for the fleet's command, which drains it
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __repr__(self) -> str:
        """Prefix of each line that Ray prints for it."""
        return self._plan.name

    def address(self) -> str:
        """The address; empty while the server starts. Raises RuntimeError if it cannot start."""
        if not (self._is_serving or self._reader.is_alive()):
            raise RuntimeError(self._last)
        return self._plan.address.format(node_host()) if self._is_serving else ""

    def drain(self) -> None:
        """Accept no more clients, answer what was said, end. Returns when that is done."""
        self._process.terminate()
        self._reader.join()

    def _read(self) -> None:
        """Print the server's lines until it ends."""
        with self._process as process:
            for line in process.stdout or ():
                self._is_serving |= line.startswith("listening on ")
                self._last = line.strip()
                print(self._last, file=sys.stderr, flush=True)


class RayPlacement:
    """`start` and `stop` replicas by name."""

    def __init__(self, address: str, plan: Callable[[str], Plan]) -> None:
        """Start a local Ray, or join a cluster's. address: local, auto or HOST:PORT. plan: of a
        replica. Raises ConfigError if there is no Ray, or it is not installed."""
        self.is_local, self._plan = address == LOCAL, plan
        # Ray reads its settings when it is imported
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
        host, colon, port = address.rpartition(":")
        try:
            if colon and port.isdigit():  # Ray would try for minutes to reach it
                socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
            # the address is given for a local one too, or a running cluster would be joined
            ray.init(address=address, namespace=NAMESPACE, logging_level="ERROR", **more)
        except Exception as error:  # Ray has no class of error for it
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

    async def start(self, name: str) -> str:
        """Its address once it serves; a running replica of this name is taken. Raises
        ChildProcessError, in one line, if it cannot be started."""
        plan = self._plan(name)
        host = self._ray.remote(ReplicaHost).options(
            name=name,
            get_if_exists=True,
            lifetime=None if self.is_local else "detached",
            num_cpus=0 if self.is_local else 1,
            num_gpus=plan.num_gpus,
            max_concurrency=CALLS,
            scheduling_strategy="SPREAD",
        )
        errors = self._ray.exceptions
        try:
            actor = self._actors[name] = await _aside(host.remote, plan)
            with anyio.move_on_after(START_S):
                while True:
                    with suppress(errors.ActorUnavailableError):  # its network is down for now
                        if address := await actor.address.remote():
                            return str(address)
                    await anyio.sleep(ASK_AGAIN_S)
        except (errors.RayError, ValueError) as error:
            why = str(getattr(error, "cause", None) or error).strip().splitlines()[-1]
            raise ChildProcessError(f"{name}: {why}") from None
        way = "has Ray a processor for it, and a GPU if its device is cuda?"
        raise ChildProcessError(f"{name}: not ready within {START_S:g} s; {way}")

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


async def _aside(call: Callable[..., Any], *arguments: Any) -> Any:
    """In a thread: Ray's calls wait up to 60 s for its head, and the director shares the loop."""
    return await anyio.to_thread.run_sync(call, *arguments, abandon_on_cancel=True)


def node_host() -> str:
    """This machine's address, as others of the cluster reach it."""
    import ray.util

    return str(ray.util.get_node_ip_address())


class Scaler:
    """`least` to `most` replicas of one kind. Call `decide` every second or so."""

    def __init__(self, placing: PlacingOptions) -> None:
        self._least, self._most = placing.least, placing.most
        self._added_at = -math.inf
        self._busy_at: float | None = None  # when none could be spared, for the last time

    def decide(
        self, found: Collection[ReplicaStatus], num_starting: int, now: float
    ) -> tuple[int, str]:
        """How many to add, or -1 for one to remove; and why. found: of the replicas that answer and
        stay. num_starting: others that will."""
        num = len(found) + num_starting
        if num < self._least:
            return self._least - num, f"{num} there, at least {self._least}"
        taken = sum(s.taken for s in found)
        limit = min((s.limit for s in found), default=0)
        # the median, so that one slow machine does not call for more replicas
        lag_s = statistics.median_low(s.lag_s for s in found) if found else 0.0
        wanted = math.ceil(taken / (limit * UP_AT)) if limit else num
        more = min(max(wanted, num + (lag_s > LAG_S)), self._most) - num
        why = f"{taken} places taken, {lag_s:.1f} s of speech unheard"
        if more > 0 and now - self._added_at >= UP_PAUSE_S:
            self._added_at = self._busy_at = now
            return more, why
        is_spare = len(found) > self._least and taken <= (len(found) - 1) * limit * DOWN_AT
        if num_starting or lag_s > LAG_S or not is_spare or self._busy_at is None:
            self._busy_at = now
        if now - self._busy_at < DOWN_PAUSE_S:
            return 0, ""
        self._busy_at = now
        return -1, why


class Manager:
    """`run` it beside a director."""

    def __init__(
        self,
        placement: RayPlacement,
        kinds: Mapping[str, PlacingOptions],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._placement = placement
        self._clock = clock
        self._scalers = {kind: Scaler(placing) for kind, placing in kinds.items()}
        self.replicas: dict[str, Known] = {}  # by name; without an address until it serves

    async def run(self) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as group:
            for name in self._placement.running():
                if kind_of(name) in self._scalers:
                    self._begin(group, name)
            while True:
                for kind in self._scalers:
                    self._scale(group, kind)
                await anyio.sleep(TICK_S)

    def _scale(self, group: TaskGroup, kind: str) -> None:
        mine = {name: known for name, known in self.replicas.items() if kind_of(name) == kind}
        found = {name: known.staying for name, known in mine.items() if known.staying}
        num_starting = sum(not known.is_leaving for known in mine.values()) - len(found)
        change, why = self._scalers[kind].decide(found.values(), num_starting, self._clock())
        for _ in range(change):
            names = (f"{kind}-{number}" for number in itertools.count(1))
            self._begin(group, next(name for name in names if name not in self.replicas))
        if change > 0:
            notices.warning("%d more %s: %s", change, kind + "s" * (change > 1), why)
        if change < 0:
            # the emptiest; of equals the last name, often the newest replica
            goes = max(found, key=lambda name: (mine[name].num_free(kind), name))
            notices.warning("%s goes: %s", goes, why)
            mine[goes].is_leaving = True

    def _begin(self, group: TaskGroup, name: str) -> None:
        self.replicas[name] = Known("")
        group.start_soon(self._keep, name)

    async def _keep(self, name: str) -> None:
        """Start it, and again when it is gone, and drain it. One that cannot be started is dropped
        after a pause, and the scaler asks for another one."""
        known = self.replicas[name]
        try:
            while not known.is_leaving:
                if known.is_gone:
                    notices.warning("%s is gone; it is started again", name)
                    await self._placement.stop(name, 0.0)
                if known.is_gone or not known.address:  # the status of a lost process is forgotten
                    known = self.replicas[name] = Known(await self._placement.start(name))
                    notices.warning("%s is at %s", name, known.address)
                await anyio.sleep(TICK_S)
            await anyio.sleep(TICK_S)  # clients that were sent here may still arrive
            await self._placement.stop(name, DRAIN_S)
        except ChildProcessError as error:
            notices.warning("%s; next try in %g s", error, RETRY_S)
            self.replicas[name] = Known("")
            await self._placement.stop(name, 0.0)
            await anyio.sleep(RETRY_S)
        del self.replicas[name]


def kind_of(name: str) -> str:
    """server-2 -> server."""
    return name.rpartition("-")[0]


async def drain_all(
    placement: RayPlacement, names: Iterable[str], kinds: Iterable[str]
) -> list[str]:
    """Drain servers, then verifiers, which answer their last requests; the names of those among
    `names`. kinds: in starting order."""
    mine = [name for name in names if kind_of(name) in kinds]
    for kind in reversed(list(kinds)):
        async with anyio.create_task_group() as group:
            for name in mine:
                if kind_of(name) == kind:
                    group.start_soon(placement.stop, name, DRAIN_S)
    return mine

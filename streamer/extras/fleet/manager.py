"""How many replicas run: the scaling decision, and the loop that starts, restarts and drains.

Replicas are added when most places are taken or speech waits to be heard; a processor's load
decides nothing, since a model always fills it. One is removed when the others would still have
places to spare. It first gets no new clients until it is empty or PATIENCE_S are over; then it
drains. A replica keeps its name and port through restarts.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from streamer.extras.fleet.options import KindOptions
from streamer.extras.fleet.replica import ReplicaLost, ReplicaPlan
from streamer.extras.fleet.replicas import Roster
from streamer.net.service.admission import ReplicaStatus
from streamer.net.service.service import DRAIN_S

if TYPE_CHECKING:
    from streamer.extras.fleet.on_ray import RayPlacement

TICK_S = 0.25
PATIENCE_S = 30.0
RETRY_S = 5.0  # after a replica that could not be started
_logger = logging.getLogger("streamer.notice")  # its lines go to stderr


@dataclass(frozen=True)
class Scaling:
    """When replicas are added and removed. up_at: share of places taken above which some are added;
    down_at: share below which the others must stay if one is removed. lag_s: speech not heard yet
    by the median replica. up_pause_s: between two additions; down_pause_s: of low load."""

    up_at: float = 0.75
    down_at: float = 0.4  # far below up_at, or replicas would come and go at one load
    lag_s: float = 1.0
    up_pause_s: float = 10.0
    down_pause_s: float = 60.0


@dataclass(frozen=True)
class ScalingDecision:
    """add: number of replicas. drain: the address of one, or empty. why: for people."""

    add: int = 0
    drain: str = ""
    why: str = ""


class Scaler:
    """`least` to `most` replicas of one kind. Call `decide` every second or so."""

    def __init__(self, least: int, most: int, scaling: Scaling) -> None:
        self._least = least
        self._most = most
        self._scaling = scaling
        self._added_at = -math.inf
        self._spare_since: float | None = None

    def decide(
        self, staying: Mapping[str, ReplicaStatus], num_starting: int, now: float
    ) -> ScalingDecision:
        """staying: the status of the replicas that answer and do not leave, by address.
        num_starting: replicas that were asked for and do not answer yet."""
        num = len(staying) + num_starting
        if num < self._least:
            return ScalingDecision(self._least - num, why=f"{num} replicas, at least {self._least}")
        found = list(staying.values())
        # the median, so that one slow machine does not call for more replicas
        lag_s = statistics.median_low(s.lag_s for s in found) if found else 0.0
        wanted, why = self._wanted(found, num, lag_s)
        if wanted > num and now - self._added_at >= self._scaling.up_pause_s:
            self._added_at, self._spare_since = now, None
            return ScalingDecision(wanted - num, why=why)
        if num_starting or lag_s > self._scaling.lag_s or not self._can_spare_one(found):
            self._spare_since = None
            return ScalingDecision()
        if self._spare_since is None:
            self._spare_since = now
        if now - self._spare_since < self._scaling.down_pause_s:
            return ScalingDecision()
        self._spare_since = now
        # the emptiest; of equals the last address, often the newest replica
        goes = max(staying, key=lambda address: (-staying[address].taken, address))
        return ScalingDecision(drain=goes, why=f"{staying[goes].taken} places of it taken")

    def _wanted(self, found: Sequence[ReplicaStatus], num: int, lag_s: float) -> tuple[int, str]:
        """How many there should be, and why."""
        if not found:
            return num, ""
        taken = sum(s.taken for s in found)
        wanted = math.ceil(taken / (min(s.limit for s in found) * self._scaling.up_at))
        why = f"{taken} places taken"
        if wanted <= num and lag_s > self._scaling.lag_s:
            wanted, why = num + 1, f"{lag_s:.1f} s of speech unheard"
        return min(wanted, self._most), why

    def _can_spare_one(self, found: Sequence[ReplicaStatus]) -> bool:
        if len(found) <= self._least:
            return False
        left = sum(s.limit for s in found) - min(found, key=lambda s: s.taken).limit
        return sum(s.taken for s in found) <= left * self._scaling.down_at


@dataclass
class Replica:
    """A wanted replica. address: empty until it serves."""

    name: str
    kind: str
    address: str = ""
    is_leaving: bool = False
    is_reviving: bool = False


class Manager:
    """`run` it with the roster of the director."""

    def __init__(
        self,
        placement: RayPlacement,
        roster: Roster,
        kinds: Mapping[str, KindOptions],
        plan: Callable[[str, int], ReplicaPlan],
        scaling: Scaling,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._placement = placement
        self._roster = roster
        self._kinds = kinds
        self._plan = plan
        self._clock = clock
        self._scalers = {
            kind: Scaler(o.placing.least, o.placing.most, scaling) for kind, o in kinds.items()
        }
        self.replicas: dict[str, Replica] = {}
        self._group: TaskGroup

    async def run(self) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as self._group:
            for name in self._placement.running():
                kind = name.rpartition("-")[0]
                if kind in self._kinds:
                    self._begin(name, kind)
            while True:
                self.tick()
                await anyio.sleep(TICK_S)

    async def stop_all(self) -> None:
        """Drain every replica."""
        await drain_all(self._placement, list(self.replicas), self._kinds)

    def tick(self) -> None:
        """Decide once for each kind, and revive lost replicas."""
        answering = {known.address: known for known in self._roster.answering}
        for kind, scaler in self._scalers.items():
            mine = [r for r in self.replicas.values() if r.kind == kind]
            there = [answering[r.address] for r in mine if r.address in answering]
            staying = {k.address: k.status for k in there if k.status and not k.is_ending}
            num_starting = sum(r.address not in answering and not r.is_leaving for r in mine)
            self._obey(kind, scaler.decide(staying, num_starting, self._clock()))
        lost = [known for known in self._roster.known if known.is_gone]
        gone = {k.address: k.last.pid if k.last else 0 for k in lost}
        for replica in self.replicas.values():
            if replica.address in gone and not (replica.is_leaving or replica.is_reviving):
                replica.is_reviving = True
                self._group.start_soon(self._revive, replica, gone[replica.address])

    def _obey(self, kind: str, decision: ScalingDecision) -> None:
        for _ in range(decision.add):
            self._begin(self._free_name(kind), kind)
        if decision.add:
            kinds = kind + "s" * (decision.add > 1)
            _logger.warning("%d more %s: %s", decision.add, kinds, decision.why)
        if decision.drain:
            _logger.warning("one %s goes: %s", kind, decision.why)
            replica = next(r for r in self.replicas.values() if r.address == decision.drain)
            replica.is_leaving = True
            self._roster.leave(replica.address)
            self._group.start_soon(self._end, replica)

    def _free_name(self, kind: str) -> str:
        number = 1
        while f"{kind}-{number}" in self.replicas:
            number += 1
        return f"{kind}-{number}"

    def _begin(self, name: str, kind: str) -> None:
        self.replicas[name] = Replica(name, kind)
        self._group.start_soon(self._start, self.replicas[name])

    async def _start(self, replica: Replica) -> None:
        number = int(replica.name.rpartition("-")[2])
        plan = self._plan(replica.kind, number)
        placing = self._kinds[replica.kind].placing
        if await self._serves(replica, self._placement.start(replica.name, plan, placing)):
            _logger.warning("%s is at %s", replica.name, replica.address)

    async def _revive(self, replica: Replica, pid: int) -> None:
        """Its old address is polled meanwhile, so it is found as soon as it answers."""
        _logger.warning("%s is gone; it is started again", replica.name)
        if await self._serves(replica, self._placement.revive(replica.name, pid)):
            replica.is_reviving = False
            self._roster.expect(replica.address)

    async def _serves(self, replica: Replica, starting: Awaitable[str]) -> bool:
        """Wait for its address. One that cannot be started is dropped, and the scaler asks for
        another one after a pause."""
        try:
            replica.address = await starting
        except ReplicaLost as error:
            _logger.warning("%s; next try in %g s", error, RETRY_S)
            replica.address = ""
            await self._placement.stop(replica.name, 0)
            await anyio.sleep(RETRY_S)
            del self.replicas[replica.name]
        self._publish()
        return bool(replica.address)

    async def _end(self, replica: Replica) -> None:
        """Drain it once it is empty, or after PATIENCE_S."""
        with anyio.move_on_after(PATIENCE_S):
            while self._num_taken(replica):
                await anyio.sleep(TICK_S)
        await self._placement.stop(replica.name, DRAIN_S)
        del self.replicas[replica.name]
        self._publish()

    def _num_taken(self, replica: Replica) -> int:
        found = (k for k in self._roster.answering if k.address == replica.address)
        return sum(len(k.sent) + (k.status.taken if k.status else 0) for k in found)

    def _publish(self) -> None:
        self._roster.set(r.address for r in self.replicas.values() if r.address)


async def drain_all(placement: RayPlacement, names: Sequence[str], kinds: Iterable[str]) -> None:
    """Drain servers, then verifiers, which answer the servers' last requests. kinds: in the order
    of a start."""
    for kind in reversed(list(kinds)):
        async with anyio.create_task_group() as group:
            for name in names:
                if name.rpartition("-")[0] == kind:
                    group.start_soon(placement.stop, name, DRAIN_S)

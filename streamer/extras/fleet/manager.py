"""Keeps as many replicas as are wanted. In: what each says, the policy. Out: starts and ends.

One loop, every TICK_S. A replica has a name and a port of its own for as long as it is wanted, also
through restarts. Whoever leaves is first given nobody new, until it is empty or PATIENCE_S is over;
then it drains.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from streamer.extras.fleet.choice import Candidate
from streamer.extras.fleet.config import KindOptions
from streamer.extras.fleet.on_ray import ReplicaLost
from streamer.extras.fleet.options import PlacingOptions, ScalingOptions
from streamer.extras.fleet.roster import Roster
from streamer.extras.fleet.scaling import Scaler, ScalingDecision
from streamer.extras.fleet.served import ReplicaPlan
from streamer.net.service.service import DRAIN_S

TICK_S = 0.25
PATIENCE_S = 30.0
RETRY_S = 5.0  # after a replica that could not be started
_logger = logging.getLogger("streamer.notice")  # its lines go to stderr


class Placement(Protocol):
    """Who starts processes: on_ray.py."""

    def running(self) -> Sequence[str]: ...

    async def start(self, name: str, plan: ReplicaPlan, placing: PlacingOptions) -> str: ...

    async def revive(self, name: str, pid: int) -> str: ...

    async def stop(self, name: str, within_s: float) -> None: ...


@dataclass
class Replica:
    """One that is wanted. address: empty until it is served."""

    name: str
    kind: str
    address: str = ""
    is_leaving: bool = False
    is_revived: bool = False  # just now


class Manager:
    """`run` it; its roster is that of the director."""

    def __init__(
        self,
        placement: Placement,
        roster: Roster,
        kinds: Mapping[str, KindOptions],
        scaling: ScalingOptions,
        plan: Callable[[str, int], ReplicaPlan],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._placement = placement
        self._roster = roster
        self._kinds = kinds
        self._plan = plan
        self._clock = clock
        self._scalers = {
            kind: Scaler(scaling, o.placing.least, o.placing.most) for kind, o in kinds.items()
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
        """Every replica drained and gone."""
        await drain_all(self._placement, list(self.replicas), self._kinds)

    def tick(self) -> None:
        """Look once."""
        candidates = {c.address: c for c in self._roster.candidates}
        for kind in self._kinds:
            mine = [r for r in self.replicas.values() if r.kind == kind]
            there = [candidates[r.address] for r in mine if r.address in candidates]
            num_starting = sum(r.address not in candidates and not r.is_leaving for r in mine)
            self._obey(kind, self._scalers[kind].decide(there, num_starting, self._clock()), there)
        gone = {k.address: k.pid for k in self._roster.known if k.is_gone}
        for replica in self.replicas.values():
            if replica.address in gone and not (replica.is_leaving or replica.is_revived):
                replica.is_revived = True
                self._group.start_soon(self._revive, replica, gone[replica.address])

    def _obey(self, kind: str, decision: ScalingDecision, there: Sequence[Candidate]) -> None:
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
        """One that cannot be started is wanted again after a pause."""
        number = int(replica.name.rpartition("-")[2])
        plan = self._plan(replica.kind, number)
        placing = self._kinds[replica.kind].placing
        try:
            replica.address = await self._placement.start(replica.name, plan, placing)
        except (ReplicaLost, TimeoutError) as error:
            await self._give_up(replica, error)
            return
        self._publish()
        _logger.warning("%s is at %s", replica.name, replica.address)

    async def _revive(self, replica: Replica, pid: int) -> None:
        """It is asked for at its old address meanwhile: there it is again as soon as it answers."""
        _logger.warning("%s is gone; it comes back under the same name", replica.name)
        try:
            replica.address = await self._placement.revive(replica.name, pid)
        except (ReplicaLost, TimeoutError) as error:
            await self._give_up(replica, error)
            return
        replica.is_revived = False
        self._publish()
        self._roster.expect(replica.address)

    async def _give_up(self, replica: Replica, error: Exception) -> None:
        _logger.warning("%s; it is tried again in %g s", error, RETRY_S)
        replica.address = ""
        await self._placement.stop(replica.name, 0)
        await anyio.sleep(RETRY_S)
        del self.replicas[replica.name]
        self._publish()

    async def _end(self, replica: Replica) -> None:
        """Empty, or drained."""
        with anyio.move_on_after(PATIENCE_S):
            while self._num_taken(replica):
                await anyio.sleep(TICK_S)
        await self._placement.stop(replica.name, DRAIN_S)
        del self.replicas[replica.name]
        self._publish()

    def _num_taken(self, replica: Replica) -> int:
        found = (c for c in self._roster.candidates if c.address == replica.address)
        return sum(c.status.taken + c.num_sent for c in found)

    def _publish(self) -> None:
        self._roster.set(r.address for r in self.replicas.values() if r.address)


async def drain_all(placement: Placement, names: Sequence[str], kinds: Iterable[str]) -> None:
    """Servers, then verifiers: what was said is answered with the verifier that hears it. kinds: in
    the order of a start."""
    for kind in reversed(list(kinds)):
        async with anyio.create_task_group() as group:
            for name in names:
                if name.rpartition("-")[0] == kind:
                    group.start_soon(placement.stop, name, DRAIN_S)

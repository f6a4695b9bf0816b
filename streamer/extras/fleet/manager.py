"""How many replicas run: the scaling decision, and the life of each from its start to its drain.

Replicas are added when most places are taken or speech waits to be heard; a processor's load
decides nothing, since a model always fills it. One is removed when the others would still have
places to spare. It first gets no new clients until it is empty or PATIENCE_S are over; then it
drains. A replica keeps its name and port through restarts.
"""

from __future__ import annotations

import itertools
import logging
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import anyio
from anyio.abc import TaskGroup

from streamer.extras.fleet.on_ray import Plan, RayPlacement, ReplicaLost
from streamer.extras.fleet.options import KindOptions
from streamer.extras.fleet.replicas import Known, Roster
from streamer.net.service.admission import ReplicaStatus
from streamer.net.service.service import DRAIN_S

TICK_S = 0.25
PATIENCE_S = 30.0
RETRY_S = 5.0  # after a replica that could not be started
UP_AT = 0.75  # share of the places taken above which replicas are added
DOWN_AT = 0.4  # the same of the others if one is removed; far below, or replicas come and go
LAG_S = 1.0  # of speech that the median replica has not heard
UP_PAUSE_S = 10.0  # between two additions
DOWN_PAUSE_S = 60.0  # of low load
_logger = logging.getLogger("streamer.notice")  # its lines go to stderr


class Scaler:
    """`least` to `most` replicas of one kind. Call `decide` every second or so."""

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most
        self._added_at = -math.inf
        self._busy_at: float | None = None  # when none could be spared, for the last time

    def decide(
        self, found: Sequence[ReplicaStatus], num_starting: int, now: float
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
        more = self._wanted(taken, limit, lag_s, num) - num
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

    def _wanted(self, taken: int, limit: int, lag_s: float, num: int) -> int:
        if not limit:
            return num
        wanted = math.ceil(taken / (limit * UP_AT))
        return min(max(wanted, num + 1) if lag_s > LAG_S else wanted, self._most)


class Manager:
    """`run` it with the roster of the director."""

    def __init__(
        self,
        placement: RayPlacement,
        roster: Roster,
        kinds: Mapping[str, KindOptions],
        plan: Callable[[str, int], Plan],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._placement = placement
        self._roster = roster
        self._plan = plan
        self._clock = clock
        self._scalers = {k: Scaler(o.placing.least, o.placing.most) for k, o in kinds.items()}
        self.replicas: dict[str, Known | None] = {}  # by name; None until it serves

    async def run(self) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as group:
            for name in self._placement.running():
                self._begin(group, name)
            while True:
                for kind in self._scalers:
                    self._scale(group, kind)
                await anyio.sleep(TICK_S)

    def _scale(self, group: TaskGroup, kind: str) -> None:
        mine = {name: k for name, k in self.replicas.items() if kind_of(name) == kind}
        mine = {name: k for name, k in mine.items() if not (k and k.is_leaving)}
        there = {name: k.staying for name, k in mine.items() if k and k.staying}
        num_starting = len(mine) - len(there)
        change, why = self._scalers[kind].decide([*there.values()], num_starting, self._clock())
        for _ in range(change):
            names = (f"{kind}-{number}" for number in itertools.count(1))
            self._begin(group, next(name for name in names if name not in self.replicas))
        if change > 0:
            _logger.warning("%d more %s: %s", change, kind + "s" * (change > 1), why)
        if change < 0:
            # the emptiest; of equals the last name, often the newest replica
            goes = max(there, key=lambda name: (-there[name].taken, name))
            _logger.warning("%s goes: %s", goes, why)
            if known := mine[goes]:
                known.is_leaving = True

    def _begin(self, group: TaskGroup, name: str) -> None:
        if kind_of(name) in self._scalers:
            self.replicas[name] = None
            group.start_soon(self._keep, name)

    async def _keep(self, name: str) -> None:
        """Start it, restart it while it should run, and drain it. One that cannot be started is
        dropped after a pause, and the scaler asks for another one."""
        drain_s = DRAIN_S
        try:
            await self._serve(name)
        except ReplicaLost as error:
            _logger.warning("%s; next try in %g s", error, RETRY_S)
            drain_s, self.replicas[name] = 0.0, None
            self._publish()
        await self._placement.stop(name, drain_s)
        if not drain_s:
            await anyio.sleep(RETRY_S)
        del self.replicas[name]
        self._publish()

    async def _serve(self, name: str) -> None:
        """Until it is to leave, and is empty or PATIENCE_S are over. Raises ReplicaLost."""
        plan = self._plan(kind_of(name), int(name.rpartition("-")[2]))
        known = self._found(name, await self._placement.start(plan))
        _logger.warning("%s is at %s", name, known.address)
        while not known.is_leaving:
            await anyio.sleep(TICK_S)
            if known.is_gone:
                _logger.warning("%s is gone; it is started again", name)
                known = self._found(name, await self._placement.restart(name))
        with anyio.move_on_after(PATIENCE_S):
            await anyio.sleep(TICK_S)  # clients that were sent here may still arrive
            while known.answers and known.status and known.status.taken:
                await anyio.sleep(TICK_S)

    def _found(self, name: str, address: str) -> Known:
        known = self.replicas[name] = Known(address)  # forgets the status of the lost process
        self._publish()
        return known

    def _publish(self) -> None:
        self._roster.known = {known.address: known for known in self.replicas.values() if known}


def kind_of(name: str) -> str:
    """server-2 -> server."""
    return name.rpartition("-")[0]


async def drain_all(placement: RayPlacement, names: Iterable[str], kinds: Iterable[str]) -> None:
    """Drain servers, then verifiers, which answer the servers' last requests. kinds: in the order
    of a start."""
    for kind in reversed(list(kinds)):
        async with anyio.create_task_group() as group:
            for name in list(names):
                if kind_of(name) == kind:
                    group.start_soon(placement.stop, name, DRAIN_S)

"""The manager's loop over a placement that remembers: who is started, revived and drained."""

from contextlib import asynccontextmanager

import anyio
import pytest
from patience import until

from streamer.extras.fleet import manager as of_manager
from streamer.extras.fleet.manager import Manager, Scaling, drain_all
from streamer.extras.fleet.options import of
from streamer.extras.fleet.replica import ReplicaLost, ReplicaPlan
from streamer.extras.fleet.replicas import Roster
from streamer.net.service.admission import ReplicaStatus, incarnation_of

PID = 4_711


class Placement:
    """Starts nothing. `fails`: names that cannot be started."""

    def __init__(self, running=()):
        self.fails = set()
        self.log = []
        self._running = running

    def running(self):
        return self._running

    async def start(self, name, plan, placing):
        self.log.append(("start", name, plan.given["port"]))
        if name in self.fails:
            raise ReplicaLost(f"{name}: no")
        return f"ws://{name}"

    async def revive(self, name, pid):
        self.log.append(("revive", name, pid))
        return f"ws://{name}"

    async def stop(self, name, within_s):
        self.log.append(("stop", name))


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(of_manager, "TICK_S", 0.01)
    monkeypatch.setattr(of_manager, "RETRY_S", 0.05)


@asynccontextmanager
async def managing(placement, least=2, most=4):
    """A running manager of servers: (it, its roster, its clock)."""
    clock = Clock()
    roster = Roster(clock=clock)
    kinds = of({"server": {"least": least, "most": most}}).kinds
    manager = Manager(
        placement,
        roster,
        kinds,
        lambda kind, number: ReplicaPlan(kind, {"port": 9_099 + number}, "h"),
        Scaling(up_pause_s=1, down_pause_s=5),
        clock,
    )
    async with anyio.create_task_group() as group:
        group.start_soon(manager.run)
        yield manager, roster, clock
        group.cancel_scope.cancel()


def answer(roster, taken=0, limit=10, but=()):
    """Every address answers; those of `but` refuse the connection."""
    for known in roster.known:
        name = known.address.removeprefix("ws://")
        if name in but:
            known.missed(0.0, is_refused=True)
        else:
            status = ReplicaStatus(incarnation_of(name), "server", PID, False, taken, limit, 0, 0.0)
            known.heard(status, 0.0)


async def test_more_come_and_the_emptiest_leaves_when_it_is_empty():
    placement = Placement()
    async with managing(placement, least=1) as (manager, roster, clock):
        await until(lambda: len(roster.known) == 1)
        answer(roster, taken=20)
        clock.now = 10.0
        await until(lambda: len(roster.known) == 3)
        answer(roster, taken=1)
        for now in (11.0, 17.0):
            clock.now = now
            await anyio.sleep(0.05)
        await until(lambda: any(known.is_leaving for known in roster.known))
        assert ("stop", "server-3") not in placement.log  # it is not empty yet
        answer(roster, taken=0)
        await until(lambda: ("stop", "server-3") in placement.log)
        await until(lambda: "server-3" not in manager.replicas)
        assert {known.address for known in roster.known} == {"ws://server-1", "ws://server-2"}


async def test_at_the_end_verifiers_outlive_the_servers_that_need_them():
    placement = Placement()
    kinds = of({"server": {}, "verifier": {"port": 9_200}}).kinds
    await drain_all(placement, ["verifier-1", "server-1", "server-2", "other-1"], kinds)
    assert [name for _, name in placement.log] == ["server-1", "server-2", "verifier-1"]

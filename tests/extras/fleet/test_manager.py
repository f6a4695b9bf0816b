"""The manager over a placement that remembers, and a replica's end of it."""

import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from types import SimpleNamespace

import anyio
import pytest
from far import free_port
from processes import ENVIRONMENT, until, wait_for
from wire import http

from streamer.extras.fleet import manager as of_manager
from streamer.extras.fleet.command import of
from streamer.extras.fleet.director import ReplicaStatus
from streamer.extras.fleet.manager import Manager, Plan, ReplicaHost, drain_all


class Placement:
    """Starts nothing. `fails`: names that cannot be started."""

    def __init__(self, running=()):
        self.fails = set()
        self.log = []
        self._running = running

    def running(self):
        return self._running

    async def start(self, name):
        self.log.append(("start", name))
        if name in self.fails:
            raise ChildProcessError(f"{name}: no")
        return f"ws://{name}"

    async def stop(self, name, within_s):
        self.log.append(("stop", name))


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(of_manager, "TICK_S", 0.01)
    monkeypatch.setattr(of_manager, "RETRY_S", 0.05)
    monkeypatch.setattr(of_manager, "UP_PAUSE_S", 1.0)
    monkeypatch.setattr(of_manager, "DOWN_PAUSE_S", 5.0)


@asynccontextmanager
async def managing(placement, least=2, most=4):
    """A running manager of servers: (it, its clock)."""
    clock = SimpleNamespace(now=0.0)
    kinds = of({"server": {"least": least, "most": most}}).kinds

    manager = Manager(placement, kinds, lambda: clock.now)
    async with anyio.create_task_group() as group:
        group.start_soon(manager.run)
        yield manager, clock
        group.cancel_scope.cancel()


def known(manager):
    """The replicas that serve, by address."""
    return {each.address: each for each in manager.replicas.values() if each.address}


def answer(manager, taken=0, limit=10, but=()):
    """Every address answers; those of `but` refuse the connection."""
    for each in known(manager).values():
        name = each.address.removeprefix("ws://")
        each.is_gone = name in but
        name = f"{name}.0"
        each.status = ReplicaStatus(name, "server", 4_711, False, taken, limit, 0.0)


async def test_more_come_and_the_emptiest_leaves():
    placement = Placement()
    async with managing(placement, least=1) as (manager, clock):
        await until(lambda: len(known(manager)) == 1)
        answer(manager, taken=20)
        clock.now = 10.0
        await until(lambda: len(known(manager)) == 3)
        answer(manager, taken=1)
        for now in (11.0, 17.0):
            clock.now = now
            await anyio.sleep(0.05)
        await until(lambda: ("stop", "server-3") in placement.log)
        await until(lambda: "server-3" not in manager.replicas)
        assert known(manager).keys() == {"ws://server-1", "ws://server-2"}


async def test_one_that_is_gone_is_started_again_once_and_an_earlier_one_is_taken():
    placement = Placement(running=["server-1", "other-1"])
    async with managing(placement) as (manager, _):
        await until(lambda: len(known(manager)) == 2)
        answer(manager, but=["server-2"])
        await until(lambda: len(placement.log) == 4)
        await anyio.sleep(0.1)
        assert [what for what, _ in placement.log] == ["start", "start", "stop", "start"]
        assert list(manager.replicas) == ["server-1", "server-2"]


async def test_one_that_cannot_start_is_tried_again_after_a_pause(caplog):
    placement = Placement()
    placement.fails = {"server-1"}
    async with managing(placement, least=1) as (manager, _):
        await until(lambda: placement.log.count(("start", "server-1")) == 2)
        placement.fails.clear()
        await until(lambda: known(manager).keys() == {"ws://server-1"})
        assert list(manager.replicas) == ["server-1"]
    assert "server-1: no; next try in 0.05 s" in caplog.messages


async def test_at_the_end_verifiers_outlive_the_servers_that_need_them():
    placement = Placement()
    kinds = of({"server": {}, "verifier": {"port": 9_200}}).kinds
    names = ["verifier-1", "server-1", "server-2"]
    assert await drain_all(placement, [*names, "other-1"], kinds) == names
    assert [name for _, name in placement.log] == ["server-1", "server-2", "verifier-1"]


HOSTED = """
import time
from streamer.extras.fleet import manager
from streamer.extras.fleet.manager import Plan, ReplicaHost

manager.node_host = lambda: "127.0.0.1"  # Ray knows it, and need not be installed
host = ReplicaHost(Plan(*{0!r}))
while not host.address():
    time.sleep(0.02)
print("there", flush=True)
time.sleep(300)
"""


def plan_of(**more):
    given = {"port": free_port(), "name": "verifier-1", **more}
    words = [f"--{name}={value}" for name, value in given.items()]
    return Plan("verifier-1", ["verifier", *words], {}, f"ws://127.0.0.1:{given['port']}")


def status(plan):
    """The server's status; empty if none answers."""
    try:
        return json.loads(http(plan.address, "/statusz")[1])
    except OSError:
        return {}


def test_a_drain_ends_the_server_of_a_host(monkeypatch):
    plan = plan_of()
    monkeypatch.setattr(of_manager, "node_host", lambda: "127.0.0.1")  # Ray need not be installed
    host = ReplicaHost(plan)
    assert repr(host) == "verifier-1", "Ray puts it before each line"
    wait_for(host.address)
    assert host.address() == plan.address
    assert status(plan)["name"].startswith("verifier-1.")
    host.drain()
    assert status(plan) == {}


def test_one_that_cannot_start_says_why():
    host = ReplicaHost(plan_of(cloud="/nowhere/at/all"))
    with pytest.raises(RuntimeError, match="no such model directory"):
        wait_for(host.address)
    host.drain()


def test_nothing_is_left_of_a_host_that_is_killed():
    """Also where its server hangs."""
    plan = plan_of()
    command = [sys.executable, "-c", HOSTED.format((plan.name, plan.words, {}, plan.address))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as hosting:
        assert hosting.stdout.readline() == b"there\n"
        pid = status(plan)["pid"]
        os.kill(pid, signal.SIGSTOP)
        hosting.kill()
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"))

"""The manager's loop over a placement that remembers: who is started, revived and drained; and a
replica's end of it."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import asynccontextmanager

import anyio
import pytest
from far import free_port
from patience import until, wait_for
from processes import ENVIRONMENT

from streamer.cli import build_parser
from streamer.extras.fleet import manager as of_manager
from streamer.extras.fleet.manager import Manager, Scaling, drain_all
from streamer.extras.fleet.options import of
from streamer.extras.fleet.replica import ReplicaHost, ReplicaLost, ReplicaPlan
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
    scaling = Scaling(up_pause_s=1, down_pause_s=5)

    def plan(kind, number):
        return ReplicaPlan(kind, {"port": 9_099 + number}, "h")

    manager = Manager(placement, roster, kinds, plan, scaling, clock)
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


HOSTED = """
import time
from streamer.extras.fleet.replica import ReplicaHost, ReplicaPlan

host = ReplicaHost(ReplicaPlan(*{0!r}))
while not host.address():
    time.sleep(0.02)
print("there", flush=True)
time.sleep(300)
"""


def plan_of(**more):
    given = {"host": "127.0.0.1", "port": free_port(), "name": "verifier-1", **more}
    return ReplicaPlan("verifier", given, "127.0.0.1")


def status(plan):
    """The server's status; empty if none answers."""
    try:
        url = f"http://127.0.0.1:{plan.given['port']}/statusz"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.loads(answer.read())
    except OSError:
        return {}


def test_a_plan_is_a_command_and_no_key_stands_in_it():
    given = {"allow_origin": ["https://a.org", "https://b.org"]}
    plan = ReplicaPlan("server", given | {"api_key": "alice", "cloud_key": "bob", "k": 3}, "h")
    found = vars(build_parser(["serve"]).parse_args(plan.words()))
    assert (found["allow_origin"], found["k"]) == (given["allow_origin"], 3)
    assert not {"alice", "bob"} & set(" ".join(plan.words()).split())
    assert plan.environment() == {"STREAMER_API_KEY": "alice", "STREAMER_CLOUD_KEY": "bob"}


def test_a_server_that_is_lost_comes_back_as_another_one_at_its_address():
    """Killed, and hung; a drain ends all of it."""
    plan = plan_of()
    host = ReplicaHost(plan)
    assert repr(host) == "verifier-1", "Ray puts it before each line"
    wait_for(host.address)
    for blow in (signal.SIGKILL, signal.SIGSTOP):
        address, before = host.address(), status(plan)
        os.kill(before["pid"], blow)
        if blow == signal.SIGSTOP:
            host.revive(before["pid"])
        wait_for(lambda name=before["name"]: status(plan).get("name", name) != name)
        wait_for(lambda address=address: host.address() == address)
        host.revive(before["pid"])
        assert host.address() == address, "the new one lives on"
    host.drain()
    assert status(plan) == {}


def test_one_that_cannot_start_says_why():
    with socket.create_server(("127.0.0.1", 0)) as other:
        for wrong, told in (
            ({"cloud": "/nowhere/at/all"}, "no such model directory"),
            ({"port": other.getsockname()[1]}, r"cannot listen on .+; choose another --port"),
        ):
            host = ReplicaHost(plan_of(**wrong))
            with pytest.raises(RuntimeError, match=told):
                wait_for(host.address)
            host.drain()


def test_output_that_is_not_utf_8_ends_no_host(tmp_path, monkeypatch):
    """Such as a line of a library of the system."""
    (tmp_path / "sitecustomize.py").write_text("import os; os.write(2, b'gr\\xfc\\xdfe\\n')")
    monkeypatch.syspath_prepend(tmp_path)
    host = ReplicaHost(plan_of(cloud="/nowhere/at/all"))
    with pytest.raises(RuntimeError, match="no such model directory"):
        wait_for(host.address)
    host.drain()


def test_nothing_is_left_of_a_host_that_is_killed():
    plan = plan_of()
    words = (plan.kind, plan.given, plan.shown_host)
    command = [sys.executable, "-c", HOSTED.format(words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as hosting:
        assert hosting.stdout.readline() == b"there\n"
        pid = status(plan)["pid"]
        hosting.kill()
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"))

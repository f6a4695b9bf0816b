"""A replica's real processes, without Ray: starting, dying, hanging, ending."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from processes import ENVIRONMENT

from streamer.extras.fleet.replica import ReplicaHost, ReplicaPlan

WITHIN_S = 60.0
HOSTED = """
import time
from streamer.extras.fleet.replica import ReplicaHost, ReplicaPlan

ReplicaHost(ReplicaPlan(*{0!r}))
print("there", flush=True)
time.sleep(300)
"""


def plan_of(**more):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = {"host": "127.0.0.1", "port": port, "name": "verifier-1", **more}
    return ReplicaPlan("verifier", given, "127.0.0.1")


def status(plan):
    """The server's status; empty if none answers."""
    try:
        url = f"http://127.0.0.1:{plan.given['port']}/statusz"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.loads(answer.read())
    except OSError:
        return {}


def wait_for(is_so):
    until = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def hosted():
    """(a host, its plan). A drain ends all of it."""
    plan = plan_of()
    host = ReplicaHost(plan)
    yield host, plan
    host.drain()
    assert status(plan) == {}


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_is_lost_comes_back_as_another_one_at_its_address(hosted, blow):
    host, plan = hosted
    address, before = host.address(), status(plan)
    os.kill(before["pid"], blow)
    if blow == signal.SIGSTOP:
        host.revive(before["pid"])
    wait_for(lambda: status(plan).get("name", before["name"]) != before["name"])
    wait_for(lambda: host.address() == address)
    assert host.revive(before["pid"]) == address, "the new one lives on"
    assert status(plan)["pid"] != before["pid"]


def test_its_lines_are_told_by_its_name(hosted):
    """Ray puts that before what a replica writes."""
    assert repr(hosted[0]) == "verifier-1"


def test_one_that_cannot_start_says_why():
    host = ReplicaHost(plan_of(cloud="/nowhere/at/all"))
    with pytest.raises(RuntimeError, match="no such model directory"):
        host.address()
    host.drain()


def test_one_whose_port_is_taken_says_so_and_the_way_out():
    with socket.create_server(("127.0.0.1", 0)) as other:
        host = ReplicaHost(plan_of(port=other.getsockname()[1]))
        with pytest.raises(
            RuntimeError, match=r"cannot listen on .+; choose another first_port in \[verifier\]"
        ):
            host.address()


def test_nothing_is_left_of_a_host_that_is_killed():
    plan = plan_of()
    words = (plan.kind, plan.given, plan.shown_host)
    command = [sys.executable, "-c", HOSTED.format(words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as hosting:
        assert hosting.stdout.readline() == b"there\n"
        pid = status(plan)["pid"]
        hosting.kill()
    wait_for(lambda: status(plan) == {})
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"))

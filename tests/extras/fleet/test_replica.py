"""A replica's real processes, without Ray: starting, dying, hanging, ending."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from far import free_port
from patience import wait_for
from processes import ENVIRONMENT

from streamer.cli import build_parser
from streamer.extras.fleet.replica import ReplicaHost, ReplicaPlan

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

"""A real fleet on a real Ray: `streamer fleet` with two servers and two verifiers, a process each."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import soundfile
from patience import wait_for
from processes import ENVIRONMENT, streamer
from ray_fleets import DIRECTOR, come, fleet_on, idle, pcm_of, ray_cluster, say_anew, turn
from speech import SAMPLES
from websockets.asyncio.client import connect
from wire import ANSWER, COMMIT, describe_files, http, session_update, text_of

pytest.importorskip("ray", reason="Ray is not installed: pip install '.[scale]'")
pytestmark = pytest.mark.long  # Ray's own processes cost more than all other tests of the room

TOML = """
[director]
port = {0}
api_key = "alice,bob"
[server]
least = 2
most = 2
port = {1}
max_sessions = 2
mode = "exact"
verify_budget_s = 120
[verifier]
least = 2
most = 2
port = {2}
"""


def free_ports():
    """Three, each with one above it that is free too, most probably."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def get(url, path, key=None):
    """(status, body) of a GET."""
    return http(url, path, {"Authorization": f"Bearer {key}"} if key else None)[:2]


def replicas(url, kind):
    """The last status of each replica that answers."""
    rows = json.loads(get(url, "/v1/replicas")[1])
    found = [row["status"] for row in rows if row["status"] and row["answers"]]
    return [status for status in found if status["kind"] == kind]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """The address of its director."""
    file = tmp_path_factory.mktemp("fleet") / "fleet.toml"
    file.write_text(TOML.format(*free_ports()))
    command = [sys.executable, "-m", "streamer", "fleet", str(file)]
    # a Ray that is there already, or should be, is left alone
    environment = ENVIRONMENT | {"RAY_ADDRESS": "127.0.0.1:1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        url = process.stdout.readline().split()[2].replace("ws", "http", 1)
        wait_for(lambda: len(replicas(url, "server")) == len(replicas(url, "verifier")) == 2)
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.communicate()


def say(url, clip=SAMPLES[1], on_created=lambda session_id: None):
    """A client of websockets alone: (session id, the sentence)."""
    return asyncio.run(_say(url, clip, on_created))


async def _say(url, clip, on_created):
    audio, rate = soundfile.read(clip, dtype="int16", always_2d=True)
    address = f"{url.replace('http', 'ws', 1)}/v1/realtime"
    headers = {"Authorization": "Bearer alice"}
    async with connect(address, additional_headers=headers, open_timeout=60) as ws:
        session_id = json.loads(await ws.recv())["session"]["id"]
        await ws.send(session_update(rate, binary=True))
        await ws.send(audio[:, 0].tobytes())
        on_created(session_id)
        await ws.send(COMMIT)
        await ws.send(ANSWER)
        events = []
        while not events or events[-1]["type"] != "response.done":
            events.append(json.loads(await asyncio.wait_for(ws.recv(), 120)))
        return session_id, text_of(events)


@pytest.fixture(scope="module")
def wanted():
    return describe_files([SAMPLES[1]], "exact")[0]["text"]


def test_a_client_is_described_as_by_one_process(fleet, wanted):
    session_id, text = say(fleet)
    assert text == wanted
    assert session_id.startswith("sess_server-")


def test_a_verifier_that_is_killed_within_a_turn_is_told_it_again(fleet, wanted):
    """The other one is; not an id is another one. Then there are two again."""
    before = {status["name"]: status for status in replicas(fleet, "verifier")}

    def strike(_):
        busy = [s for s in replicas(fleet, "verifier") if s["taken"]] or list(before.values())
        for status in busy[:1]:
            os.kill(status["pid"], signal.SIGKILL)

    assert say(fleet, on_created=strike)[1] == wanted
    wait_for(lambda: {s["name"] for s in replicas(fleet, "verifier")} - before.keys())
    wait_for(lambda: len(replicas(fleet, "verifier")) == 2)


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_is_lost_is_told_and_comes_back(fleet, wanted, blow):
    """Its clients hear it from the director, and the others serve meanwhile."""
    lost = {}

    def strike(session_id):
        name = session_id.removeprefix("sess_").rpartition("_")[0]
        (lost["server"],) = [s for s in replicas(fleet, "server") if s["name"] == name]
        os.kill(lost["server"]["pid"], blow)
        lost["path"] = f"/v1/replica?resume={session_id}"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        say(fleet, on_created=strike)
    wait_for(lambda: get(fleet, lost["path"], "alice")[0] == 404)
    assert "gone; connect anew" in get(fleet, lost["path"], "alice")[1]
    assert say(fleet)[1] == wanted
    wait_for(lambda: len(replicas(fleet, "server")) == 2)
    assert lost["server"]["name"] not in {s["name"] for s in replicas(fleet, "server")}


def test_without_ray_s_head_sessions_links_and_the_director_go_on():
    """The manager waits for Ray, and delays no client. Ray's processes end themselves
    after 60 s without a head where nothing tells them to wait."""
    with ray_cluster() as (address, kill_head), fleet_on(address):
        asyncio.run(_outlive(kill_head))


async def _outlive(kill_head):
    here, pcm = f"http://127.0.0.1:{DIRECTOR}", pcm_of(SAMPLES[1])
    async with contextlib.AsyncExitStack() as stack:
        ws = await stack.enter_async_context(await come())
        await ws.recv()
        before = await turn(ws, pcm)
        kill_head()
        await stack.enter_async_context(idle(2))  # so the manager asks Ray for another server
        until = time.monotonic() + 75
        while time.monotonic() < until:
            assert await asyncio.to_thread(get, here, "/healthz") == (200, "ok\n")
            await asyncio.sleep(0.5)
        assert await turn(ws, pcm) == before
        assert await say_anew(SAMPLES[1]) == before


def test_a_cluster_that_is_not_there_is_told_at_once(tmp_path):
    file = tmp_path / "fleet.toml"
    file.write_text('[ray]\naddress = "127.0.0.1:1"\n[server]\nmost = 1\n', "utf-8")
    status, _, err = streamer("fleet", file)
    assert status == 2
    assert "joining Ray at 127.0.0.1:1" in err
    assert "[ray] no Ray at '127.0.0.1:1' ([Errno 111] Connection refused)" in err

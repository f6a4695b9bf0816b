"""A real fleet on a real Ray: `streamer fleet` with two servers and two verifiers, a process each."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import soundfile
from far import free_port
from processes import ENVIRONMENT, streamer, wait_for
from speech import SAMPLES
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from wire import ANSWER, COMMIT, describe_files, http, session_update, text_of, until

pytest.importorskip("ray", reason="Ray is not installed: pip install '.[scale]'")
pytestmark = pytest.mark.long  # Ray's own processes cost more than all other tests of the room
HEAD = 6_399  # port
FOR_RAY = {  # as docs/fleet.md says
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "86400",
}
PCM = soundfile.read(SAMPLES[1], dtype="int16")[0].tobytes()
TOML = """
[ray]
address = "{}"
[director]
port = {}
api_key = "alice,bob"
[server]
least = {least}
most = 2
port = {}
max_sessions = 4
mode = "exact"
verify_budget_s = 120
[verifier]
least = {least}
most = 2
port = {}
"""


@contextmanager
def fleet_on(address, least):
    """(a director's address, the process) of `streamer fleet` on Ray; least: of each kind."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        ports = list({free_port() for _ in range(9)})[:3]
        file.write(TOML.format(address, *ports, least=least))
        file.flush()
        command = [sys.executable, "-m", "streamer", "fleet", file.name]
        # a Ray that is there already, or should be, is left alone
        environment = ENVIRONMENT | {"RAY_ADDRESS": "127.0.0.1:1"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            yield process.stdout.readline().split()[2].replace("ws", "http", 1), process
        finally:
            process.terminate()
            process.communicate(timeout=120)


@contextmanager
def ray_cluster():
    """A Ray as `ray start --head` makes it: (its address, a function that kills its head)."""
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        options = ["--port", str(HEAD), "--num-cpus", "8", "--include-dashboard", "false"]
        command = [*ray, "start", "--head", "--temp-dir", folder, *options]
        environment = ENVIRONMENT | FOR_RAY
        try:
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
            yield f"127.0.0.1:{HEAD}", lambda: _kill(f"{folder}/", "gcs_server")
        finally:
            _kill(f"{folder}/")


def _kill(text, program=""):
    """SIGKILL to the processes with `text` in their command line; program: only those of it."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            own = Path(line[0]).name
            if any(text in word for word in line) and own == (program or own):
                os.kill(int(folder.name), signal.SIGKILL)


async def come(url):
    """A session as soon as there is a place."""
    address = f"{url.replace('http', 'ws', 1)}/v1/realtime"
    async with asyncio.timeout(300):
        while True:
            try:
                headers = {"Authorization": "Bearer alice"}
                ws = await connect(address, additional_headers=headers, open_timeout=60)
                assert json.loads(await ws.recv())["session"]["id"].startswith("sess_server-")
                return ws
            except InvalidStatus as refused:
                if refused.response.status_code != 503:
                    raise
                await asyncio.sleep(0.1)


async def turn(ws, before_commit=lambda: None):
    """The sentence of one turn of SAMPLES[1]."""
    await ws.send(session_update(16_000, binary=True))
    await ws.send(PCM)
    before_commit()
    await ws.send(COMMIT)
    await ws.send(ANSWER)
    return text_of(await until(ws, "response.done"))


def replicas(url, kind):
    """The last status of each replica that answers."""
    rows = json.loads(http(url, "/v1/replicas")[1])
    found = [row["status"] for row in rows if row["status"] and row["answers"]]
    return [status for status in found if status["kind"] == kind]


@pytest.fixture(scope="module")
def fleet():
    """The address of its director."""
    with fleet_on("local", 2) as (url, process):
        wait_for(lambda: len(replicas(url, "server")) == len(replicas(url, "verifier")) == 2)
        yield url
    assert process.returncode == 0


def test_a_verifier_that_is_killed_within_a_turn_is_told_it_again(fleet):
    """The other one is; the sentence is that of one process. Then there are two again."""
    before = {status["name"]: status for status in replicas(fleet, "verifier")}

    def strike():
        busy = [s for s in replicas(fleet, "verifier") if s["taken"]] or list(before.values())
        for status in busy[:1]:
            os.kill(status["pid"], signal.SIGKILL)

    async def speak():
        async with await come(fleet) as ws:
            return await turn(ws, strike)

    assert asyncio.run(speak()) == describe_files([SAMPLES[1]], "exact")[0]["text"]
    wait_for(lambda: {s["name"] for s in replicas(fleet, "verifier")} - before.keys())
    wait_for(lambda: len(replicas(fleet, "verifier")) == 2)


def test_without_ray_s_head_sessions_links_and_the_director_go_on():
    """The manager waits for Ray, and delays no client."""
    with ray_cluster() as (address, kill_head), fleet_on(address, 1) as (url, _):
        asyncio.run(_outlive(url, kill_head))


async def _outlive(url, kill_head):
    async with contextlib.AsyncExitStack() as stack:

        async def enter():
            return await stack.enter_async_context(await come(url))

        ws = await enter()
        before = await turn(ws)
        kill_head()
        anew = [await enter() for _ in range(2)]  # so the manager asks Ray for another server
        until = time.monotonic() + 75
        while time.monotonic() < until:
            assert (await asyncio.to_thread(http, url, "/healthz"))[0] == 200
            await asyncio.sleep(0.5)
        assert await turn(ws) == before
        assert await turn(anew[0]) == before


def test_a_cluster_that_is_not_there_is_told_at_once(tmp_path):
    file = tmp_path / "fleet.toml"
    file.write_text('[ray]\naddress = "127.0.0.1:1"\n[server]\nmost = 1\n', "utf-8")
    status, _, err = streamer("fleet", file)
    assert status == 2
    assert "joining Ray at 127.0.0.1:1" in err
    assert "[ray] no Ray at '127.0.0.1:1' ([Errno 111] Connection refused)" in err

"""A real Ray, a real fleet on it, and its clients."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import soundfile
from far import free_port
from processes import ENVIRONMENT
from speech import SAMPLES
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from wire import ANSWER, COMMIT, session_update, text_of, until

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
    """(a session as soon as there is a place, its id)."""
    address = f"{url.replace('http', 'ws', 1)}/v1/realtime"
    async with asyncio.timeout(300):
        while True:
            try:
                headers = {"Authorization": "Bearer alice"}
                ws = await connect(address, additional_headers=headers, open_timeout=60)
                return ws, json.loads(await ws.recv())["session"]["id"]
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

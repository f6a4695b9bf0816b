"""A real Ray and a real fleet on it, and clients that begin anew when their replica is lost."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import soundfile
from processes import ENVIRONMENT
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from wire import ANSWER, COMMIT, session_update, text_of

# ports; Ray's workers take theirs from 10002 to 19999
DIRECTOR, SERVERS, VERIFIERS, HEAD = 28_764, 29_100, 29_200, 6_399
URL = f"ws://127.0.0.1:{DIRECTOR}/v1/realtime"
FOR_RAY = {  # as docs/fleet.md says
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "86400",
}
LOST = (OSError, ConnectionClosed, InvalidHandshake)
KEY = {"Authorization": "Bearer alice"}
TOML = """
[ray]
address = "{address}"
[director]
port = {director}
api_key = "alice"
[server]
most = 3
port = {servers}
max_sessions = 4
mode = "exact"
[verifier]
most = 3
port = {verifiers}
"""


@contextmanager
def fleet_on(address):
    """`streamer fleet` on the Ray at `address`, with one server and one verifier at least."""
    ports = {"director": DIRECTOR, "servers": SERVERS, "verifiers": VERIFIERS}
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(TOML.format(address=address, **ports))
        file.flush()
        command = [sys.executable, "-m", "streamer", "fleet", file.name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        try:
            process.stdout.readline()
            yield
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
        subprocess.run(command, env=ENVIRONMENT | FOR_RAY, check=True, stdout=subprocess.DEVNULL)
        try:
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


def pcm_of(clip):
    return soundfile.read(clip, dtype="int16")[0].tobytes()


async def turn(ws, pcm):
    """One turn in an open session: its sentence. Raises OSError without an answer."""
    await ws.send(session_update(16_000, binary=True))
    await ws.send(pcm)
    await ws.send(COMMIT)
    await ws.send(ANSWER)
    events = []
    async for message in ws:
        events.append(json.loads(message))
        if events[-1]["type"] == "response.done":
            return text_of(events)
    raise OSError("the session was closed")


async def come(within_s=300.0):
    """A session as soon as there is a place. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                return await connect(URL, additional_headers=KEY, open_timeout=60)
            except InvalidStatus as refused:
                if refused.response.status_code != 503:
                    raise
                await asyncio.sleep(0.1)


async def say_anew(clip, within_s=300.0):
    """One turn, begun anew wherever its replica is lost."""
    async with asyncio.timeout(within_s):
        while True:
            with contextlib.suppress(*LOST):
                async with await come() as ws:
                    await ws.recv()
                    return await turn(ws, pcm_of(clip))
            await asyncio.sleep(0.1)


@asynccontextmanager
async def idle(num):
    """`num` sessions that say nothing."""
    async with AsyncExitStack() as stack:
        for _ in range(num):
            await stack.enter_async_context(await come())
        yield

"""A real server in exact mode for the clients, and `mic` with a recording as hardware."""

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from fake_microphone import environment
from speech import SAMPLES
from wire import serving

CLIENT = Path(__file__).parents[2] / "clients" / "streamer_client.py"


@pytest.fixture(scope="package")
def server():
    with serving("--mode", "exact") as (url, _):
        yield url


@pytest.fixture
async def listening(tmp_path):
    """start(url, ...): `mic` listens to a recording; its process. Ends with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(url, *arguments, recording=SAMPLES[1], stderr=subprocess.PIPE):
            command = [sys.executable, CLIENT, "mic", "--url", url, *arguments]
            options = {"stderr": stderr, "env": environment(tmp_path, recording)}
            mic = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, **options)
            stack.push_async_callback(stop, mic)
            return mic

        async def stop(mic):
            with contextlib.suppress(ProcessLookupError):
                mic.kill()
            await mic.communicate()

        yield start

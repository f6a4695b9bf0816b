"""Thousands of turns, and of sessions, leave nothing in a server that grows."""

from pathlib import Path

import pytest
import soundfile
from places import SAMPLES
from websockets.asyncio.client import connect
from wire import ANSWER, COMMIT, serving, session_update, until

NUM = 2_000
SETTLED = 1_000  # caches and the journal of events are full by then
LEAST_KB = 3_000  # noise: an allocator keeps and returns some MB

pytestmark = pytest.mark.long


@pytest.fixture
def process():
    """A server of its own: its address and its process."""
    with serving("--mode", "gated", "--max-sessions", 32, "--resume-s", 1) as found:
        yield found


def resident_kb(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


async def test_turns_of_one_session_leave_nothing(process):
    """Four kB a turn would be 4 MB."""
    url, server = process
    samples, _ = soundfile.read(SAMPLES[0], dtype="int16")
    second = samples[:16_000].tobytes()
    seen = {}
    async with connect(url, max_size=None) as ws:
        await ws.send(session_update(binary=True))
        await until(ws, "session.updated")
        for turn in range(NUM + 1):
            if turn in (SETTLED, NUM):
                seen[turn] = resident_kb(server.pid)
            await ws.send(second)
            await ws.send(COMMIT)
            await ws.send(ANSWER)
            await until(ws, "response.done")
    assert seen[NUM] - seen[SETTLED] < LEAST_KB


async def test_sessions_leave_nothing(process):
    url, server = process
    seen = {}
    for session in range(NUM + 1):
        if session in (SETTLED, NUM):
            seen[session] = resident_kb(server.pid)
        async with connect(url) as ws:
            await until(ws, "session.created")
    assert seen[NUM] - seen[SETTLED] < LEAST_KB

"""Clients of a fleet, for bench/fleet_live.py. In: an address. Out: turns, how sockets ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import soundfile
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from bench.socket_clients import UPDATE

CLIPS = sorted((Path(__file__).parents[1] / "samples").glob("*.wav"))
LOST = (OSError, ConnectionClosed, InvalidHandshake)
AGAIN_S = 0.1
PATIENCE_S = 300.0  # for one turn, with all that befalls it


@dataclass(frozen=True)
class LiveTurn:
    """One turn, as its client had it. ttft_s: from the commit to the first text. recovery_s: from
    the loss of its replica to the next session.created; 0 where nothing was lost."""

    text: str
    ttft_s: float
    recovery_s: float
    num_begun: int


def keyed(key: str = "quiet") -> dict[str, Any]:
    """Options of a connection."""
    headers = {"Authorization": f"Bearer {key}"}
    return {"compression": None, "open_timeout": 60, "additional_headers": headers}


def pcm_of(clip: Path) -> bytes:
    return bytes(soundfile.read(clip, dtype="int16")[0].tobytes())


async def say(url: str, clip: Path, key: str = "quiet") -> LiveTurn:
    """One turn, begun anew wherever its replica is lost. Raises TimeoutError."""
    pcm = pcm_of(clip)
    lost_at: float | None = None
    recovery_s = 0.0
    num_begun = 0
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                async with connect(url, **keyed(key)) as socket:
                    await socket.recv()  # session.created
                    num_begun += 1
                    if lost_at is not None:
                        recovery_s = max(recovery_s, time.perf_counter() - lost_at)
                        lost_at = None
                    text, ttft_s = await turn(socket, pcm)
                    return LiveTurn(text, ttft_s, recovery_s, num_begun)
            except LOST:
                if num_begun and lost_at is None:
                    lost_at = time.perf_counter()
                await asyncio.sleep(AGAIN_S)


async def turn(socket: ClientConnection, pcm: bytes) -> tuple[str, float]:
    """Said all at once, in a session that is open: (the sentence, seconds to its first text).
    Raises OSError where it has no answer."""
    await socket.send(json.dumps(UPDATE))
    await socket.send(pcm)
    await socket.send('{"type": "input_audio_buffer.commit"}')
    since = time.perf_counter()
    await socket.send('{"type": "response.create"}')
    ttft_s = 0.0
    text = ""
    async for message in socket:
        event = json.loads(message)
        if event["type"] == "response.output_text.delta":
            ttft_s = ttft_s or time.perf_counter() - since
            text += event["delta"]
        if event["type"] == "response.done":
            if event["response"]["status"] != "completed":
                raise OSError("the turn failed")
            return text, ttft_s
    raise OSError("the session was closed")


async def come(url: str, key: str = "quiet", within_s: float = 60.0) -> ClientConnection:
    """A session, as soon as there is a place. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                return await connect(url, **keyed(key))
            except InvalidStatus as refused:
                if refused.response.status_code != 503:
                    raise
                await asyncio.sleep(AGAIN_S)


@asynccontextmanager
async def idle(url: str, num: int) -> AsyncIterator[None]:
    """So many sessions that say nothing."""
    async with AsyncExitStack() as stack:
        for _ in range(num):
            await stack.enter_async_context(await come(url))
        yield


@dataclass(eq=False)
class Talker:
    """One that says a turn every other second, in one session as long as it lasts. `run` it until
    it is cancelled, or told to leave between two turns."""

    url: str
    codes: Counter[int] = field(default_factory=Counter)  # of sockets that it did not close
    num_said: int = 0
    num_failed: int = 0  # turns that were answered by an error
    is_leaving: bool = False

    async def run(self) -> None:
        pcm = pcm_of(CLIPS[0])
        while not self.is_leaving:
            socket: ClientConnection | None = None
            try:
                async with connect(self.url, **keyed()) as socket:
                    await socket.recv()
                    while not self.is_leaving:
                        await turn(socket, pcm)
                        self.num_said += 1
                        await asyncio.sleep(2)
            except LOST:
                if socket is not None:
                    code = socket.close_code
                    self.num_failed += code == 1000
                    self.codes[code or 1006] += code != 1000
                await asyncio.sleep(0.5)


async def push(url: str, key: str) -> None:
    """One of a tenant that wants more than its share: again at once whenever it is refused."""
    pcm = pcm_of(CLIPS[0])
    while True:
        with contextlib.suppress(*LOST, TimeoutError):
            async with connect(url, **keyed(key)) as socket:
                await socket.recv()
                while True:
                    await turn(socket, pcm)
        await asyncio.sleep(0.2)


@asynccontextmanager
async def pushing(url: str, num: int, key: str = "noisy") -> AsyncIterator[None]:
    """So many of these at once."""
    tasks = [asyncio.create_task(push(url, key)) for _ in range(num)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

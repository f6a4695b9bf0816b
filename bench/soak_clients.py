"""Clients that a server has to bear, and what is seen of it from outside. In: a URL, a process id.
Out: Sockets, times, figures of the process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from bench.clips import Clip
from bench.socket_clients import UPDATE, play

SAMPLES = Path(__file__).parent.parent / "samples"
COMMIT = '{"type": "input_audio_buffer.commit"}'
ANSWER = '{"type": "response.create"}'


def recordings() -> list[Clip]:
    """The bundled ones, 3 to 6 s each."""
    found = []
    for file in sorted(SAMPLES.glob("*.wav")):
        samples, rate = soundfile.read(file, dtype="float32")
        assert rate == 16_000
        found.append(Clip(file.stem, file, samples, {}))
    return found


def pcm_of(clip: Clip) -> bytes:
    return (clip.samples * 32767).astype("<i2").tobytes()


class Process:
    """A server's, from outside: Linux's books of it, and its own metrics."""

    def __init__(self, pid: int, url: str) -> None:
        self.pid = pid
        self._metrics = url.replace("ws", "http", 1).replace("/v1/realtime", "/metrics")

    @property
    def mb(self) -> float:
        """Resident memory."""
        return self._status("VmRSS") / 1024

    @property
    def threads(self) -> int:
        return self._status("Threads")

    @property
    def files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    @property
    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(text.split(f"{name}:")[1].split()[0])

    async def metric(self, name: str) -> float:
        """Of /metrics; NaN for what is not there."""
        text = await asyncio.to_thread(self._read)
        lines = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(lines[0].split()[1]) if lines else float("nan")

    def _read(self) -> str:
        with urllib.request.urlopen(self._metrics, timeout=60) as answer:
            return str(answer.read().decode())

    async def until(self, name: str, value: float, within_s: float = 60.0) -> None:
        """Wait until a metric has the value. Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            while await self.metric(name) != value:
                await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def served(max_sessions: int, *more: str) -> AsyncIterator[tuple[str, Process, Any]]:
    """A server process: (its address, what is seen of it, the process)."""
    command = [sys.executable, "-m", "streamer", "serve", "--port", "0"]
    command += ["--max-sessions", str(max_sessions), *more]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().split()[2]
        yield url, Process(process.pid, url), process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def idle(url: str, num: int, at_once: int = 50) -> AsyncIterator[list[ClientConnection]]:
    """`num` clients that are connected and say nothing."""
    free = asyncio.Semaphore(at_once)

    async def come() -> ClientConnection:
        async with free:
            socket = await connect(url, compression=None, ping_interval=None, open_timeout=60)
            await socket.recv()
            return socket

    sockets = await asyncio.gather(*(come() for _ in range(num)))
    try:
        yield sockets
    finally:
        await asyncio.gather(*(socket.close() for socket in sockets))


async def refusal_ms(url: str) -> float:
    """How long until one that has no place is told so, as plain HTTP."""
    started = time.perf_counter()
    try:
        async with connect(url, open_timeout=60):
            raise RuntimeError("it had a place")
    except InvalidStatus as refused:
        if (status := refused.response.status_code) != 503:
            raise RuntimeError(f"refused with {status}") from None
        return 1_000 * (time.perf_counter() - started)


async def talk(
    url: str, clips: Sequence[Clip], num_turns: int, delay_s: float, speed: float = 1.0
) -> list[float]:
    """Turn after turn, each in a session of its own, at `speed` times real time: ms from the last
    sample to the first text."""
    found = []
    for i in range(num_turns):
        timing = await play(url, clips[i % len(clips)], delay_s if i == 0 else 0.0, speed)
        if timing is not None:
            found.append(timing.ttft)
    return found


async def push(url: str, clip: Clip, speed: float) -> int:
    """One session that is fed without an end at `speed` times real time, a turn for each recording;
    until it is cancelled. Turns that were answered."""
    data, num = pcm_of(clip), 0
    async with connect(url, compression=None, ping_interval=None) as socket:
        await socket.send(json.dumps(UPDATE))

        async def read() -> None:
            nonlocal num
            async for message in socket:
                num += '"streamer.description"' in str(message)

        reading = asyncio.create_task(read())
        size = 2 * 320 * 5
        started, sent_s = time.perf_counter(), 0.0
        try:
            while True:
                for at in range(0, len(data), size):
                    await socket.send(data[at : at + size])
                    sent_s += 0.1
                    await asyncio.sleep(max(0.0, started + sent_s / speed - time.perf_counter()))
                await socket.send(COMMIT)
                await socket.send(ANSWER)
        except asyncio.CancelledError:
            return num
        finally:
            reading.cancel()


async def close_code_after(url: str, clip: Clip, begun: asyncio.Event) -> tuple[int, int]:
    """Speaks at real time until the server closes: (the code, deltas seen). `begun` is set in mid
    turn."""
    data, num = pcm_of(clip), 0
    async with connect(url, compression=None, ping_interval=None) as socket:
        await socket.send(json.dumps(UPDATE))

        async def speak() -> None:
            with contextlib.suppress(ConnectionClosed):
                while True:
                    for at in range(0, len(data), 3_200):
                        await socket.send(data[at : at + 3_200])
                        await asyncio.sleep(0.1)
                        begun.set()
                    await socket.send(COMMIT)
                    await socket.send(ANSWER)

        speaking = asyncio.create_task(speak())
        try:
            async for message in socket:
                num += '"streamer.delta"' in str(message)
        except ConnectionClosed:
            pass
        speaking.cancel()
        return socket.close_code or 1006, num


def cpu_of_others_s(server: Process) -> float:
    """CPU time so far of all on this machine but the server and this process."""
    fields = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    whole = (sum(fields[:3]) + sum(fields[5:8])) / 100  # all but idle and waiting for a disk
    own = os.times()
    return whole - server.cpu_s - own.user - own.system


def p(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent)) if len(values) else float("nan")

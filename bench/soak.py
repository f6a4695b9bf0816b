"""Load that a real `streamer serve` withstands, and what it leaves in the process.

    python -m bench.soak [--only idle talkers ...] [--minutes 60] [--talkers 64]

Each question starts a server of its own and observes it from outside: sockets, /proc, /metrics.

    idle      clients that say nothing, and one more than there are places
    talkers   many clients at real time, and how differently they fare
    slow      a client that never reads, and one whose network is gone
    sigterm   SIGTERM while 50 speak
    soak      load, drain, load again: what grows
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from bench.clips import Clip
from bench.common import ROOT, merge, options_of, table
from bench.processes import metric, serving
from bench.proxy import Proxy
from bench.socket_clients import ANSWER, COMMIT, UPDATE, pcm_of, play

Rows = dict[str, float]
PLACES = 128
SETTLE = 0.25  # share of the time in which caches and slots may still fill
STEP_S = 0.1


class Process:
    """A server observed from outside."""

    def __init__(self, pid: int, url: str) -> None:
        self.pid, self._url = pid, url

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
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(text.split(f"{name}:")[1].split()[0])

    async def metric(self, name: str) -> float:
        """One value of /metrics."""
        return await asyncio.to_thread(metric, self._url, name)

    async def until(self, name: str, value: float, within_s: float = 60.0) -> None:
        """Wait until a metric has the value. Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            while await self.metric(name) != value:
                await asyncio.sleep(0.1)


def recordings() -> list[Clip]:
    """The bundled samples."""
    files = sorted((ROOT / "samples").glob("*.wav"))
    return [Clip(f.stem, f, soundfile.read(f, dtype="float32")[0], {}) for f in files]


def p(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent)) if len(values) else float("nan")


@contextlib.contextmanager
def served(max_sessions: int, *more: str) -> Iterator[tuple[str, Process, Any]]:
    """A server: (its address, the view from outside, its process)."""
    command = ("streamer", "serve", "--port", "0", "--max-sessions", str(max_sessions), *more)
    with serving(*command) as (url, process):
        yield url, Process(process.pid, url), process


@contextlib.asynccontextmanager
async def silent(url: str, num: int) -> AsyncIterator[list[ClientConnection]]:
    """`num` clients that are connected and say nothing."""
    free = asyncio.Semaphore(50)

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
    """Milliseconds until a full server answers 503."""
    started = time.perf_counter()
    try:
        async with connect(url, open_timeout=60):
            raise RuntimeError("it had a place")
    except InvalidStatus as refused:
        if (status := refused.response.status_code) != 503:
            raise RuntimeError(f"refused with {status}") from None
        return 1_000 * (time.perf_counter() - started)


async def talk(url: str, clips: Sequence[Clip], num_turns: int, delay_s: float) -> list[float]:
    """Turn after turn, each in a session of its own: ms from the last sample to the first text."""
    turns = [await play(url, clips[i % len(clips)], 0 if i else delay_s) for i in range(num_turns)]
    return [timing.ttft for timing in turns if timing is not None]


async def speak(socket: ClientConnection, clip: Clip, speed: float, begun: asyncio.Event) -> None:
    """The clip as one turn after another at `speed` times real time, until the socket closes."""
    data, size = pcm_of(clip), 2 * int(16_000 * STEP_S)
    started, sent_s = time.perf_counter(), 0.0
    with contextlib.suppress(ConnectionClosed):
        while True:
            for at in range(0, len(data), size):
                await socket.send(data[at : at + size])
                begun.set()
                sent_s += STEP_S
                await asyncio.sleep(max(0.0, started + sent_s / speed - time.perf_counter()))
            await socket.send(COMMIT)
            await socket.send(ANSWER)


async def push(url: str, clip: Clip, speed: float, begun: asyncio.Event) -> int:
    """Speak without end; returns the close code."""
    async with connect(url, compression=None, ping_interval=None) as socket:
        await socket.send(json.dumps(UPDATE))
        speaking = asyncio.create_task(speak(socket, clip, speed, begun))
        try:
            with contextlib.suppress(ConnectionClosed):
                async for _ in socket:
                    pass
        finally:
            speaking.cancel()
        return socket.close_code or 1006


async def idle(options: argparse.Namespace) -> Rows:
    with served(options.idle + 1) as (url, seen, _):
        before = (seen.mb, seen.files)
        (alone,) = await talk(url, recordings(), 1, 0.0)
        async with silent(url, options.idle):
            mb, cpu, at = seen.mb, seen.cpu_s, time.perf_counter()
            await asyncio.sleep(5)
            cores = (seen.cpu_s - cpu) / (time.perf_counter() - at)
            (beside,) = await talk(url, recordings(), 1, 0.0)
            await seen.until("streamer_sessions", options.idle)
            async with silent(url, 1):
                refused = [await refusal_ms(url) for _ in range(50)]
        await seen.until("streamer_sessions", 0)
        left = seen.files
    return {
        "clients": options.idle,
        "KB each": 1024 * (mb - before[0]) / options.idle,
        "cores for all": cores,
        "first text beside them, x alone": beside / alone,
        "503 after, ms, median": p(refused, 50),
        "503 after, ms, most": max(refused),
        "descriptors left": left - before[1],
    }


async def talkers(options: argparse.Namespace) -> Rows:
    clips, rows = recordings(), {}
    with served(max(PLACES, options.talkers)) as (url, _, _):
        await talk(url, clips, 1, 0.0)
        for num in (1, options.talkers):
            turns = (talk(url, clips[i % len(clips) :] + clips, 3, 5 * i / num) for i in range(num))
            found = await asyncio.gather(*turns)
            every = [ms for one in found for ms in one]
            means = [float(np.mean(one)) for one in found]
            rows[f"first text, p50 ms, {num}"] = p(every, 50)
            rows[f"first text, p95 ms, {num}"] = p(every, 95)
            rows[f"worst talker's mean, x the median one's, {num}"] = max(means) / p(means, 50)
    return rows


async def slow(options: argparse.Namespace) -> Rows:
    with served(8, "--resume-s", "0") as (url, seen, _):
        socket = await connect(url, max_queue=1, compression=None, ping_interval=None)
        socket.transport.pause_reading()
        began = time.perf_counter()
        with contextlib.suppress(ConnectionClosed):
            for _ in range(500):
                await socket.send("nonsense")
        await seen.until("streamer_sessions", 0)
        cut_s = time.perf_counter() - began
        socket.transport.abort()
        port = int(url.split(":")[2].partition("/")[0])
        async with Proxy(port) as proxy:
            near = url.replace(f":{port}/", f":{proxy.port}/")
            away = await connect(near, compression=None, ping_interval=None)
            await away.recv()
            proxy.toxics.is_hung = True
            began = time.perf_counter()
            await seen.until("streamer_sessions", 0)
            gone_s = time.perf_counter() - began
            away.transport.abort()
    return {"a slow reader is cut after, s": cut_s, "a lost network is noticed after, s": gone_s}


async def sigterm(options: argparse.Namespace) -> Rows:
    clips = recordings()
    with served(PLACES) as (url, _, process):
        events = [asyncio.Event() for _ in range(50)]
        ending = [
            asyncio.create_task(push(url, clips[i % len(clips)], 1.0, event))
            for i, event in enumerate(events)
        ]
        await asyncio.gather(*(event.wait() for event in events))
        await asyncio.sleep(2)
        os.kill(process.pid, signal.SIGTERM)
        began = time.perf_counter()
        codes = Counter(await asyncio.gather(*ending))
        status = await asyncio.to_thread(process.wait, 60)
        seconds = time.perf_counter() - began
    rows = {f"closed with {code}": float(num) for code, num in codes.items()}
    return {**rows, "exit status": status, "ended after, s": seconds}


async def soak(options: argparse.Namespace) -> Rows:
    clips, rounds, num_early = recordings(), [], 0
    with served(PLACES) as (url, seen, _):
        began = time.perf_counter()
        whole_s = 60 * options.minutes
        while time.perf_counter() < began + whole_s or len(rounds) < 4:
            # slots take memory at their first use, so twice the load comes before what counts
            is_early = time.perf_counter() < began + SETTLE * whole_s
            num = options.load * (2 if is_early else 1)
            await asyncio.gather(*(talk(url, clips, 2, 3 * i / num) for i in range(num)))
            num_early += is_early
            await seen.until("streamer_sessions", 0)
            tasks = await seen.metric("streamer_tasks")
            rounds.append((seen.mb, seen.files, tasks, seen.threads))
            print(f"round {len(rounds)}: {rounds[-1]}", flush=True)
    settled = np.array(rounds[num_early:])
    half = len(settled) // 2
    grown = settled[half:].mean(0) - settled[:half].mean(0)
    names = ("MB", "descriptors", "tasks", "threads")
    rows = {f"{n}, second half less first": float(g) for n, g in zip(names, grown, strict=True)}
    return {"minutes": options.minutes, "rounds": len(rounds), "MB": rounds[-1][0], **rows}


QUESTIONS: dict[str, Callable[[argparse.Namespace], Awaitable[Rows]]] = {
    f.__name__: f for f in (idle, talkers, slow, sigterm, soak)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--idle", type=int, default=1_000, metavar="N", help="clients of idle")
    parser.add_argument("--talkers", type=int, default=64, metavar="N", help="of talkers")
    parser.add_argument("--load", type=int, default=16, metavar="N", help="clients of soak")
    parser.add_argument("--minutes", type=float, default=60.0, help="of soak")
    options = options_of(parser)
    rows = []
    for name in options.only:
        found = asyncio.run(QUESTIONS[name](options))
        rows.append({"name": name, **found})
        print(table((name, ""), found.items()), flush=True)
    print("written:", merge("soak", rows))


if __name__ == "__main__":
    main()

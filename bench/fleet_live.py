"""What a real fleet costs and survives, on this machine. In: nothing. Out: a row for each question.

`python -m bench.fleet --live` (10 minutes and more on two cores) starts `streamer fleet` with three
servers and three verifiers on Ray, and HAProxy where it is installed. It asks: first text through
the director and through HAProxy, against a direct socket; how soon one too many is refused; what
kills of random replicas cost; what a noisy tenant costs the others; the memory of an idle session.
`--kills`, `--sessions` and `--turns` say how much of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import soundfile
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from bench.common import median
from bench.socket_clients import UPDATE

ROOT = Path(__file__).parents[1]
CLIPS = sorted((ROOT / "samples").glob("*.wav"))
PORTS = (18_764, 19_100, 19_200)
TOML = """
[director]
port = {0}
api_key = "quiet,noisy"
[server]
least = {num}
most = 3
first_port = {1}
max_sessions = {places}
max_per_key = {share}
mode = "exact"
[verifier]
least = {num}
most = 3
first_port = {2}
[scaling]
up_pause_s = 5
down_pause_s = 5
"""


@dataclass(frozen=True)
class LiveTurn:
    """One turn, as its client had it. ttft_s: from the commit. recovery_s: from the loss of its
    replica to the next session.created; 0 where nothing was lost."""

    text: str
    ttft_s: float
    recovery_s: float
    num_begun: int


def get(path: str, port: int = PORTS[0]) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return answer.read().decode()


def statuses(kind: str) -> list[dict[str, Any]]:
    rows = json.loads(get("/v1/replicas"))
    found = [row["status"] for row in rows if row["status"] and row["answers"]]
    return [status for status in found if status["kind"] == kind]


def wait_for(is_so: Any, within_s: float = 600.0) -> None:
    until = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError("the fleet is not there")
        time.sleep(0.2)


@contextmanager
def fleet(num: int = 3, places: int = 16, share: int | None = None) -> Iterator[None]:
    """A fleet with `num` of each at least, all of them there. share: places of a server for each
    key."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(TOML.format(*PORTS, num=num, places=places, share=share or places))
        file.flush()
        command = [sys.executable, "-m", "streamer", "fleet", "--config", file.name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            wait_for(lambda: len(statuses("server")) >= num and len(statuses("verifier")) >= num)
            yield
        finally:
            process.terminate()
            process.wait(120)


@contextmanager
def one_process() -> Iterator[str]:
    """A server by itself, exact: its address."""
    command = [sys.executable, "-m", "streamer", "serve", "--port", "0", "--mode", "exact"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[2]
    finally:
        process.terminate()
        process.wait(60)


def keyed(key: str = "quiet") -> dict[str, Any]:
    """Options of a connection."""
    headers = {"Authorization": f"Bearer {key}"}
    return {"compression": None, "open_timeout": 30, "additional_headers": headers}


async def say(url: str, clip: Path, patience_s: float = 120.0, key: str = "quiet") -> LiveTurn:
    """One turn, begun anew wherever its replica is lost. Raises TimeoutError."""
    pcm = soundfile.read(clip, dtype="int16")[0].tobytes()
    lost_at: float | None = None
    recovery_s = 0.0
    num_begun = 0
    async with asyncio.timeout(patience_s):
        while True:
            try:
                async with connect(url, **keyed(key)) as socket:
                    await socket.recv()  # session.created
                    num_begun += 1
                    if lost_at is not None:
                        recovery_s = max(recovery_s, time.perf_counter() - lost_at)
                        lost_at = None
                    text, ttft_s = await _turn(socket, pcm)
                    return LiveTurn(text, ttft_s, recovery_s, num_begun)
            except (OSError, ConnectionClosed, InvalidHandshake):
                lost_at = lost_at or time.perf_counter()
                await asyncio.sleep(0.1)


async def _turn(socket: Any, pcm: bytes) -> tuple[str, float]:
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


def p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))]


async def overhead(num_turns: int) -> list[dict[str, Any]]:
    """Turn about: direct, by the director's redirect, by HAProxy. Each turn has a new session."""
    urls = {
        "direct": f"ws://127.0.0.1:{PORTS[1]}/v1/realtime",
        "director": f"ws://127.0.0.1:{PORTS[0]}/v1/realtime",
    }
    found: dict[str, list[LiveTurn]] = {name: [] for name in urls}
    connecting: dict[str, list[float]] = {name: [] for name in urls}
    for i in range(num_turns):
        for name, url in urls.items():
            since = time.perf_counter()
            async with connect(url, **keyed()):
                connecting[name].append(time.perf_counter() - since)
            found[name].append(await say(url, CLIPS[i % len(CLIPS)]))
    direct = [said.ttft_s for said in found["direct"]]
    return [
        {
            "question": f"first text through {name}",
            "p50_ms": 1_000 * median(said.ttft_s for said in rows),
            "p95_ms": 1_000 * p95([said.ttft_s for said in rows]),
            "p95_ratio_to_direct": p95([said.ttft_s for said in rows]) / p95(direct),
            "connect_p50_ms": 1_000 * median(connecting[name]),
        }
        for name, rows in found.items()
    ]


async def one_too_many(places: int) -> dict[str, Any]:
    """All places taken; how soon the next ones are refused."""
    url = f"ws://127.0.0.1:{PORTS[0]}/v1/realtime"
    took = []
    async with AsyncExitStack() as stack:
        for _ in range(places):
            await stack.enter_async_context(connect(url, **keyed()))
        for _ in range(20):
            since = time.perf_counter()
            try:
                await connect(url, **keyed())
            except InvalidStatus as refused:
                if refused.response.status_code == 503:
                    took.append(time.perf_counter() - since)
    return {
        "question": f"refused beyond {places} places",
        "num": len(took),
        "p50_ms": 1_000 * median(took),
        "max_ms": 1_000 * max(took),
    }


async def killed(wanted: dict[Path, str], num_sessions: int, num_kills: int) -> dict[str, Any]:
    """Sessions, a few at a time, while random replicas are killed."""
    url = f"ws://127.0.0.1:{PORTS[0]}/v1/realtime"
    chance = random.Random(0)
    room = asyncio.Semaphore(6)
    said: list[tuple[Path, LiveTurn]] = []
    is_over = asyncio.Event()

    async def one(i: int) -> None:
        async with room:
            clip = CLIPS[i % len(CLIPS)]
            said.append((clip, await say(url, clip)))

    async def kill() -> None:
        for _ in range(num_kills):
            there = await asyncio.to_thread(lambda: statuses("server") + statuses("verifier"))
            if there:
                os.kill(chance.choice(there)["pid"], signal.SIGKILL)
            await asyncio.sleep(chance.uniform(2, 6))
        is_over.set()

    killing = asyncio.create_task(kill())
    results = await asyncio.gather(*(one(i) for i in range(num_sessions)), return_exceptions=True)
    killing.cancel()
    recovered = [s.recovery_s for _, s in said if s.recovery_s]
    return {
        "question": f"{num_sessions} sessions, {num_kills} kills",
        "described": len(said),
        "errors": sum(isinstance(r, BaseException) for r in results),
        "wrong": sum(one.text != wanted[clip] for clip, one in said),
        "begun_anew": sum(one.num_begun > 1 for _, one in said),
        "recovery_p95_s": p95(recovered) if recovered else 0.0,
        "all_kills_done": is_over.is_set(),
    }


async def noisy(num_turns: int) -> dict[str, Any]:
    """A quiet tenant's turns, alone and beside one that always wants ten times its share."""
    url = f"ws://127.0.0.1:{PORTS[0]}/v1/realtime"
    found: dict[str, list[float]] = {"alone": [], "beside": []}
    for i in range(num_turns):
        found["alone"].append((await say(url, CLIPS[i % len(CLIPS)])).ttft_s)

    async def shout() -> None:
        while True:
            with contextlib.suppress(OSError, InvalidHandshake, ConnectionClosed, TimeoutError):
                async with connect(url, **keyed("noisy")) as socket:
                    await socket.recv()
                    await _turn(socket, soundfile.read(CLIPS[0], dtype="int16")[0].tobytes())
            await asyncio.sleep(0.2)

    share = 2
    shouting = [asyncio.create_task(shout()) for _ in range(10 * share)]
    await asyncio.sleep(2)
    for i in range(num_turns):
        found["beside"].append((await say(url, CLIPS[i % len(CLIPS)])).ttft_s)
    for task in shouting:
        task.cancel()
    await asyncio.gather(*shouting, return_exceptions=True)
    return {
        "question": "first text of a quiet tenant beside a noisy one",
        "alone_p50_ms": 1_000 * median(found["alone"]),
        "beside_p50_ms": 1_000 * median(found["beside"]),
        "p50_ratio": median(found["beside"]) / median(found["alone"]),
        "p95_ratio": p95(found["beside"]) / p95(found["alone"]),
    }


async def scaled(places: int) -> dict[str, Any]:
    """One server, so many sessions that there must be three, then few; each says a turn every
    second. How sockets ended that their client did not end."""
    url = f"ws://127.0.0.1:{PORTS[0]}/v1/realtime"
    codes: list[int] = []
    num_said = 0
    leaving = asyncio.Event()

    async def talk(stays: bool) -> None:
        nonlocal num_said
        pcm = soundfile.read(CLIPS[0], dtype="int16")[0].tobytes()
        while not leaving.is_set() or stays:
            try:
                async with connect(url, **keyed()) as socket:
                    await socket.recv()
                    while not leaving.is_set() or stays:
                        await _turn(socket, pcm)
                        num_said += 1
                        await asyncio.sleep(2)
            except ConnectionClosed as closed:
                codes.append(closed.rcvd.code if closed.rcvd else 1006)
            except (InvalidHandshake, OSError):
                await asyncio.sleep(0.5)

    num = 2 * places + 1
    tasks = [asyncio.create_task(talk(i == 0)) for i in range(num)]
    counts = []
    for wanted in (3, 1):
        since = time.perf_counter()
        while len(await asyncio.to_thread(statuses, "server")) != wanted:
            await asyncio.sleep(0.5)
            if time.perf_counter() - since > 300:
                raise TimeoutError(f"there are not {wanted} servers")
        counts.append(time.perf_counter() - since)
        leaving.set()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "question": f"1 to 3 to 1 servers, {num} sessions",
        "up_s": counts[0],
        "down_s": counts[1],
        "turns": num_said,
        "closed_1012": codes.count(1012),
        "closed_otherwise": len(codes) - codes.count(1012),
    }


def rss_mb(pid: int) -> float:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024  # type: ignore[index]


@asynccontextmanager
async def idle(url: str, num: int) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for _ in range(num):
            await stack.enter_async_context(connect(url, **keyed()))
        yield


async def memory(places: int) -> dict[str, Any]:
    """Of a replica and of one process, with as many idle sessions."""
    server = statuses("server")[0]
    found = {}
    with one_process() as url:
        alone = int(json.loads(get("/statusz", int(re.search(r":(\d+)/", url)[1])))["pid"])  # type: ignore[index]
        for name, address, pid in (
            ("alone", url, alone),
            ("replica", f"ws://127.0.0.1:{PORTS[1]}/v1/realtime", server["pid"]),
        ):
            before = rss_mb(pid)
            async with idle(address, places):
                found[name] = (before, (rss_mb(pid) - before) / places)
    return {
        "question": "memory",
        "process_mb": found["alone"][0],
        "replica_mb": found["replica"][0],
        "idle_session_mb": found["alone"][1],
        "replica_idle_session_mb": found["replica"][1],
    }


async def _wanted() -> dict[Path, str]:
    with one_process() as url:
        return {clip: (await say(url, clip)).text for clip in CLIPS}


def measure(
    num_turns: int = 20, num_sessions: int = 40, num_kills: int = 4, places: int = 4
) -> list[dict[str, Any]]:
    """Small by default; the full counts are 200 sessions and 20 kills."""
    rows: list[dict[str, Any]] = []
    wanted = asyncio.run(_wanted())
    with fleet(num=3, places=places):
        rows += asyncio.run(overhead(num_turns))
        rows.append(asyncio.run(one_too_many(3 * places)))
        rows.append(asyncio.run(memory(places)))
        rows.append(asyncio.run(killed(wanted, num_sessions, num_kills)))
    with fleet(num=1, places=places, share=2):
        rows.append(asyncio.run(noisy(num_turns)))
    with fleet(num=1, places=places):
        rows.append(asyncio.run(scaled(places)))
    for row in rows:
        print(row, flush=True)
    return rows

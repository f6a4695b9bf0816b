"""What does a server bear, and what is left of it behind? In: a real `streamer serve`. Out: a
table, JSON lines.

`python -m bench.soak [--only idle talkers ...] [--minutes 60] [--idle 1000] [--talkers 64]`. Each
question starts a server of its own and looks at it from outside: its sockets, /proc, /metrics.
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
from collections.abc import Awaitable, Callable

import numpy as np
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from bench import soak_clients as clients
from bench.common import merge, table
from bench.keep import options_of
from bench.proxy import Proxy
from bench.soak_clients import p, served

Rows = dict[str, float]
PLACES = 128  # in questions that do not fill them
SLOPE_FROM = 0.25  # of the time: rounds before are for caches and slots to fill


async def idle(options: argparse.Namespace) -> Rows:
    """Clients that say nothing, and one more than there are places."""
    async with served(options.idle + 1) as (url, seen, _):
        before = (seen.mb, seen.files)
        (alone,) = await clients.talk(url, clients.recordings(), 1, 0.0)
        async with clients.idle(url, options.idle):
            mb, cpu, at = seen.mb, seen.cpu_s, time.perf_counter()
            await asyncio.sleep(5)
            cores = (seen.cpu_s - cpu) / (time.perf_counter() - at)
            print(f"{options.idle} idle: {cores:.2f} cores, {mb - before[0]:.0f} MB", flush=True)
            (beside,) = await clients.talk(url, clients.recordings(), 1, 0.0)
            await seen.until("streamer_sessions", options.idle)
            async with clients.idle(url, 1):
                refused = [await clients.refusal_ms(url) for _ in range(50)]
        await seen.until("streamer_sessions", 0)
        left = seen.files
    return {
        "clients": options.idle,
        "KB each": 1024 * (mb - before[0]) / options.idle,
        "cores for all": cores,
        "first text beside them, x alone": beside / alone,
        "N + 1 refused, ms, median": p(refused, 50),
        "N + 1 refused, ms, most": max(refused),
        "descriptors left": left - before[1],
    }


async def talkers(options: argparse.Namespace) -> Rows:
    """All at real time; how unlike each other they fare."""
    clips = clients.recordings()
    async with served(max(PLACES, options.talkers)) as (url, _, _):
        await clients.talk(url, clips, 1, 0.0)
        rows = {}
        for num in (1, options.talkers):
            found = await asyncio.gather(
                *(
                    clients.talk(url, clips[i % len(clips) :] + clips, 3, 5 * i / num)
                    for i in range(num)
                )
            )
            every = [ms for one in found for ms in one]
            rows[f"first text, p50 ms, {num}"] = p(every, 50)
            rows[f"first text, p95 ms, {num}"] = p(every, 95)
            means = [float(np.mean(one)) for one in found]
            rows[f"worst talker's mean, x the median one's, {num}"] = max(means) / p(means, 50)
        return {**rows, "turns": 3 * options.talkers}


async def slow(options: argparse.Namespace) -> Rows:
    """One that never reads, and one whose network is gone without a word."""
    async with served(8, "--resume-s", "0") as (url, seen, _):
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
    return {"a slow reader is cut, s": cut_s, "a half-open one is missed, s": gone_s}


async def sigterm(options: argparse.Namespace) -> Rows:
    """SIGTERM while 50 speak."""
    clips = clients.recordings()
    async with served(PLACES) as (url, _, process):
        events = [asyncio.Event() for _ in range(50)]
        ending = [
            asyncio.create_task(clients.close_code_after(url, clips[i % len(clips)], event))
            for i, event in enumerate(events)
        ]
        await asyncio.gather(*(event.wait() for event in events))
        await asyncio.sleep(2)
        os.kill(process.pid, signal.SIGTERM)
        began = time.perf_counter()
        codes = Counter(code for code, _ in await asyncio.gather(*ending))
        status = await asyncio.wait_for(process.wait(), 60)
        seconds = time.perf_counter() - began
    told = {f"closed with {code}": num for code, num in codes.items()}
    return {**told, "saw 1006": codes[1006], "exit status": status, "over after, s": seconds}


async def soak(options: argparse.Namespace) -> Rows:
    """Load, drain, load again: what grows."""
    clips, rounds = clients.recordings(), []
    num_turns = num_early = 0
    async with served(PLACES) as (url, seen, _):
        began = time.perf_counter()
        ends_at = began + 60 * options.minutes
        while time.perf_counter() < ends_at or len(rounds) < 4:
            # Slots have memory from their first use on: what may come to be used at once by chance
            # is used in the rounds that do not count.
            is_early = time.perf_counter() < began + SLOPE_FROM * 60 * options.minutes
            num = options.load * (2 if is_early else 1)
            await asyncio.gather(*(clients.talk(url, clips, 2, 3 * i / num) for i in range(num)))
            num_turns += 2 * num
            num_early += is_early
            await seen.until("streamer_sessions", 0)
            tasks = await seen.metric("streamer_tasks")
            rounds.append((seen.mb, seen.files, tasks, seen.threads))
            print(f"round {len(rounds)}: {rounds[-1]}", flush=True)
    settled = np.array(rounds[num_early:])
    half = len(settled) // 2
    grown = settled[half:].mean(0) - settled[:half].mean(0)
    names = ("MB", "descriptors", "tasks", "threads")
    rows = {
        f"{name}, second half less first": float(n) for name, n in zip(names, grown, strict=True)
    }
    return {
        "minutes": options.minutes,
        "rounds": len(rounds),
        "turns": num_turns,
        "MB at the end": rounds[-1][0],
        **rows,
    }


QUESTIONS: dict[str, Callable[[argparse.Namespace], Awaitable[Rows]]] = {
    "idle": idle,
    "talkers": talkers,
    "slow": slow,
    "sigterm": sigterm,
    "soak": soak,
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
    print(json.dumps(rows))


if __name__ == "__main__":
    main()

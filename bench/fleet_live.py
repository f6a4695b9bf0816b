"""What a real fleet costs and survives, on this machine. In: nothing. Out: a row for each question.

`python -m bench.fleet --live` starts `streamer fleet` with three servers and three verifiers on
Ray, and HAProxy where there is one. It asks: first text through the director and through HAProxy,
against a direct socket; how soon one too many is refused; the memory of an idle session; what kills
of random replicas cost; what a noisy tenant costs the others; what scaling costs; and what is left
when Ray's head is lost. `--only` asks some of it; `--turns`, `--sessions`, `--kills` say how much.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from bench import fleet_process as process
from bench.common import median
from bench.fleet_clients import CLIPS, come, idle, keyed, say
from bench.fleet_harm import head_lost, killed, noisy, scaled
from bench.fleet_process import (
    DIRECT_URL,
    PLACES,
    SERVERS,
    SHARE,
    URL,
    Row,
    fleet,
    one_process,
    p95,
)


@dataclass(frozen=True)
class Amounts:
    """turns: of each way. sessions, kills: while replicas are killed."""

    turns: int = 20
    sessions: int = 40
    kills: int = 4


async def overhead(num_turns: int, proxy: str | None) -> list[Row]:
    """Turn about: direct, by the director's redirect, by HAProxy. Each turn has a new session."""
    urls = {"direct": DIRECT_URL, "director": URL} | ({"HAProxy": proxy} if proxy else {})
    ttfts: dict[str, list[float]] = {name: [] for name in urls}
    connecting: dict[str, list[float]] = {name: [] for name in urls}
    for i in range(num_turns):
        for name, url in urls.items():
            since = time.perf_counter()
            async with connect(url, **keyed()):
                connecting[name].append(time.perf_counter() - since)
            ttfts[name].append((await say(url, CLIPS[i % len(CLIPS)])).ttft_s)
    direct = ttfts["direct"]
    return [
        {
            "question": f"first text through {name}",
            "turns": num_turns,
            "p50_ms": 1_000 * median(found),
            "p95_ms": 1_000 * p95(found),
            "p95_ratio_to_direct": p95(found) / p95(direct),
            "median_ratio_of_pairs": median(a / b for a, b in zip(found, direct, strict=True)),
            "connect_p50_ms": 1_000 * median(connecting[name]),
        }
        for name, found in ttfts.items()
    ]


async def one_too_many(num_places: int) -> Row:
    """All places taken; how soon the next ones are refused."""
    took = []
    async with AsyncExitStack() as stack:
        for _ in range(num_places):
            await stack.enter_async_context(await come(URL))
        for _ in range(20):
            since = time.perf_counter()
            try:
                await connect(URL, **keyed())
            except InvalidStatus as refused:
                if refused.response.status_code == 503:
                    took.append(time.perf_counter() - since)
    return {
        "question": f"one more than {num_places} places",
        "refused_of_20": len(took),
        "p50_ms": 1_000 * median(took),
        "max_ms": 1_000 * max(took),
    }


async def memory(num: int) -> Row:
    """Of a replica and of one process, with as many idle sessions."""
    with one_process(num) as url:
        port = int(re.search(r":(\d+)/", url)[1])  # type: ignore[index]
        before, each = {}, {}
        for name, address, at in (("process", url, port), ("replica", DIRECT_URL, SERVERS)):
            pid = process.pid_at(at)
            pids = [pid] if name == "process" else process.replica_of(pid)
            before[name] = process.memory_mb(pids)
            async with idle(address, num):
                each[name] = 1024 * (process.memory_mb(pids) - before[name]) / num
    return {
        "question": f"memory with {num} idle sessions",
        "process_mb": before["process"],
        "replica_mb": before["replica"],
        "process_kb_each": each["process"],
        "replica_kb_each": each["replica"],
        "with_all_mb_ratio": (before["replica"] + num * each["replica"] / 1024)
        / (before["process"] + num * each["process"] / 1024),
    }


async def _wanted() -> dict[Path, str]:
    with one_process() as url:
        return {clip: (await say(url, clip)).text for clip in CLIPS}


@contextmanager
def _over_a_cluster() -> Iterator[Callable[[], None]]:
    with process.ray_cluster() as (address, kill_head), fleet(1, PLACES, address=address):
        yield kill_head


def ask(name: str, amounts: Amounts) -> list[Row]:
    """One question, on a fleet of its own."""
    match name:
        case "overhead":
            with fleet(3, PLACES), process.haproxy() as proxy:
                return asyncio.run(overhead(amounts.turns, proxy))
        case "full":
            with fleet(3, PLACES):
                return [asyncio.run(one_too_many(3 * PLACES))]
        case "memory":
            with fleet(1, 64):
                return [asyncio.run(memory(64))]
        case "kills" | "calm":
            wanted, num = asyncio.run(_wanted()), (amounts.sessions, amounts.kills)
            with fleet(3, PLACES):
                return [asyncio.run(killed(wanted, *num, is_calm=name == "calm"))]
        case "noisy":
            with fleet(1, PLACES, SHARE, most=1):  # one that grows shares nothing out
                return [asyncio.run(noisy(amounts.turns))]
        case "scaling":
            with fleet(1, 2 * PLACES):  # three of eight places: one server is enough for them
                return [asyncio.run(scaled(4 * PLACES + 1, 3))]
        case _:
            with _over_a_cluster() as kill_head:
                return [asyncio.run(head_lost(kill_head))]


QUESTIONS = ("overhead", "full", "memory", "kills", "calm", "noisy", "scaling", "head")


def measure(names: list[str], amounts: Amounts) -> list[Row]:
    """Small by default; the full counts are 200 sessions and 20 kills."""
    rows: list[Row] = []
    for name in names:
        for row in ask(name, amounts):
            print(row, flush=True)
            rows.append({"name": name, **row})
    return rows

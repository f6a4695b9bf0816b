"""What a real fleet costs and survives, on this machine. In: nothing. Out: a row for each question.

`python -m bench.fleet --live` starts `streamer fleet` with three servers and three verifiers on
Ray, and HAProxy where there is one. It asks: first text through the director and through HAProxy,
against a direct socket; how soon one too many is refused; the memory of an idle session; what kills
of random replicas cost; what a noisy tenant costs the others; what scaling costs; and what is left
when Ray's head is lost. `--only` asks some of it; `--turns`, `--sessions`, `--kills` say how much.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from bench import fleet_process as process
from bench.common import median
from bench.fleet_clients import (
    CLIPS,
    LiveTurn,
    Talker,
    come,
    idle,
    keyed,
    pcm_of,
    pushing,
    say,
    turn,
)
from bench.fleet_process import DIRECT_URL, DIRECTOR, SERVERS, URL, fleet, one_process, statuses

PLACES = 4  # of each server
SHARE = 2  # of these for each key, where a tenant is noisy
MAX_AT_ONCE = 6  # sessions, while replicas are killed
HEAD_LOST_S = 90.0  # longer than Ray's own processes wait for their head: 60 s
Row = dict[str, Any]


@dataclass(frozen=True)
class Amounts:
    """turns: of each way. sessions, kills: while replicas are killed."""

    turns: int = 20
    sessions: int = 40
    kills: int = 4


def p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))]


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
    with one_process() as url:
        port = int(re.search(r":(\d+)/", url)[1])  # type: ignore[index]
        before, each = {}, {}
        for name, address, at in (("process", url, port), ("replica", DIRECT_URL, SERVERS)):
            pid = process.pid_at(at)
            before[name] = process.rss_mb(pid)
            async with idle(address, num):
                each[name] = 1024 * (process.rss_mb(pid) - before[name]) / num
    return {
        "question": f"memory with {num} idle sessions",
        "process_mb": before["process"],
        "replica_mb": before["replica"],
        "process_kb_each": each["process"],
        "replica_kb_each": each["replica"],
        "with_all_mb_ratio": (before["replica"] + num * each["replica"] / 1024)
        / (before["process"] + num * each["process"] / 1024),
    }


async def killed(wanted: dict[Path, str], num_sessions: int, num_kills: int, is_calm: bool) -> Row:
    """Sessions, a few at a time, while random replicas are killed: one after every so many, however
    many are down. Where it is calm, the next one only when all are there again."""
    chance = random.Random(0)
    said: list[tuple[Path, LiveTurn]] = []
    victims: list[str] = []
    every = num_sessions // num_kills

    def is_due() -> bool:
        return process.num_answering() == 6 if is_calm else len(said) >= len(victims) * every

    async def kill() -> None:
        while len(victims) < num_kills:
            await asyncio.to_thread(process.wait_for, is_due)
            victims.append(await asyncio.to_thread(kill_one, chance))
            await asyncio.sleep(chance.uniform(0, 2))

    async def talk(i: int) -> None:
        while len(said) < num_sessions or not killing.done():
            i += MAX_AT_ONCE
            said.append((CLIPS[i % len(CLIPS)], await say(URL, CLIPS[i % len(CLIPS)])))

    killing = asyncio.create_task(kill())
    results = await asyncio.gather(
        killing, *(talk(i) for i in range(MAX_AT_ONCE)), return_exceptions=True
    )
    recovered = [s.recovery_s for _, s in said if s.recovery_s]
    pace = "the next when all are there" if is_calm else "at any time"
    return {
        "question": f"{len(said)} sessions, {num_kills} kills, {pace}",
        "described": len(said),
        "errors": sum(isinstance(r, BaseException) for r in results),
        "wrong": sum(one.text != wanted[clip] for clip, one in said),
        "begun_anew": sum(one.num_begun > 1 for _, one in said),
        "recovery_p50_s": median(recovered) if recovered else 0.0,
        "recovery_p95_s": p95(recovered) if recovered else 0.0,
        "kills": len([v for v in victims if v]),
        "servers_killed": sum(v.startswith("server") for v in victims),
    }


def kill_one(chance: random.Random) -> str:
    """The name of who was killed; nothing where nobody lives."""
    there = statuses("server") + statuses("verifier")
    chance.shuffle(there)
    for status in there:
        try:
            os.kill(status["pid"], signal.SIGKILL)
        except ProcessLookupError:
            continue  # dead already, and not missed yet
        return str(status["name"])
    return ""


async def noisy(num_turns: int, rounds: int = 3) -> Row:
    """A quiet tenant's turns: alone, beside one that wants its share, and beside one that wants ten
    times as much. In turn, so that all meet the same machine."""
    wants = {"alone": 0, "share": SHARE, "beyond": 10 * SHARE}
    found: dict[str, list[float]] = {name: [] for name in wants}
    for _ in range(rounds):
        for name, num in wants.items():
            async with pushing(URL, num):
                await asyncio.sleep(2)
                for i in range(max(1, num_turns // rounds)):
                    found[name].append((await say(URL, CLIPS[i % len(CLIPS)])).ttft_s)
    beyond = found["beyond"]
    return {
        "question": "first text of a quiet tenant beside a noisy one",
        "alone_p50_ms": 1_000 * median(found["alone"]),
        "beyond_p50_ms": 1_000 * median(beyond),
        "p50_ratio_to_alone": median(beyond) / median(found["alone"]),
        "p50_ratio_to_its_share": median(beyond) / median(found["share"]),
        "p95_ratio_to_its_share": p95(beyond) / p95(found["share"]),
    }


async def scaled() -> Row:
    """One server, so many sessions that there must be three, then one. How sockets ended that their
    client did not end."""
    talkers = [Talker(URL) for _ in range(2 * PLACES + 1)]
    tasks = [asyncio.create_task(talker.run()) for talker in talkers]
    took_s = []
    for wanted in (3, 1):
        is_so = _servers_are(wanted)
        took_s.append(await asyncio.to_thread(process.wait_for, is_so))
        for talker in talkers[1:]:
            talker.is_leaving = True
    talkers[0].is_leaving = True
    await asyncio.wait(tasks, timeout=60)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    codes = sum((talker.codes for talker in talkers), start=type(talkers[0].codes)())
    return {
        "question": f"1 to 3 to 1 servers, {len(talkers)} sessions",
        "up_s": took_s[0],
        "down_s": took_s[1],
        "turns": sum(talker.num_said for talker in talkers),
        "turns_failed": sum(talker.num_failed for talker in talkers),
        "closed_1012": codes[1012],
        "saw_1006": codes[1006],
        "closed_otherwise": codes.total() - codes[1012] - codes[1006],
    }


def _servers_are(num: int) -> Callable[[], bool]:
    return lambda: process.num_there("server") == num


async def head_lost(kill_head: Callable[[], None]) -> Row:
    """A session that goes on, and new ones, while Ray has no head."""
    pcm, is_over = pcm_of(CLIPS[0]), 0.0
    num_said = num_new = 0
    async with await come(URL) as socket:
        await socket.recv()
        before, _ = await turn(socket, pcm)
        kill_head()
        since = time.perf_counter()
        try:
            while (is_over := time.perf_counter() - since) < HEAD_LOST_S:
                num_said += (await turn(socket, pcm))[0] == before
                num_new += (await say(URL, CLIPS[0])).text == before
                await asyncio.sleep(2)
        except Exception as error:  # told in the row: that is the answer
            return {**_head_row(is_over, num_said, num_new), "ended_by": repr(error)}
    return _head_row(is_over, num_said, num_new)


def _head_row(seconds: float, num_said: int, num_new: int) -> Row:
    return {
        "question": "Ray's head lost",
        "seconds": seconds,
        "turns_of_a_session_that_ran": num_said,
        "new_sessions_described": num_new,
        "director_is_there": process.answers(DIRECTOR),
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
            with fleet(1, PLACES, SHARE):
                return [asyncio.run(noisy(amounts.turns))]
        case "scaling":
            with fleet(1, PLACES):
                return [asyncio.run(scaled())]
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

"""Harm to a real fleet, for bench/fleet_live.py. In: a fleet that runs. Out: a row for each."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench import fleet_process as process
from bench.common import median
from bench.fleet_clients import CLIPS, LiveTurn, Talker, come, pcm_of, pushing, say, turn
from bench.fleet_process import DIRECTOR, SHARE, URL, Row, p95, statuses

SEEN_S = 10.0  # until every client has seen how its socket ended, and says something again
MAX_AT_ONCE = 6  # sessions, while replicas are killed
HEAD_LOST_S = 90.0  # longer than Ray's own processes wait for their head: 60 s


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


async def scaled(num: int, num_stay: int) -> Row:
    """One server, `num` sessions, so that there must be three; then `num_stay`, so that there is
    one again. How sockets ended that their client did not end."""
    talkers = [Talker(URL) for _ in range(num)]
    tasks = [asyncio.create_task(talker.run()) for talker in talkers]
    staying = talkers[:: num // num_stay][:num_stay]
    took_s = []
    for wanted in (3, 1):
        is_so = _servers_are(wanted)
        took_s.append(await asyncio.to_thread(process.wait_for, is_so))
        await asyncio.sleep(SEEN_S)
        for talker in talkers:
            talker.is_leaving = wanted == 1 or talker not in staying
    await asyncio.wait(tasks, timeout=60)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    codes = sum((talker.codes for talker in talkers), start=Counter())
    return {
        "question": f"1 to 3 to 1 servers, {num} sessions, then {num_stay}",
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

"""Number of streams that one process sustains in real time, beside plain transformers.

    python -m bench.load [--seconds 10 30 60] [--arms gated ...] [--limit-ms 500]

N sessions of one process are fed at real time in pieces of 100 ms, with their starts spread over
the length of a turn. Each speaks two turns, or one if turns are longer than 10 s. N doubles until
the first text is later than the limit (p95, from the commit), or a feed is held back that long.

"transformers" is the same sessions with one-shot generate() of the same cloud model: they collect
the turn, then generate one at a time with all cores. Each N runs in a process of its own, to which
CPU seconds and memory belong.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import resource
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
import torch

from bench.arms import models_of
from bench.clips import Clip, held_out
from bench.common import lines, options_of, panels, saved, table_of, write
from bench.socket_clients import pcm_of
from bench.vs_transformers import one_shot
from streamer import Describer, Description, TextDelta
from streamer.model.engines.load import load_stock

RATE_HZ = 16_000
PIECE_S = 0.1
MOST = 255
PLAIN = "transformers"
ARMS = (PLAIN, "edge", "gated", "exact")
COLUMNS = ("seconds", "arm", "streams", "ttft_p50_ms", "ttft_p95_ms", "late_p95_ms")
COLUMNS += ("cpu_s_per_stream_minute", "mb_per_stream")


def turns_of(seconds: float) -> int:
    """Turns of each stream: a run takes about as long at every length."""
    return 2 if seconds <= 10 else 1


class Player(ABC):
    """One stream at real time. ttft_ms: commit to first text, per turn. late_ms: the most that a
    feed was held back."""

    def __init__(self) -> None:
        self.ttft_ms: list[float] = []
        self.late_ms = 0.0

    async def run(self, delay_s: float, clips: Sequence[Clip]) -> None:
        await anyio.sleep(delay_s)
        for clip in clips:
            pcm = pcm_of(clip)
            size, started = 2 * int(RATE_HZ * PIECE_S), time.perf_counter()
            for i, at in enumerate(range(0, len(pcm), size), start=1):
                due = started + i * PIECE_S
                await anyio.sleep(max(0.0, due - time.perf_counter()))
                await self.feed(pcm[at : at + size])
                self.late_ms = max(self.late_ms, 1000 * (time.perf_counter() - due))
            if (first_ms := await self.answer(clip)) is not None:
                self.ttft_ms.append(first_ms)

    @abstractmethod
    async def feed(self, pcm: bytes) -> None: ...

    @abstractmethod
    async def answer(self, clip: Clip) -> float | None: ...


class Live(Player):
    """A session of ours."""

    def __init__(self, session: Any) -> None:
        super().__init__()
        self._session = session

    async def feed(self, pcm: bytes) -> None:
        await self._session.feed(pcm)

    async def answer(self, clip: Clip) -> float | None:
        committed, first_ms = time.perf_counter(), None
        await self._session.commit()
        async for event in self._session:
            if isinstance(event, TextDelta) and event.text and first_ms is None:
                first_ms = 1000 * (time.perf_counter() - committed)
            if isinstance(event, Description):
                break
        return first_ms


class Plain(Player):
    """One-shot generate() after the turn, one turn at a time."""

    def __init__(self, cloud: Any, stock: Any, lock: anyio.Lock) -> None:
        super().__init__()
        self._generate = functools.partial(one_shot, cloud, stock)
        self._lock = lock

    async def feed(self, pcm: bytes) -> None:
        pass  # generate() hears the whole clip at once

    async def answer(self, clip: Clip) -> float | None:
        committed = time.perf_counter()
        async with self._lock:
            waited_s = time.perf_counter() - committed
            timing = await anyio.to_thread.run_sync(self._generate, clip.samples)
        return 1000 * (waited_s + timing.first_s)


async def level(arm: str, num: int, seconds: float, threads: int) -> dict[str, Any]:
    """`num` streams at once in this process: percentiles and cost."""
    clips = held_out(16, seconds)
    turns = turns_of(seconds)
    async with AsyncExitStack() as stack:
        if arm == PLAIN:
            cloud = models_of(mode="cloud").pair[1]
            assert cloud is not None
            torch.set_num_threads(threads)
            stock, lock = load_stock(cloud.directory), anyio.Lock()
            players: list[Player] = [Plain(cloud, stock, lock) for _ in range(num + 1)]
        else:
            describer = await stack.enter_async_context(Describer.open(mode=arm, num_slots=num + 1))
            sessions = [
                await stack.enter_async_context(describer.session(RATE_HZ)) for _ in range(num + 1)
            ]
            players = [Live(session) for session in sessions]
        await players.pop().run(0.0, clips[:1])  # warm
        before = resource.getrusage(resource.RUSAGE_SELF)
        with anyio.move_on_after(seconds * (turns + 1) + 60):  # later than this means broken
            async with anyio.create_task_group() as group:
                for i, player in enumerate(players):
                    own = [clips[(i + j) % 16] for j in range(turns)]
                    group.start_soon(player.run, seconds * i / num, own)
        after = resource.getrusage(resource.RUSAGE_SELF)
    return summarise(arm, seconds, players, before, after)


def summarise(
    arm: str, seconds: float, players: Sequence[Player], before: Any, after: Any
) -> dict[str, Any]:
    ttft = [t for player in players for t in player.ttft_ms]
    num, turns = len(players), turns_of(seconds)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "arm": arm,
        "streams": num,
        "seconds": seconds,
        "missing": num * turns - len(ttft),  # not answered in time, or taken for no speech
        "ttft_p50_ms": float(np.percentile(ttft, 50)) if ttft else float("inf"),
        "ttft_p95_ms": float(np.percentile(ttft, 95)) if ttft else float("inf"),
        "late_p95_ms": float(np.percentile([player.late_ms for player in players], 95)),
        "cpu_s_per_stream_minute": cpu / (num * turns * seconds / 60),
        "mb_per_stream": (after.ru_maxrss - before.ru_maxrss) / 1024 / num,
    }


def in_own_process(
    arm: str, num: int, seconds: float, options: argparse.Namespace
) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.load", "--one", arm, str(num)]
    command += ["--seconds", str(seconds), "--threads", str(options.threads)]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    row: dict[str, Any] = json.loads(out.splitlines()[-1])
    return row


def climb(seconds: float, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All arms in turn at their first N, then at twice as many, until each breaks."""
    nums = {arm: options.first_plain if arm == PLAIN else options.first for arm in options.arms}
    rows = []
    while nums:
        for arm, num in list(nums.items()):
            row = in_own_process(arm, num, seconds, options)
            is_slow = max(row["ttft_p95_ms"], row["late_p95_ms"]) > options.limit_ms
            row["holds"] = not is_slow and row["missing"] <= 0.1 * num * turns_of(seconds)
            rows.append(row)
            print(f"{arm}, {num} streams of {seconds:g} s: holds {row['holds']}", flush=True)
            nums[arm] = min(2 * num, MOST)
            if not row["holds"] or num >= MOST:
                del nums[arm]
    return rows


def plot(rows: Sequence[dict[str, Any]], limit_ms: float) -> Path:
    """First text against the number of streams."""
    lengths = list(dict.fromkeys(row["seconds"] for row in rows))
    figure, axes = panels(1, len(lengths), (4 + 3 * len(lengths), 4), sharey=True, squeeze=False)
    for axis, seconds in zip(axes[0], lengths, strict=True):
        mine = [row for row in rows if row["seconds"] == seconds]
        lines(axis, mine, "arm", "streams", "ttft_p95_ms")
        axis.axhline(limit_ms, color="black", linewidth=0.8)
        axis.set(xscale="log", yscale="log", title=f"turns of {seconds:g} s", xlabel="streams")
    axes[0][0].set_ylabel("first text, p95, ms")
    axes[0][0].legend()
    return saved(figure, "load")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    told = "lengths of the turns"
    parser.add_argument("--seconds", type=float, nargs="+", default=[10.0, 30.0, 60.0], help=told)
    parser.add_argument("--limit-ms", type=float, default=500)
    parser.add_argument("--first", type=int, default=16, help="streams to begin with")
    parser.add_argument("--first-plain", type=int, default=4, help="the same for transformers")
    parser.add_argument("--threads", type=int, default=4, help="of generate()")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    told = "one level in this process, as JSON"
    parser.add_argument("--one", nargs=2, metavar=("ARM", "NUM"), help=told)
    options = options_of(parser)
    if options.one:
        arm, num = options.one
        print(json.dumps(anyio.run(level, arm, int(num), options.seconds[0], options.threads)))
        return
    rows = [row for seconds in options.seconds for row in climb(seconds, options)]
    print(table_of(rows, COLUMNS))
    for seconds, arm in itertools.product(options.seconds, options.arms):
        own = [row for row in rows if (row["seconds"], row["arm"]) == (seconds, arm)]
        held = [row["streams"] for row in own if row["holds"]]
        print(arm, "sustains", max(held, default=0), f"streams of {seconds:g} s")
    print("written:", write("load", rows), plot(rows, options.limit_ms))


if __name__ == "__main__":
    main()

"""How many streams does one process sustain in real time? In: held-out clips. Out: streams, CPU and
memory, a plot.

`python -m bench.load [--seconds 10 30 60] [--limit-ms 500]` feeds N sessions of one process at real
time, in pieces of 100 ms. Their starts are spread over the length of a turn. Each speaks two turns,
or one where a turn is longer than 10 s. N doubles until a turn's first text comes later than the
limit (p95, from the commit), or until a feed is held back for so long.

The rival is the same sessions over plain transformers (bench/one_shot_server.py). They collect the
turn and call one-shot `generate()` of the same cloud, one at a time, with all cores. Every N runs
in a process of its own; CPU seconds and memory are that process's.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import torch

from bench.arms import models_of
from bench.clips import held_out
from bench.common import panels, saved, table, write
from bench.keep import options_of
from bench.load_player import Player, turns_of
from bench.one_shot_server import OneShot, opening
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.describer import Describer
from streamer.model.engines.stock import load_stock
from streamer.stages.events import SessionOptions

MOST = 255
ARMS = ("transformers", "edge", "gated", "exact")


async def level(arm: str, num: int, seconds: float, threads: int) -> dict[str, Any]:
    """`num` streams at once; percentiles, and what they cost this process."""
    clips = held_out(16, seconds)
    turns = turns_of(seconds)
    async with AsyncExitStack() as stack:
        if arm == "transformers":
            cloud = models_of(mode="cloud").pair[1]
            assert cloud is not None
            torch.set_num_threads(threads)
            open_session = opening(OneShot(cloud, load_stock(cloud.directory), anyio.Lock()))
        else:
            describer = await stack.enter_async_context(Describer.open(mode=arm, num_slots=num + 1))
            await describer.load()
            open_session = describer.stream  # type: ignore[assignment]
        options = SessionOptions(SAMPLE_RATE_HZ, None, None, True)
        warm = Player(await stack.enter_async_context(open_session(options)), clips[:1])
        await warm.run(0.0)
        before = resource.getrusage(resource.RUSAGE_SELF)
        players = [
            Player(
                await stack.enter_async_context(open_session(options)),
                [clips[(i + j) % 16] for j in range(turns)],
            )
            for i in range(num)
        ]
        with anyio.move_on_after(seconds * (turns + 1) + 60):  # beyond this it is broken anyway
            async with anyio.create_task_group() as group:
                for i, player in enumerate(players):
                    group.start_soon(player.run, seconds * i / num)
        after = resource.getrusage(resource.RUSAGE_SELF)
    return summarise(arm, num, seconds, players, before, after)


def summarise(
    arm: str, num: int, seconds: float, players: Sequence[Player], before: Any, after: Any
) -> dict[str, Any]:
    ttft = [t for player in players for t in player.ttft_ms]
    turns = turns_of(seconds)
    missing = num * turns - len(ttft)  # not answered in time, or taken for no speech
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "arm": arm,
        "streams": num,
        "seconds": seconds,
        "answered": len(ttft),
        "missing": missing,
        "ttft_p50_ms": float(np.percentile(ttft, 50)) if ttft else float("inf"),
        "ttft_p95_ms": float(np.percentile(ttft, 95)) if ttft else float("inf"),
        "late_p95_ms": float(np.percentile([player.late_ms for player in players], 95)),
        "cpu_s_per_stream_minute": cpu / (num * turns * seconds / 60),
        "mb_per_stream": (after.ru_maxrss - before.ru_maxrss) / 1024 / num,
        "rss_mb": after.ru_maxrss / 1024,
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
    """All arms at their first N, then at twice as many, each until it breaks. So a machine that
    drifts does so for all."""
    nums = {
        arm: options.first_plain if arm == "transformers" else options.first for arm in options.arms
    }
    rows = []
    while nums:
        for arm, num in list(nums.items()):
            row = in_own_process(arm, num, seconds, options)
            slow = max(row["ttft_p95_ms"], row["late_p95_ms"]) > options.limit_ms
            row["holds"] = not slow and row["missing"] <= 0.1 * num * turns_of(seconds)
            rows.append(row)
            print(
                f"{arm}, {num} streams of {seconds:g} s: first text p50 {row['ttft_p50_ms']:.0f}, "
                f"p95 {row['ttft_p95_ms']:.0f} ms, late {row['late_p95_ms']:.0f} ms, "
                f"CPU s per stream-minute {row['cpu_s_per_stream_minute']:.2f}, "
                f"holds: {row['holds']}",
                flush=True,
            )
            nums[arm] = min(2 * num, MOST)
            if not row["holds"] or num >= MOST:
                del nums[arm]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, nargs="+", default=[10.0, 30.0, 60.0], help="lengths of the turns"
    )
    parser.add_argument("--limit-ms", type=float, default=500)
    parser.add_argument("--first", type=int, default=16, help="streams to begin with")
    parser.add_argument(
        "--first-plain", type=int, default=4, help="the same for plain transformers"
    )
    parser.add_argument("--threads", type=int, default=4, help="of generate()")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument(
        "--one", nargs=2, metavar=("ARM", "NUM"), help="one level in this process, as JSON"
    )
    options = options_of(parser)
    if options.one:
        arm, num = options.one
        print(json.dumps(anyio.run(level, arm, int(num), options.seconds[0], options.threads)))
        return
    rows = [row for seconds in options.seconds for row in climb(seconds, options)]
    names = ("seconds", "arm", "streams", "ttft_p50_ms", "ttft_p95_ms", "late_p95_ms")
    names += ("cpu_s_per_stream_minute", "mb_per_stream")
    print(table(names, [[row[name] for name in names] for row in rows]))
    for seconds, arm in itertools.product(options.seconds, options.arms):
        own = [row for row in rows if (row["seconds"], row["arm"]) == (seconds, arm)]
        held = [row["streams"] for row in own if row["holds"]]
        print(arm, "sustains", max(held, default=0), f"streams of {seconds:g} s")
    print("written:", write("load", rows), plot(rows, options.limit_ms))


def plot(rows: Sequence[dict[str, Any]], limit_ms: float) -> Path:
    """First text against the number of streams."""
    lengths = list(dict.fromkeys(row["seconds"] for row in rows))
    size = (4 + 3.2 * len(lengths), 4.4)
    figure, axes = panels(1, len(lengths), size, sharey=True, squeeze=False)
    for axis, seconds in zip(axes[0], lengths, strict=True):
        here = [row for row in rows if row["seconds"] == seconds]
        for i, arm in enumerate(ARMS):
            mine = [row for row in here if row["arm"] == arm]
            x = [row["streams"] for row in mine]
            y = [row["ttft_p95_ms"] for row in mine]
            style = "--" if arm == "transformers" else "-"
            axis.plot(x, y, marker="o", linestyle=style, color=f"C{i}", label=arm)
        axis.axhline(limit_ms, color="black", linewidth=0.8)
        axis.set(xscale="log", yscale="log", title=f"turns of {seconds:g} s")
        axis.set_xlabel("streams at once, in real time")
        ticks = sorted({row["streams"] for row in here})
        axis.set_xticks(ticks, [str(num) for num in ticks])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("first text, p95, ms")
    axes[0][0].legend()
    return saved(figure, "load")


if __name__ == "__main__":
    main()

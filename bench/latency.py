"""How long after the last word does text come, over a real socket? In: held-out clips. Out:
percentiles, a plot.

`python -m bench.latency [--clients 1 4 16 64] [--seconds 3 10 20 30 60] [--num 12]` starts a server
of its own, or takes --url. So many clients at once play clips at real time. The client measures:
TTFT from the end of speech, ITL, the time to the whole sentence, commit lag. The same run measures,
behind the same socket, what a person would write today (bench/one_shot_server.py).

Overhead is measured for one client. Each turn goes over the socket, and at once the same turn goes
through a stream of this process, without socket and JSON. The overhead is the median over pairs of
(whole time over the socket / whole time alone) - 1, from the last sample on. One client's turns are
played at LEAD times real time up to their last 6 s, so that there are many. `behind_max` says where
the server fell behind by that.

A round of a cell takes its seconds, and there are --num / clients rounds. A cell of 60 s and 12
turns takes 2 minutes by one client, 3 by 4, 1 by 16 or 64. The default, 20 cells, takes 25 minutes.
64 clients want cores of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bench.arms import models_of, run_paced
from bench.clips import Clip, held_out
from bench.common import median, panels, progress, saved, write
from bench.keep import options_of
from bench.processes import serving
from bench.server_watch import Watch
from bench.socket_clients import Timing, play, play_all

# it does nothing before the commit, so its clients need not wait for real time
BASELINE_SPEED = 50.0
LEAD = 8.0
T = TypeVar("T")


def summarise(found: Sequence[Timing], **what: Any) -> dict[str, Any]:
    def percentiles(values: Sequence[float]) -> dict[str, float]:
        return {f"p{p}": round(float(np.percentile(values, p)), 2) for p in (50, 95, 99)}

    return {
        **what,
        "num": len(found),
        "ttft": percentiles([t.ttft for t in found]),
        "total": percentiles([t.total for t in found]),
        "itl": percentiles([x for t in found for x in t.itl]),
        "commit_lag": percentiles([x for t in found for x in t.lag]),
        "behind_max": round(max(t.behind for t in found), 1),
    }


def overhead(pairs: Sequence[tuple[Timing, float]]) -> dict[str, float]:
    """Of (turn over the socket, milliseconds of the same turn alone): the medians of ratio and of
    difference."""
    return {
        "alone_total": round(median(alone for _, alone in pairs), 2),
        "overhead": median(timing.total / alone for timing, alone in pairs) - 1,
        "overhead_ms": round(median(timing.total - alone for timing, alone in pairs), 2),
    }


async def in_pairs(url: str, models: Any, clips: Sequence[Clip]) -> list[tuple[Timing, float]]:
    """One client's turns, each followed by the same turn alone."""
    pairs = []
    for clip in clips:
        timing = await play(url, clip, 0.0, lead=LEAD)
        alone = await asyncio.to_thread(run_paced, models, clip.samples)
        if timing is not None:
            pairs.append((timing, 1000 * alone.total_s))
    return pairs


async def watched(watch: Watch, work: Awaitable[T]) -> T:
    keeping = asyncio.create_task(watch.keep())
    try:
        return await work
    finally:
        keeping.cancel()


def measure(
    options: argparse.Namespace, url: str, pid: int | None, baseline: str
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    models = models_of(mode="gated")
    cells = [(seconds, num) for seconds in options.seconds for num in options.clients]
    for seconds, num in progress(cells, "cells"):
        clips = held_out(8 if seconds == 20 else 16, seconds)
        num_turns = max(num, options.num)
        some = (clips * num_turns)[:num_turns]
        watch = Watch(url, pid)
        pairs: list[tuple[Timing, float]] = []
        if num == 1:
            asyncio.run(in_pairs(url, models, clips[:2]))  # both sides warm
            pairs = asyncio.run(watched(watch, in_pairs(url, models, some)))
            ours = [timing for timing, _ in pairs]
        else:
            ours = asyncio.run(watched(watch, play_all(url, some, num)))
        row = summarise(ours, arm="streamer", seconds=seconds, clients=num) | watch.read(num)
        plain = asyncio.run(play_all(baseline, some, num, BASELINE_SPEED))
        theirs = summarise(plain, arm="generate()", seconds=seconds, clients=num)
        row["ttft_ratio"] = row["ttft"]["p50"] / theirs["ttft"]["p50"]
        row["total_ratio"] = row["total"]["p50"] / theirs["total"]["p50"]
        row |= overhead(pairs) if pairs else {}
        rows += [row, theirs]
        print("\r" + line_of(row), flush=True)
    return rows


def line_of(row: dict[str, Any]) -> str:
    ttft = row["ttft"]
    behind_s = row["behind_max"] / 1000 + row["audio_lag_max_s"]
    told = (
        f"{row['seconds']} s, {row['clients']} clients: "
        f"TTFT p50 {ttft['p50']:.0f} p95 {ttft['p95']:.0f} ms, "
        f"{row['ttft_ratio']:.2f} of generate() (whole {row['total_ratio']:.2f}), "
        f"at most {behind_s:.1f} s behind, loop over 20 ms: {row['loop_over_20ms']:.3f}"
    )
    if "overhead" in row:
        told += f", overhead {row['overhead']:.2f} ({row['overhead_ms']:.1f} ms)"
    return told


def plot(rows: Sequence[dict[str, Any]]) -> Path:
    """TTFT against the length of the turn, a line per number of clients; beside it, over the
    baseline's."""
    figure, (left, right) = panels(1, 2, (11, 4.2))
    ours = [row for row in rows if row["arm"] == "streamer"]
    for num in sorted({row["clients"] for row in ours}):
        mine = [row for row in ours if row["clients"] == num]
        x = [row["seconds"] for row in mine]
        p50, p95 = ([row["ttft"][p] for row in mine] for p in ("p50", "p95"))
        left.plot(x, p50, marker="o", label=f"{num} client{'s' * (num > 1)}")
        left.plot(x, p95, linestyle=":", color=left.lines[-1].get_color())
        right.plot(x, [row["ttft_ratio"] for row in mine], marker="o")
    left.set(title="First text after the end of speech (dotted: p95)", ylabel="ms", yscale="log")
    title = "Over one-shot generate() behind the same socket"
    right.set(title=title, ylabel="ratio of medians", ylim=(0, None))
    left.legend()
    for axis in (left, right):
        axis.set_xlabel("seconds of speech")
        axis.grid(alpha=0.3)
    return saved(figure, "latency")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="a running server; default: one of its own")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--seconds", type=int, nargs="+", default=[3, 10, 20, 30, 60])
    parser.add_argument(
        "--num", type=int, default=12, help="turns of each length, at least one per client"
    )
    parser.add_argument("--threads", type=int, default=4, help="of the baseline's generate()")
    options = options_of(parser)
    with contextlib.ExitStack() as stack:
        url = options.url
        pid = None
        if url is None:
            url, pid = stack.enter_context(
                serving("streamer", "serve", "--port", "0", "--max-sessions", "64")
            )
        baseline, _ = stack.enter_context(
            serving("bench.one_shot_server", "--threads", str(options.threads))
        )
        rows = measure(options, url, pid, baseline)
    print("written:", write("latency", rows), plot(rows))


if __name__ == "__main__":
    main()

"""Delay over a real socket: first text and whole sentence after the end of speech, by clients.

    python -m bench.latency [--clients 1 4 16] [--seconds 3 10 30]

Clients speak at real time to `streamer serve`. For one client each turn is followed by
the same turn through a stream of this process, without socket and JSON: the overhead is the median
over pairs of (whole time over the socket / whole time alone) - 1. One client's turns are played at
LEAD times real time up to their last 6 s.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.arms import models_of, run_paced
from bench.clips import Clip, held_out
from bench.common import median, options_of, panels, progress, saved, table_of, write
from bench.processes import serving
from bench.socket_clients import Timing, play, play_all

LEAD = 8.0


def percentiles(values: Sequence[float], name: str) -> dict[str, float]:
    return {f"{name} p{p}, ms": round(float(np.percentile(values, p)), 2) for p in (50, 95)}


async def in_pairs(url: str, models: Any, clips: Sequence[Clip]) -> list[tuple[Timing, float]]:
    """One client's turns, each followed by the same turn alone (ms)."""
    pairs = []
    for clip in clips:
        timing = await play(url, clip, 0.0, lead=LEAD)
        alone = await asyncio.to_thread(run_paced, models, clip.samples)
        if timing is not None:
            pairs.append((timing, 1000 * alone.total_s))
    return pairs


def measure(options: argparse.Namespace, url: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    models = models_of(mode="gated")
    cells = [(seconds, num) for seconds in options.seconds for num in options.clients]
    for seconds, num in progress(cells, "cells"):
        clips = held_out(16, seconds)
        some = (clips * max(num, options.num))[: max(num, options.num)]
        row: dict[str, Any] = {"seconds": seconds, "clients": num}
        more: dict[str, Any] = {}
        if num == 1:
            asyncio.run(in_pairs(url, models, clips[:2]))  # warm both sides
            pairs = asyncio.run(in_pairs(url, models, some))
            found = [timing for timing, _ in pairs]
            more["overhead"] = median(t.total / alone for t, alone in pairs) - 1
            more["overhead, ms"] = median(t.total - alone for t, alone in pairs)
        else:
            found = asyncio.run(play_all(url, some, num))
        row |= percentiles([t.ttft for t in found], "first text")
        row |= percentiles([t.total for t in found], "sentence")
        row["lag, ms"] = round(max(t.lag for t in found), 1)
        rows.append(row | more)
    return rows


def plot(rows: Sequence[dict[str, Any]]) -> Path:
    """First text against the length of the turn, one line per number of clients."""
    figure, axis = panels(1, 1, (6, 4))
    for num in sorted({row["clients"] for row in rows}):
        mine = [row for row in rows if row["clients"] == num]
        x = [row["seconds"] for row in mine]
        axis.plot(x, [row["first text p50, ms"] for row in mine], marker="o", label=f"{num}, p50")
        color = axis.lines[-1].get_color()
        axis.plot(x, [row["first text p95, ms"] for row in mine], linestyle=":", color=color)
    axis.set(title="First text after the end of speech, by clients (dotted: p95)", yscale="log")
    axis.set(xlabel="seconds of speech", ylabel="ms")
    axis.grid(alpha=0.3)
    axis.legend()
    return saved(figure, "latency")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--seconds", type=int, nargs="+", default=[3, 10, 30, 60])
    parser.add_argument("--num", type=int, default=12, help="turns of each length")
    options = options_of(parser)
    places = str(max(options.clients))
    with serving("streamer", "serve", "--port", "0", "--max-sessions", places) as (url, _):
        rows = measure(options, url)
    print(table_of(rows))
    print("written:", write("latency", rows), plot(rows))


if __name__ == "__main__":
    main()

"""Cost of a link between edge and verifier, by round trip and bandwidth.

    python -m bench.network [--num 20] [--rtt 0 20 50 100 200] [--mbit 20 1]
    python -m bench.network --arms "edge only" "cloud only" exact --num 200 --rtt 50 --mbit 20

A verifier and a proxy (bench/proxy.py) run in processes of their own, the edge in this one. Every
clip goes through every arm in turn. All but a clip's last 100 ms is prefilled before the clock
starts; until then the link is fast, to save time, and then it is the cell's.

Arms: edge only; cloud only (audio up, tokens streamed down); plain synchronous speculation; exact;
gated fluent and quality. Ratios are medians over clips of the same clip's two figures; the cloud's
work is a ratio of sums. "differ" counts answers whose tokens are not those of cloud only.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio

from bench.arms import models_of, opened
from bench.clips import Clip, held_out
from bench.common import lines, median, options_of, panels, progress, saved, table_of, write
from bench.processes import BadLink, linked, metric
from streamer import Description
from streamer.assembly import patient
from streamer.describer import describe_recording

EDGE, CLOUD, PLAIN = "edge only", "cloud only", "plain speculation"
ARMS: dict[str, dict[str, Any]] = {
    EDGE: {"mode": "edge"},
    CLOUD: {"mode": "cloud"},
    PLAIN: {"mode": "exact"},
    "exact": {"mode": "exact"},
    "gated, fluent": {"mode": "gated"},
    "gated, quality": {"mode": "gated", "preset": "quality"},
}
JUDGED = "streamer_judging_seconds_total"
SAME = (PLAIN, "exact")  # arms whose tokens are those of cloud only
# lengths of every twenty clips
LENGTHS_S = (3, 10, 3, 10, 10, 3, 10, 30, 3, 10, 3, 10, 10, 3, 10, 60, 3, 10, 3, 10)

Cell = tuple[float, float]  # round trip in ms, bandwidth in Mbit/s; 0: no limit


@dataclass(frozen=True)
class Played:
    """One clip through one arm. judged_ms: time that the verifier spent on it."""

    described: Description
    judged_ms: float


async def run(
    verifier: str, link: BadLink, cell: Cell, clips: Sequence[Clip], arms: Sequence[str]
) -> dict[str, list[Played]]:
    """Clip after clip through all arms in turn."""
    found: dict[str, list[Played]] = {name: [] for name in arms}
    async with AsyncExitStack() as stack:
        parts = {}
        for name in arms:
            models = models_of(cloud=link.url, **ARMS[name])
            parts[name] = patient(await stack.enter_async_context(opened(models)), False)
            if name == PLAIN:
                plan = replace(parts[name].plan, ahead=0, credits=1)
                parts[name] = replace(parts[name], plan=plan)
        for i, clip in enumerate(progress([clips[0], *clips], f"{cell[0]:g} ms")):
            for name in arms:
                link.set(0, 0)
                before = await anyio.to_thread.run_sync(metric, verifier, JUDGED)
                described = await describe_recording(
                    # once all but the last 100 ms is prefilled
                    parts[name],
                    clip.path,
                    on_heard=lambda heard_s, all_s: heard_s < all_s or link.set(*cell),
                )
                link.set(0, 0)
                spent = await anyio.to_thread.run_sync(metric, verifier, JUDGED) - before
                if i > 0:  # the first clip warms up
                    found[name].append(Played(described, 1_000 * spent))
    return found


def over(
    mine: Sequence[Played], base: Sequence[Played], of: Callable[[Description], float | None]
) -> float:
    """Median ratio of one figure, clip by clip."""
    pairs = [(of(a.described), of(b.described)) for a, b in zip(mine, base, strict=True)]
    return median(x / y for x, y in pairs if x and y)


def work(played: Sequence[Played]) -> float:
    """Milliseconds of the verifier per token."""
    return sum(p.judged_ms for p in played) / max(1, sum(p.described.n_tokens for p in played))


def summarise(found: dict[str, list[Played]], cell: Cell) -> list[dict[str, Any]]:
    """One row per arm."""
    rows = []
    for name, played in found.items():
        ones = [p.described for p in played]
        uploaded = sum(d.n_uploaded for d in ones)
        row: dict[str, Any] = {"rtt_ms": cell[0], "mbit": cell[1], "arm": name}
        row["first_ms"] = median(d.ttft_ms for d in ones)
        row["total_ms"] = median(d.total_ms for d in ones)
        row["tokens_per_s"] = median(d.tokens_per_s for d in ones)
        row["total / edge"] = over(played, found[EDGE], lambda d: d.total_ms)
        row["first / cloud"] = over(played, found[CLOUD], lambda d: d.ttft_ms)
        if PLAIN in found:
            row["tokens/s / plain"] = over(played, found[PLAIN], lambda d: d.tokens_per_s)
        row["work / cloud"] = work(played) / work(found[CLOUD])
        row["accepted / uploaded"] = sum(d.n_accepted for d in ones) / uploaded if uploaded else ""
        row["kB up"] = sum(d.bytes_up for d in ones) / len(ones) / 1_000
        differ = [d.ids != c.described.ids for d, c in zip(ones, found[CLOUD], strict=True)]
        row["differ"] = sum(differ) if name in SAME else ""
        rows.append(row)
    return rows


def plot(rows: Sequence[dict[str, Any]]) -> Path:
    """First text and whole sentence against the round trip, at the first bandwidth."""
    figure, axes = panels(1, 2, (11, 4))
    keys = {"first_ms": "First text, ms", "total_ms": "Whole sentence, ms"}
    for axis, (key, title) in zip(axes, keys.items(), strict=True):
        lines(axis, [row for row in rows if row["mbit"] == rows[0]["mbit"]], "arm", "rtt_ms", key)
        axis.set(title=title, xlabel="round trip, ms", yscale="log")
    axes[0].legend(fontsize=8)
    return saved(figure, "network")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=20, help="clips per cell")
    told = "round trips, ms"
    parser.add_argument("--rtt", type=float, nargs="+", default=[0, 20, 50, 100, 200], help=told)
    parser.add_argument("--mbit", type=float, nargs="+", default=[20, 1], help="bandwidths")
    told = f"of {', '.join(ARMS)}; {EDGE} and {CLOUD} always run"
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), help=told)
    options = options_of(parser)
    lengths = [LENGTHS_S[i % len(LENGTHS_S)] for i in range(options.num)]
    pools = {s: iter(held_out(lengths.count(s), s)) for s in set(lengths)}
    clips = [next(pools[s]) for s in lengths]
    arms = list(dict.fromkeys((EDGE, CLOUD, *options.arms)))
    rows: list[dict[str, Any]] = []
    with linked("streamer", "verifier", "--port", "0") as (verifier, link):
        for mbit in options.mbit:
            for rtt in options.rtt:
                cell = (rtt, mbit)
                rows += summarise(asyncio.run(run(verifier, link, cell, clips, arms)), cell)
                print(table_of(rows[-len(arms) :]), flush=True)
    print("written:", write("network", rows), plot(rows))


if __name__ == "__main__":
    main()

"""What does a real link between edge and verifier cost, and what hides it? In: held-out clips. Out:
a table, plots.

`python -m bench.network` (16 minutes) runs every round trip and bandwidth, then slowed edges. It
prints the tables of docs/measured.md; `python -m bench.network_show FILE.jsonl` prints them again.
`python -m bench.network --exact-only --num 200 --rtt 50 --mbit 20` (6 minutes, and 6 more when the
clips are first made) counts tokens that differ from cloud-only's.

There is a verifier process, a proxy process (bench/proxy.py), and the edge in this process. Every
clip goes through every arm in turn, in one run. Of every twenty clips one has 30 s and one 60 s;
the others have 3 and 10 s. Somebody who speaks sends 256 kbit/s, so all but a clip's last 100 ms is
prefilled before the clock starts. To save time the link is fast until then; from then on it is what
the cell says.

The arms: edge only; cloud only (audio up, tokens streamed down: the honest rival); plain
synchronous speculation at the preset's k, and at its best fixed k; ours in exact, gated fluent and
gated quality; exact in one process, without a link. --edge-ms makes each token take so much longer
on the edge. Real edges are slow: a 3B model on two cores takes 376 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
import urllib.request
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import anyio
import numpy as np

from bench.arms import models_of
from bench.clips import Clip, held_out
from bench.common import options_of, progress, write
from bench.network_plots import plot, plot_slowed
from bench.network_rows import ARMS, FIXED, summarise
from bench.network_show import conclude, readme, show
from bench.processes import BadLink, Cell, linked
from bench.watched import Between, Ends, SlowEdge, opened
from streamer.core.description import Description
from streamer.recording import Listeners, describe_recording

EXACT_ARMS = ("edge only", "cloud only", "plain, preset's k", "ours, exact")
# of every twenty clips
LENGTHS_S = (3, 10, 3, 10, 10, 3, 10, 30, 3, 10, 3, 10, 10, 3, 10, 60, 3, 10, 3, 10)


@dataclass(frozen=True)
class Played:
    """One clip through one arm, and what the verifier did for it."""

    described: Description
    judged_ms: float
    num_verdicts: float
    num_judged: float  # draft ids
    end_ms: float  # that its first request waited until the verifier had heard the turn's end


class Meter:
    """What the verifier has done, from its /metrics."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("ws", "http", 1) + "/metrics"

    def read(self) -> np.ndarray:
        """(seconds it judged, verdicts, draft ids judged)."""
        with urllib.request.urlopen(self._url, timeout=10) as answer:
            text = answer.read().decode()
        names = ("judging_seconds", "verdicts", "uploaded_ids")
        return np.array(
            [float(re.search(rf"^streamer_{n}_total (\S+)$", text, re.M)[1]) for n in names]
        )  # type: ignore[index]


def check_slow(arm: str, num_slept: int, num_drafted: int) -> None:
    """Raises RuntimeError where tokens came that nobody waited for: they would flatter this arm."""
    if num_slept < num_drafted:
        raise RuntimeError(
            f"{arm}: {num_drafted} ids were drafted, but only {num_slept} of them took longer"
        )


class Arm:
    """One way of describing, to be entered. Its link is good until all but a clip's last piece is
    prefilled; then it is the cell's."""

    def __init__(self, name: str, link: BadLink, cell: Cell, meter: Meter) -> None:
        self._name = name
        self._link = link
        self._cell = cell
        self._meter = meter
        self._ends = Ends()
        self._slow = SlowEdge(cell.edge_ms / 1_000)

    async def enter(self, stack: AsyncExitStack) -> None:
        options = {"cloud": self._link.url} | (ARMS | FIXED)[self._name]
        parts = (await stack.enter_async_context(opened(models_of(**options)))).patient()
        drafter = self._slow.drafter if self._cell.edge_ms else None
        self._parts = Between(parts, drafter, self._ends.target)

    async def play(self, clip: Clip) -> Played:
        self._link.set(0, 0)
        before = await anyio.to_thread.run_sync(self._meter.read)
        self._ends.forget()
        slept = self._slow.num_slept
        told = Listeners(on_prefilled=lambda: self._link.be(self._cell))
        described = await describe_recording(self._parts, clip.path, told)
        self._link.set(0, 0)
        if self._cell.edge_ms:
            check_slow(self._name, self._slow.num_slept - slept, described.n_drafted)
        spent = await anyio.to_thread.run_sync(self._meter.read) - before
        return Played(described, 1_000 * spent[0], spent[1], spent[2], self._ends.wait_ms)


async def run(
    verifier: str, link: BadLink, cell: Cell, clips: Sequence[Clip], arms: dict[str, Sequence[Clip]]
) -> dict[str, list[Played]]:
    """Each arm's clips, in the order of `clips`: clip after clip through all arms in turn."""
    found: dict[str, list[Played]] = {name: [] for name in arms}
    async with AsyncExitStack() as stack:
        there = {name: Arm(name, link, cell, Meter(verifier)) for name in arms}
        for arm in there.values():
            await arm.enter(stack)
            await arm.play(clips[0])  # warm; and the pace learns the link
        where = f"{cell.rtt_ms:g} ms, {cell.mbit:g} Mbit/s, edge +{cell.edge_ms:g} ms"
        for clip in progress(clips, where):
            for name in (name for name, of in arms.items() if clip in of):
                found[name].append(await there[name].play(clip))
    return found


def mixed(num: int, seconds: int | None) -> list[Clip]:
    """`num` clips of one length, or of LENGTHS_S."""
    lengths = [seconds or LENGTHS_S[i % len(LENGTHS_S)] for i in range(num)]
    pools = {s: iter(held_out(lengths.count(s), s)) for s in set(lengths)}
    return [next(pools[s]) for s in lengths]


async def measure(
    options: argparse.Namespace, verifier: str, link: BadLink
) -> list[dict[str, Any]]:
    clips = mixed(options.num, options.seconds)
    cells = [(Cell(rtt, mbit, 0), clips) for mbit in options.mbit for rtt in options.rtt]
    if not options.exact_only:
        cells += [
            (Cell(options.slow_rtt, options.mbit[0], ms), clips[: options.num_slow])
            for ms in options.edge_ms
        ]
    rows: list[dict[str, Any]] = []
    for cell, some in cells:
        arms: dict[str, Sequence[Clip]] = dict.fromkeys(
            EXACT_ARMS if options.exact_only else ARMS, some
        )
        if not options.exact_only and cell.mbit == options.mbit[0]:
            arms |= dict.fromkeys(FIXED, some[: options.num_best_k])
        mine = summarise(await run(verifier, link, cell, some, arms), some, **vars(cell))
        rows += mine
        where = (
            f"round trip {cell.rtt_ms:g} ms, {cell.mbit:g} Mbit/s, edge +{cell.edge_ms:g} ms per id"
        )
        print(f"\n{where}\n{show(mine)}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num", type=int, default=20, help="clips per cell")
    parser.add_argument(
        "--num-best-k", type=int, default=4, help="of them, for plain speculation at other fixed k"
    )
    parser.add_argument("--num-slow", type=int, default=4, help="of them, where the edge is slowed")
    parser.add_argument("--name", help="of the files that are written: network, or network_exact")
    parser.add_argument("--seconds", type=int, help="clips of this length alone")
    parser.add_argument(
        "--rtt", type=float, nargs="+", default=[0, 20, 50, 100, 200], help="round trips, ms"
    )
    parser.add_argument("--mbit", type=float, nargs="+", default=[20, 1], help="bandwidths")
    parser.add_argument(
        "--edge-ms",
        type=float,
        nargs="*",
        default=[10, 30, 100],
        help="added to each id of the edge",
    )
    parser.add_argument(
        "--slow-rtt", type=float, default=100, help="round trip of slowed edges, ms"
    )
    parser.add_argument(
        "--exact-only", action="store_true", help="do the ids of plain and ours, exact, differ?"
    )
    options = options_of(parser)
    since = time.monotonic()
    with linked("streamer", "verifier", "--port", "0") as (verifier, link):
        rows = asyncio.run(measure(options, verifier, link))
    print("\n" + conclude(rows))
    if not options.exact_only:
        print("\n" + readme(rows))
    name = options.name or ("network_exact" if options.exact_only else "network")
    written = [write(name, rows), plot(rows, name), *plot_slowed(rows, f"{name}_slowed")]
    print(f"in {(time.monotonic() - since) / 60:.1f} minutes; written:", *written)


if __name__ == "__main__":
    main()

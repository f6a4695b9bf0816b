"""Which mode wins where at 3B and 7B? In: held-out clips, what steps of these sizes cost. Out: a
table, JSON lines.

`python -m bench.real_sizes` (4 minutes) runs the embedded pair over real sockets, each model slowed
to the steps of a real one (bench/slowed.py): the edge as a 3B of 4 bits on a CPU, as `python -m
bench.window` measures it, the cloud as a 7B on a GPU. The cloud's costs are no measurements: they
follow from the bytes and products of the published shape and from what a machine is taken to do,
which docs/measured.md spells out; other costs come as options. The embedded pair agrees as two
models of one training do.

All clips go through all arms in turn, in one run. Somebody speaks at the pace of speech as far as
the clock is concerned: all but a clip's last 100 ms is heard before it starts.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from bench.arms import models_of
from bench.clips import Clip, held_out
from bench.common import median, progress, table_of, write
from bench.keep import options_of
from bench.processes import BadLink, Cell, linked
from bench.slowed import Costs, slow
from bench.watched import opened
from streamer.core.decoding.pace import Pace
from streamer.core.description import Description
from streamer.recording import Listeners, describe_recording

FIXED_K = (1, 2, 4, 8)
ARMS: dict[str, dict[str, Any]] = {
    "edge only": {"mode": "edge"},
    "cloud only": {"mode": "cloud"},
    "exact": {"mode": "exact"},
    "gated, fluent": {"mode": "gated"},
    "gated, quality": {"mode": "gated", "preset": "quality"},
    **{f"exact, k {k}": {"mode": "exact", "k": k} for k in FIXED_K},
}
MBIT = 20.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=2, help="clips of each length")
    parser.add_argument("--seconds", type=int, nargs="+", default=[3, 10])
    parser.add_argument("--rtt", type=float, nargs="+", default=[20, 100], help="ms")
    parser.add_argument("--edge", type=float, nargs=3, default=[42, 1, 170], metavar="MS")
    parser.add_argument("--cloud", type=float, nargs=3, default=[6, 0.2, 10], metavar="MS")
    parser.add_argument("--name", default="real_sizes", help="of the file that is written")
    options = options_of(parser)
    edge, cloud = Costs(*options.edge), Costs(*options.cloud)
    command = [f"--{name.replace('_', '-')}={value}" for name, value in vars(cloud).items()]
    with linked("bench.slowed", *command) as (_, link):
        rows = asyncio.run(measure(options, edge, link))
    print(table_of(rows))
    told = {"edge": options.edge, "cloud": options.cloud, "seconds": options.seconds}
    print("written:", write(options.name, [told, *rows]))
    return 0


async def measure(options: argparse.Namespace, edge: Costs, link: BadLink) -> list[dict[str, Any]]:
    clips = [clip for s in options.seconds for clip in held_out(options.num, s)]
    rows = []
    for rtt in options.rtt:
        found = await run(link, Cell(rtt, MBIT, edge.step_ms), clips, edge)
        rows += [row_of(rtt, name, found) for name in found]
    return rows


async def run(
    link: BadLink, cell: Cell, clips: Sequence[Clip], edge: Costs
) -> dict[str, list[Description]]:
    """Each arm's descriptions."""
    found: dict[str, list[Description]] = {name: [] for name in ARMS}
    told = Listeners(on_prefilled=lambda: link.be(cell))
    paces = {name: Pace() for name in ARMS}
    async with AsyncExitStack() as stack:
        parts = {}
        for name, options in ARMS.items():
            models = models_of(cloud=link.url, **options)
            live = await stack.enter_async_context(opened(models, paces[name]))
            parts[name] = live.patient()
            if options["mode"] != "cloud":
                slow(models.pair[0], edge)
            for clip in clips[:2]:  # warm; and the pace learns the link
                link.set(0, 0)
                await describe_recording(parts[name], clip.path, told)
        for clip in progress(clips, f"{cell.rtt_ms:g} ms"):
            for name in ARMS:
                link.set(0, 0)
                found[name].append(await describe_recording(parts[name], clip.path, told))
    return found


def row_of(rtt: float, name: str, found: dict[str, list[Description]]) -> dict[str, Any]:
    """Medians; ratios are of the same clip's figures."""
    ones = found[name]

    def ratio(of: str, to: str) -> float:
        return median(
            getattr(a, of) / getattr(b, of)
            for a, b in zip(ones, found[to], strict=True)
            if getattr(a, of) and getattr(b, of)
        )

    uploaded = sum(d.n_uploaded for d in ones)
    return {
        "rtt_ms": rtt,
        "arm": name,
        "first_ms": median(d.ttft_ms for d in ones),
        "whole_ms": median(d.total_ms for d in ones),
        "first_vs_edge": ratio("ttft_ms", "edge only"),
        "whole_vs_edge": ratio("total_ms", "edge only"),
        "first_vs_cloud": ratio("ttft_ms", "cloud only"),
        "whole_vs_cloud": ratio("total_ms", "cloud only"),
        "accepted": sum(d.n_accepted for d in ones) / uploaded if uploaded else "",
        "calls": sum(d.cloud_calls for d in ones) / len(ones),
    }


if __name__ == "__main__":
    sys.exit(main())

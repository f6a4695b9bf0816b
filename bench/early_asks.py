"""What does asking early win over real sockets? In: held-out clips. Out: ratios, with it over
without it.

`python -m bench.early_asks` (5 minutes). A verifier process, a proxy process, and a slowed edge
here. Each clip is described with early asks and without them, in turn, and the order changes.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from bench.arms import models_of
from bench.clips import Clip, held_out
from bench.keep import options_of
from bench.processes import BadLink, Cell, linked
from bench.watched import Between, SlowEdge, opened
from streamer.core.decoding.pace import Pace
from streamer.core.description import Description
from streamer.recording import Listeners, describe_recording

CELLS = (Cell(100, 20, 30), Cell(100, 20, 100), Cell(20, 20, 30))  # round trip, Mbit/s, edge's ms
ROUNDS = 2
WARM = 2  # clips before the clock: the pace learns link and edge


class SwitchedPace(Pace):
    """Early asks on or off: only where the edge's tokens count as slow is asked early."""

    is_on = True

    @property
    def is_slow(self) -> bool:
        return self.is_on and super().is_slow


async def pairs_of(
    link: BadLink, cell: Cell, clips: Sequence[Clip]
) -> list[dict[bool, Description]]:
    """Each clip's Description with and without early asks; those that say something."""
    found = []
    pace = SwitchedPace()
    told = Listeners(on_prefilled=lambda: link.be(cell))
    async with opened(models_of(cloud=link.url), pace) as parts:
        slowed = Between(parts.patient(), SlowEdge(cell.edge_ms / 1_000).drafter)
        for i, clip in enumerate([*clips[:WARM], *clips * ROUNDS]):
            pair = {}
            for is_on in (True, False) if i % 2 else (False, True):
                pace.is_on = is_on
                pair[is_on] = await describe_recording(slowed, clip.path, told)
                link.set(0, 0)
            if i >= WARM and pair[True].ttft_ms and pair[False].ttft_ms:
                found.append(pair)
    return found


def ratio(pairs: Sequence[dict[bool, Description]], name: str) -> float:
    """Of the sums over all clips."""
    on, off = (sum(getattr(pair[is_on], name) for pair in pairs) for is_on in (True, False))
    return float(on / off)


async def measure(link: BadLink) -> None:
    clips = held_out(8, 3) + held_out(4, 10)
    for cell in CELLS:
        link.set(0, 0)
        pairs = await pairs_of(link, cell, clips)
        told = {name: ratio(pairs, name) for name in ("ttft_ms", "total_ms", "cloud_calls")}
        same = sum(pair[True].ids == pair[False].ids for pair in pairs)
        figures = ", ".join(f"{name} {value:.2f}" for name, value in told.items())
        print(f"{cell}: {figures}; {same} of {len(pairs)} say the same", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options_of(parser)
    with linked("streamer", "verifier", "--port", "0") as (_, link):
        asyncio.run(measure(link))


if __name__ == "__main__":
    main()

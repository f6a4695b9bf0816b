"""What does asking early win over real sockets? In: held-out clips. Out: ratios, with it over
without it.

`python -m bench.early_asks` (5 minutes). A verifier process, a proxy process, and a slowed edge
here. Each clip is described with early asks and without them, in turn, and the order changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bench.clips import Clip, held_out
from bench.network import Cell, Proxy, SlowEdge, bad_from_the_end, child, play, started
from streamer.core.decoding.early import EarlyAsks
from streamer.core.description import Description
from streamer.describer import Describer

CELLS = (Cell(100, 20, 30), Cell(100, 20, 100), Cell(20, 20, 30))  # round trip, Mbit/s, edge's ms
ROUNDS = 2
WARM = 2  # clips before the clock: the pace learns link and edge


class Switch:
    """Early asks on or off, for all answers of this process."""

    def __init__(self) -> None:
        self.is_on = True
        watches = EarlyAsks.watches
        EarlyAsks.watches = property(  # type: ignore[method-assign, assignment]
            lambda asks: self.is_on and watches.__get__(asks)
        )


async def pairs_of(
    proxy: Proxy, cell: Cell, clips: Sequence[Clip], switch: Switch
) -> list[dict[bool, Description]]:
    """Each clip's Description with and without early asks; those that say something."""
    found = []
    async with bad_from_the_end(proxy, cell), Describer.open(cloud=proxy.url) as describer:
        await describer.load()
        SlowEdge(describer, cell.edge_ms / 1_000)
        for i, clip in enumerate([*clips[:WARM], *clips * ROUNDS]):
            pair = {}
            for is_on in (True, False) if i % 2 else (False, True):
                switch.is_on = is_on
                pair[is_on] = await play(describer, clip)
                proxy.set(0, 0)
            if i >= WARM and pair[True].ttft_ms and pair[False].ttft_ms:
                found.append(pair)
    return found


def ratio(pairs: Sequence[dict[bool, Description]], name: str) -> float:
    """Of the sums over all clips."""
    on, off = (sum(getattr(pair[is_on], name) for pair in pairs) for is_on in (True, False))
    return float(on / off)


async def measure(proxy: Proxy) -> None:
    clips = held_out(8, 3) + held_out(4, 10)
    switch = Switch()
    for cell in CELLS:
        proxy.set(0, 0)
        pairs = await pairs_of(proxy, cell, clips, switch)
        told = {name: ratio(pairs, name) for name in ("ttft_ms", "total_ms", "cloud_calls")}
        same = sum(pair[True].ids == pair[False].ids for pair in pairs)
        figures = ", ".join(f"{name} {value:.2f}" for name, value in told.items())
        print(f"{cell}: {figures}; {same} of {len(pairs)} say the same", flush=True)


def main() -> None:
    with child("streamer", "verifier", "--port", "0") as line:
        port = line.split()[2].rsplit(":", 1)[1]
        with started("bench.proxy", port) as (process, own):
            asyncio.run(measure(Proxy(process, own)))


if __name__ == "__main__":
    main()

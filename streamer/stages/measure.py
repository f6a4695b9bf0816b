"""Beside the stages: measures of the turn in hand, where they were asked for. In: the turn's
measurer, each time that it has something to do. Out: Measures, 5 a second.

It has threads of its own, so that no model and no hearing waits for it. A poke is dropped where one
waits already: the measurer holds what is to be done.
"""

from __future__ import annotations

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream

from streamer.stages.plumbing.outlet import Outlet
from streamer.stages.plumbing.ports import Measurer


async def measure(
    pokes: MemoryObjectReceiveStream[Measurer],
    outlet: Outlet,
    limiter: anyio.CapacityLimiter,
    is_told: bool,
) -> None:
    """is_told: somebody wants the events. Ends when `pokes` does."""
    async with pokes, outlet:
        async for measurer in pokes:
            if not measurer.is_due(is_told):
                continue  # most often: a way to a thread would cost more than it brings
            news = await anyio.to_thread.run_sync(measurer.work, is_told, limiter=limiter)
            if news is not None and not measurer.is_over:
                outlet.offer(news)

"""Beside the stages: the session's coach, where one was asked for. In: the coach's ear, each time
that it has something to do. Out: Nudge, BaselineKnown, and CoachNews, 5 a second.

It works on the threads that measure, so that no model and no hearing waits for it.
"""

from __future__ import annotations

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream

from streamer.stages.events import CoachNews
from streamer.stages.plumbing.outlet import Outlet
from streamer.stages.plumbing.ports import Ear


async def coach(
    pokes: MemoryObjectReceiveStream[Ear], outlet: Outlet, limiter: anyio.CapacityLimiter
) -> None:
    """A slow reader loses news, and no nudge. Ends when `pokes` does."""
    async with pokes, outlet:
        async for ear in pokes:
            for event in await anyio.to_thread.run_sync(ear.work, limiter=limiter):
                if isinstance(event, CoachNews):
                    outlet.offer(event)
                else:
                    await outlet.send(event)

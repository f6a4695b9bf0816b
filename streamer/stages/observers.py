"""Measures and the coach of one session, which listen beside the stages."""

from __future__ import annotations

from contextlib import suppress

import anyio
import anyio.to_thread
from anyio import create_memory_object_stream as queue

from streamer.stages.ports import Hearing
from streamer.stages.queues import Outlet


class Observers:
    """`run` hears on threads of its own what came since the last time, each time after `wake`.

    So no model and no hearing waits for it. wants_measures: send Measures events, five a second.
    """

    def __init__(
        self, hearing: Hearing, outlet: Outlet, limiter: anyio.CapacityLimiter, wants_measures: bool
    ) -> None:
        self._hearing = hearing
        self._outlet = outlet
        self._limiter = limiter
        self._wants_measures = wants_measures
        self._wakes, self._woken = queue[None](1)

    def wake(self) -> None:
        """There is more to hear. Does nothing while one wake waits, or when `run` has ended."""
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
            self._wakes.send_nowait(None)

    def close(self) -> None:
        """Let `run` end."""
        self._wakes.close()

    async def run(self) -> None:
        """Ends after `close`."""
        async with self._woken, self._outlet:
            async for _ in self._woken:
                await self._measure()
                await self._coach()

    async def _measure(self) -> None:
        measurer = self._hearing.measurer
        if measurer is None or not measurer.is_due(self._wants_measures):
            return  # most often: a trip to a thread would cost more than it brings
        run = anyio.to_thread.run_sync
        news = await run(measurer.work, self._wants_measures, limiter=self._limiter)
        if news is not None and news.heard_s > 0 and not measurer.is_over:
            self._outlet.offer(news)

    async def _coach(self) -> None:
        """A slow reader loses news, but no nudge."""
        coach = self._hearing.coach
        if coach is None:
            return
        for event in await anyio.to_thread.run_sync(coach.work, limiter=self._limiter):
            if event.may_be_lost:
                self._outlet.offer(event)
            else:
                await self._outlet.send(event)

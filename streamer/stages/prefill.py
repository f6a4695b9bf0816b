"""Second stage: windows of a turn in, a turn prefilled but for its last one out; live updates."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn_items import Closed, Dropped, Heard, Item, TurnOpened
from streamer.core.rules.clauses import FREE, Ranges
from streamer.stages.events import LiveUpdate
from streamer.stages.plumbing.messages import Answer, Failed, Mark, Ready, Turn, reason_of
from streamer.stages.plumbing.open_turns import Books
from streamer.stages.plumbing.outlet import Outlet
from streamer.stages.plumbing.ports import Hearer, Parts
from streamer.stages.plumbing.put import put

Readies = MemoryObjectSendStream[Ready | Answer | Mark | Failed]


async def prefill(
    items: MemoryObjectReceiveStream[tuple[Item | Answer | Mark, float]],
    ready: Readies,
    outlet: Outlet,
    parts: Parts,
    books: Books,
) -> None:
    """Turns go on in the order in which they were spoken. Ends when `items` does."""
    async with items, ready, outlet, anyio.create_task_group() as group:
        stage = _Prefill(parts, books, outlet, group)
        async for item, fed_at in items:
            match item:
                case TurnOpened(number):
                    stage.turn = await books.open(number)
                case Heard():
                    await stage.hear(item)
                case Closed():
                    await put(ready, await stage.finish(await stage.leave(), item, fed_at))
                case Dropped():
                    books.close(await stage.leave())
                case Answer() | Mark():
                    if isinstance(item, Mark) and stage.turn is not None and stage.turn.cloud:
                        await stage.turn.cloud.prefilled()
                    await put(ready, item)


class _Prefill:
    """The turn in hand, and its live update, if one is being written."""

    def __init__(self, parts: Parts, books: Books, outlet: Outlet, group: TaskGroup) -> None:
        self._parts = parts
        self._books = books
        self._outlet = outlet
        self._group = group
        self.turn: Turn | None = None
        self._update: anyio.CancelScope | None = None
        self._update_over: anyio.Event | None = None

    async def hear(self, heard: Heard) -> None:
        """Prefill complete windows on every model; begin a live update where one is due."""
        turn = self.turn
        assert turn is not None
        if turn.failed is not None:
            return
        try:
            await self._prefill(turn, heard)
        except Exception as error:  # this turn's alone
            turn.failed = reason_of(error)
            self._books.close(turn)
            return
        if heard.provisional is not None and turn.edge is not None and self._update is None:
            # Before the task runs: a second one must not begin, whatever order the event loop
            # takes.
            self._update = anyio.CancelScope()
            self._update_over = anyio.Event()
            self._group.start_soon(
                self._describe_so_far, turn, turn.edge, heard, self._update, self._update_over
            )

    async def leave(self) -> Turn:
        """The turn goes on to the next stage, or away; nothing of ours touches it any more."""
        await self._stop_update()
        turn = self.turn
        self.turn = None
        assert turn is not None
        return turn

    async def finish(self, turn: Turn, closed: Closed, fed_at: float) -> Ready | Failed:
        """Hear the turn's last window on the edge, while its last samples are measured."""
        if turn.failed is not None:
            return Failed(turn.number, turn.failed)
        ranges: Ranges = FREE

        async def measure() -> None:
            nonlocal ranges
            run, limiter = anyio.to_thread.run_sync, self._parts.threads.limiter
            ranges = await run(self._parts.ranges, closed, limiter=limiter)

        try:
            async with anyio.create_task_group() as group:
                if closed.measures is not None:
                    group.start_soon(measure)
                if turn.edge is not None and closed.has_speech:
                    assert self._parts.edge is not None
                    steps = turn.edge.finish(closed.rest, closed.maximum)
                    await self._parts.edge.batcher.submit(steps)
        except Exception as error:  # this turn's alone
            self._books.close(turn)
            return Failed(turn.number, reason_of(error))
        return Ready(turn, closed, fed_at, ranges)

    async def _prefill(self, turn: Turn, heard: Heard) -> None:
        """On every model at once; a live update gives way to what the edge has to do."""
        steps = None if turn.edge is None else turn.edge.hear(heard)
        if steps is None:
            if turn.cloud is not None:
                await turn.cloud.hear(heard)
            return
        assert self._parts.edge is not None
        async with anyio.create_task_group() as group:
            if turn.cloud is not None:
                group.start_soon(turn.cloud.hear, heard)
            await self._stop_update()
            await self._parts.edge.batcher.submit(steps)

    async def _describe_so_far(
        self, turn: Turn, edge: Hearer, heard: Heard, scope: anyio.CancelScope, over: anyio.Event
    ) -> None:
        """A live update; cancelled as soon as the turn itself needs the model."""
        assert self._parts.edge is not None
        try:
            with scope:
                steps = self._parts.update(edge, heard.provisional)
                ids: Sequence[int] = await self._parts.edge.batcher.submit(steps)
                text = self._parts.text_of(ids)
                await self._outlet.send(
                    LiveUpdate(turn.number, text, tuple(ids), heard.num_taken / SAMPLE_RATE_HZ)
                )
        finally:
            self._update = None
            over.set()

    async def _stop_update(self) -> None:
        if self._update is not None and self._update_over is not None:
            self._update.cancel()
            await self._update_over.wait()

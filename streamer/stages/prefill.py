"""Second stage: windows of a turn in, a turn prefilled on every model out; live updates."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn_items import Closed, Dropped, Heard, Item, TurnOpened
from streamer.core.rules.settings import FLAT, LevelWeights
from streamer.stages.events import LiveUpdate, TurnFailed
from streamer.stages.ports import Answer, Hearer, Mark, OpenTurn, Outlet, Parts, Ready, reason_of

SLOT_WAIT_S = 120.0  # twice the longest turn
FULL = (
    f"other streams have held every KV slot for {SLOT_WAIT_S:g} s; commit or clear their turns, or "
    "give more slots"
)
Readies = MemoryObjectSendStream[Ready | Answer | Mark | TurnFailed]


async def prefill(
    items: MemoryObjectReceiveStream[tuple[Item | Answer | Mark, float]],
    ready: Readies,
    outlet: Outlet,
    parts: Parts,
    turns: OpenTurns,
) -> None:
    """Hand turns on in the order in which they were spoken. Ends when `items` does."""
    async with items, ready, anyio.create_task_group() as group:
        stage = _Prefill(parts, turns, outlet, group)
        async for item, fed_at in items:
            match item:
                case TurnOpened(number):
                    stage.turn = await turns.open(number)
                case Heard():
                    await stage.hear(item)
                case Closed():
                    await ready.send(await stage.finish(await stage.leave(), item, fed_at))
                case Dropped():
                    turns.close(await stage.leave())
                case Answer() | Mark():
                    if isinstance(item, Mark) and stage.turn is not None and stage.turn.cloud:
                        await stage.turn.cloud.prefilled()
                    await ready.send(item)


class _Prefill:
    """The turn in hand, and its live update, if one is being written."""

    def __init__(self, parts: Parts, turns: OpenTurns, outlet: Outlet, group: TaskGroup) -> None:
        self._parts = parts
        self._turns = turns
        self._outlet = outlet
        self._group = group
        self.turn: OpenTurn | None = None
        self._update: tuple[anyio.CancelScope, anyio.Event] | None = None  # being written; over

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
            self._turns.close(turn)
            return
        if heard.provisional is not None and turn.edge is not None and self._update is None:
            # Set before the task runs: a second update must not begin, in any order of tasks.
            self._update = anyio.CancelScope(), anyio.Event()
            self._group.start_soon(self._describe_so_far, turn, turn.edge, heard, *self._update)

    async def leave(self) -> OpenTurn:
        """Let go of the turn: it goes to the next stage, or is dropped."""
        await self._stop_update()
        turn = self.turn
        self.turn = None
        assert turn is not None
        return turn

    async def finish(self, turn: OpenTurn, closed: Closed, fed_at: float) -> Ready | TurnFailed:
        """Hear the turn's last window on the edge, while its last samples are measured."""
        if turn.failed is not None:
            return TurnFailed(turn.number, turn.failed)
        weights: LevelWeights = FLAT

        async def measure() -> None:
            nonlocal weights
            run, limiter = anyio.to_thread.run_sync, self._parts.threads.limiter
            weights = await run(self._parts.weights, closed, limiter=limiter)

        try:
            async with anyio.create_task_group() as group:
                if closed.measures is not None:
                    group.start_soon(measure)
                if turn.edge is not None and closed.has_speech:
                    assert self._parts.edge is not None
                    steps = turn.edge.finish(closed.rest, closed.maximum)
                    await self._parts.edge.batcher.submit(steps)
        except Exception as error:  # this turn's alone
            self._turns.close(turn)
            return TurnFailed(turn.number, reason_of(error))
        return Ready(turn, closed, fed_at, weights)

    async def _prefill(self, turn: OpenTurn, heard: Heard) -> None:
        """Prefill on both models at once; a live update gives way to the edge's own steps."""
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
        self,
        turn: OpenTurn,
        edge: Hearer,
        heard: Heard,
        scope: anyio.CancelScope,
        is_over: anyio.Event,
    ) -> None:
        """A live update; cancelled as soon as the turn itself needs the model."""
        assert self._parts.edge is not None
        try:
            with scope:
                run, limiter = anyio.to_thread.run_sync, self._parts.threads.limiter
                weights = await run(self._parts.weights, heard, limiter=limiter)
                steps = self._parts.update(edge, heard.provisional, weights)
                ids: Sequence[int] = await self._parts.edge.batcher.submit(steps)
                text = self._parts.text_of(ids)
                await self._outlet.send(
                    LiveUpdate(turn.number, text, tuple(ids), heard.num_taken / SAMPLE_RATE_HZ)
                )
        finally:
            self._update = None
            is_over.set()

    async def _stop_update(self) -> None:
        if self._update is not None:
            scope, is_over = self._update
            scope.cancel()
            await is_over.wait()


class OpenTurns:
    """A stream's open turns and their KV slots: none is leaked, whichever stage fails or is
    cancelled.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._open: set[OpenTurn] = set()

    @property
    def num_open(self) -> int:
        return len(self._open)

    async def open(self, number: int) -> OpenTurn:
        """A turn with a slot on every model. Waits while other streams hold all of them, for
        SLOT_WAIT_S; after that it has `failed`, and no slot."""
        # where this stream has turns, the wait is for them
        with anyio.move_on_after(None if self._open else SLOT_WAIT_S) as scope:
            await self._parts.slots.acquire()
        turn = OpenTurn(number)
        if scope.cancelled_caught:
            turn.failed = FULL
            return turn
        self._open.add(turn)
        try:
            turn.edge = self._parts.edge.listen() if self._parts.edge else None
            turn.cloud = self._parts.target()
        except Exception:
            self.close(turn)
            raise
        return turn

    def close(self, turn: OpenTurn) -> None:
        """Give the turn's slots back; a second call does nothing."""
        if turn not in self._open:
            return
        self._open.remove(turn)
        for hearer in (turn.edge, turn.cloud):
            if hearer is not None:
                hearer.close()
        self._parts.slots.release()

    def close_all(self) -> None:
        """For when the stream has ended."""
        for turn in list(self._open):
            self.close(turn)

"""Fourth stage: requests in, verdicts out, by the turn's target. Credits bound the replies."""

from __future__ import annotations

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from streamer.stages.plumbing.messages import Ask, Prepare, Ready, Reply, Settle, reason_of
from streamer.stages.plumbing.put import put


async def verify(
    requests: MemoryObjectReceiveStream[Prepare | Ask | Settle],
    replies: MemoryObjectSendStream[Reply],
) -> None:
    """A reply for each Ask that is not settled before. Ends when `requests` does."""
    async with requests, replies, anyio.create_task_group() as group:
        desk = _Desk(replies, group)
        async for item in requests:
            match item:
                case Prepare(ready):
                    await _prepare(ready)
                case Settle(turn):
                    await desk.settle()
                    await put(replies, Reply(turn))
                case Ask():
                    desk.take(item)


class _Desk:
    """The requests in hand, each in a task of its own: a target elsewhere takes several at once."""

    def __init__(self, replies: MemoryObjectSendStream[Reply], group: TaskGroup) -> None:
        self._replies = replies
        self._group = group
        self._scopes: dict[anyio.CancelScope, anyio.Event] = {}

    def take(self, ask: Ask) -> None:
        scope = anyio.CancelScope()
        self._scopes[scope] = anyio.Event()
        self._group.start_soon(self._answer, ask, scope)

    async def settle(self) -> None:
        """Nobody waits for what is in hand; the target has let go of it when this returns."""
        for scope, is_over in list(self._scopes.items()):
            scope.cancel()
            await is_over.wait()

    async def _answer(self, ask: Ask, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                try:
                    reply = Reply(ask.turn, await ask.target.verify(ask.request))
                except Exception as error:  # this turn's alone; the draft stage says so
                    reply = Reply(ask.turn, error=error)
                await put(self._replies, reply)
        finally:
            self._scopes.pop(scope).set()


async def _prepare(ready: Ready) -> None:
    target = ready.turn.cloud
    assert target is not None
    try:
        await target.finish(ready.closed, ready.ranges)
    except Exception as error:
        ready.turn.failed = reason_of(error)

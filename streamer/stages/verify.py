"""Fourth stage: requests in, verdicts out, by the turn's target. Credits bound the replies."""

from __future__ import annotations

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from streamer.stages.queues import Ask, Prepare, Ready, Reply, Settle, put, reason_of


async def verify(
    requests: MemoryObjectReceiveStream[Prepare | Ask | Settle],
    replies: MemoryObjectSendStream[Reply],
) -> None:
    """A reply for each Ask that is not settled before. Ends when `requests` does."""
    async with requests, replies, anyio.create_task_group() as group:
        pending = _Pending(replies, group)
        async for item in requests:
            match item:
                case Prepare(ready):
                    await _prepare(ready)
                case Settle(turn):
                    await pending.settle()
                    await put(replies, Reply(turn))
                case Ask():
                    pending.take(item)


class _Pending:
    """Requests without a reply, a task each: a target elsewhere takes several at once."""

    def __init__(self, replies: MemoryObjectSendStream[Reply], group: TaskGroup) -> None:
        self._replies = replies
        self._group = group
        self._scopes: dict[anyio.CancelScope, anyio.Event] = {}

    def take(self, ask: Ask) -> None:
        scope = anyio.CancelScope()
        self._scopes[scope] = anyio.Event()
        self._group.start_soon(self._answer, ask, scope)

    async def settle(self) -> None:
        """Cancel them all; the target has let go of them when this returns."""
        for scope, is_over in list(self._scopes.items()):
            scope.cancel()
            await is_over.wait()

    async def _answer(self, ask: Ask, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                try:
                    reply = Reply(ask.turn, await ask.target.verify(ask.request))
                except Exception as error:  # this turn's alone; the draft stage reports it
                    reply = Reply(ask.turn, error=error)
                await put(self._replies, reply)
        finally:
            self._scopes.pop(scope).set()


async def _prepare(ready: Ready) -> None:
    target = ready.turn.cloud
    assert target is not None
    try:
        await target.finish(ready.closed, ready.weights)
    except Exception as error:
        ready.turn.failed = reason_of(error)

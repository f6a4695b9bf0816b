"""Fourth stage: requests in, verdicts out, by the model behind `side`. Replies never block: credits bound them."""

from __future__ import annotations

from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from streamer.stages.messages import Ask, Prepare, Ready, Reply, Settle, reason_of
from streamer.stages.parts import Side


async def verify(
    requests: MemoryObjectReceiveStream[Prepare | Ask | Settle],
    replies: MemoryObjectSendStream[Reply],
    side: Side | None,
) -> None:
    """One reply for each Ask, in order. Without a side there is nothing to ask. Ends when `requests` does."""
    async with requests, replies:
        async for item in requests:
            assert side is not None, "no request comes where there is no cloud"
            match item:
                case Prepare(ready):
                    await _prepare(side, ready)
                case Settle(turn):
                    await replies.send(Reply(turn))
                case Ask(turn, target, request):
                    try:
                        reply = Reply(turn, await side.batcher.submit(target.verify(request)))
                    except Exception as error:  # this turn's alone; the draft stage says so
                        reply = Reply(turn, error=error)
                    await replies.send(reply)


async def _prepare(side: Side, ready: Ready) -> None:
    cloud, closed = ready.turn.cloud, ready.closed
    assert cloud is not None
    try:
        await side.batcher.submit(cloud.finish(closed.rest, closed.maximum))
    except Exception as error:
        ready.turn.failed = reason_of(error)

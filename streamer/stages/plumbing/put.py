"""How a stage hands on. In: a queue's sending end, an item. Out: nothing."""

from __future__ import annotations

from typing import TypeVar

from anyio import BrokenResourceError, WouldBlock
from anyio.lowlevel import checkpoint
from anyio.streams.memory import MemoryObjectSendStream

Item = TypeVar("Item")


async def put(queue: MemoryObjectSendStream[Item], item: Item) -> None:
    """`queue.send(item)`, at once where there is room: `send` goes through the event loop first,
    at each of the eight queues between the last sample and the first word."""
    try:
        queue.send_nowait(item)
    except WouldBlock:
        await queue.send(item)
    except BrokenResourceError:
        await checkpoint()  # mostly the stream is being left: then this says so
        raise

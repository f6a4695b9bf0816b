"""One stream: chunk | prefill | draft | verify | emit, joined by bounded queues. Implements events.py's Session.

Closing flows downstream: `end` closes the commands, each stage ends when its input does. Leaving the context manager
cancels what is left; every KV slot is given back, whatever happens.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from anyio import create_memory_object_stream as queue
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream

from streamer.core.hearing import Item
from streamer.stages.books import Books
from streamer.stages.chunk import chunk
from streamer.stages.draft import CREDITS, Draft
from streamer.stages.emit import emit
from streamer.stages.events import Event, NothingToCommit, SessionOptions
from streamer.stages.messages import (
    Answer,
    Ask,
    Clear,
    Command,
    Commit,
    Failed,
    Over,
    Piece,
    Prepare,
    Ready,
    Reply,
    Said,
    Settle,
)
from streamer.stages.outlet import MAX_EVENTS, Outlet
from streamer.stages.parts import Parts
from streamer.stages.prefill import prefill
from streamer.stages.verify import verify

PIECE_S = 0.1
MAX_PIECES = 50  # 5 s of audio, then `feed` waits
MAX_ITEMS = 8  # heard and not yet prefilled
MAX_SAID = 64  # committed and not yet emitted


@asynccontextmanager
async def open_stream(
    parts: Parts, options: SessionOptions, clock: Callable[[], float] = time.perf_counter
) -> AsyncIterator[Stream]:
    """A stream that runs until it is ended or left. Raises ValueError for options that mean nothing."""
    stream = Stream(parts, options, clock)
    try:
        async with anyio.create_task_group() as group:
            stream.start(group)
            yield stream
            group.cancel_scope.cancel()
    finally:
        stream.close()


class Stream:
    """See events.py's Session for what each method promises."""

    def __init__(self, parts: Parts, options: SessionOptions, clock: Callable[[], float]) -> None:
        self.books = Books(parts)
        self.num_bytes_fed = 0
        self._parts, self._options, self._clock = parts, options, clock
        self._piece_bytes = 2 * int(options.sample_rate_hz * PIECE_S)
        self._hearing = parts.hearing(options)
        self._commands, self._taken = queue[Command](MAX_PIECES)
        self._events: MemoryObjectReceiveStream[Event]
        self._draft: Draft

    def start(self, group: TaskGroup) -> None:
        """Join the stages and start them."""
        items, heard = queue[tuple[Item | Answer, float]](MAX_ITEMS)
        readies, ready = queue[Ready | Answer | Failed](1)
        asks, requests = queue[Prepare | Ask | Settle](CREDITS)
        replies, replied = queue[Reply](CREDITS)
        says, said = queue[Said | Over | Failed](MAX_SAID)
        events, self._events = queue[Event](MAX_EVENTS)
        outlet, parts = Outlet(events), self._parts
        self._draft = Draft(ready, asks, replied, says, parts, self.books, self._clock)
        group.start_soon(chunk, self._taken, items, outlet, self._hearing, parts.threads, name="chunk")
        group.start_soon(prefill, heard, readies, outlet.clone(), parts, self.books, name="prefill")
        group.start_soon(self._draft.run, self._options.answers_itself, name="draft")
        group.start_soon(verify, requests, replies, name="verify")
        group.start_soon(emit, said, outlet.clone(), parts, self._clock, name="emit")

    def close(self) -> None:
        """Give everything back; the stages have ended."""
        self.books.close_all()
        for end in (self._commands, self._taken, self._events):
            end.close()

    async def feed(self, pcm: bytes) -> None:
        for start in range(0, len(pcm), self._piece_bytes):
            piece = bytes(pcm[start : start + self._piece_bytes])
            await self._commands.send(Piece(piece, self._clock()))
            self.num_bytes_fed += len(piece)

    async def commit(self) -> int:
        command = Commit()
        await self._commands.send(command)
        await command.is_done.wait()
        if command.turn is None:
            raise NothingToCommit("there is no audio since the last turn; feed some before commit")
        return command.turn

    async def answer(self) -> None:
        await self._commands.send(Answer())

    async def clear(self) -> None:
        await self._commands.send(Clear())

    async def cancel(self) -> None:
        self._draft.cancel()

    async def end(self) -> None:
        self._commands.close()

    def events(self) -> AsyncIterator[Event]:
        return self._events  # no generator: one that is left early must be closed by whoever left it

    @property
    def backlog(self) -> dict[str, int]:
        """What waits in the queues that audio and text go through."""
        return {"pieces": self._taken.statistics().current_buffer_used, "turns": self.books.num_open,
                "events": self._events.statistics().current_buffer_used}  # fmt: skip

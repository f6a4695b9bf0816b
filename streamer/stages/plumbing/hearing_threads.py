"""Who may hear on a worker thread, of all streams. In: calls that hear. Out: what they return.

Two ways, since hearing is what a busy machine is busiest with: pieces wait for their turn, and the
end of a turn goes past them, for there someone waits for the first word: a turn that its client
ends, and pieces that come when half the silence has passed with which voice activity ends one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
import anyio.to_thread

from streamer.stages.plumbing.lead import Answers, Lead

Value = TypeVar("Value")
NUM_PIECES = 2  # threads that hear pieces at once
NUM_ENDS = 2  # and beside them, ends of turns
NUM_MEASURING = 2  # and beside both, what is measured


@dataclass(slots=True)
class _Waiter:
    is_over: anyio.Event = field(default_factory=anyio.Event)
    has_thread: bool = False  # or it was let go without one


class HearingThreads:
    """Of all streams of a describer, on one event loop; each hears through its `Seat`."""

    def __init__(self, num_pieces: int = NUM_PIECES, num_ends: int = NUM_ENDS) -> None:
        self.limiter = anyio.CapacityLimiter(num_pieces + num_ends)
        self.measuring = anyio.CapacityLimiter(NUM_MEASURING)
        self.answers = Answers()
        self._num_free = num_pieces
        # first come, first served; at most one entry a stream
        self._queue: dict[Seat, _Waiter] = {}

    async def take(self, seat: Seat) -> bool:
        """Wait for a thread, to be given back. False: `let_go` came first."""
        if self._num_free:
            self._num_free -= 1
            return True
        waiting = self._queue[seat] = _Waiter()
        try:
            await waiting.is_over.wait()
        except BaseException:
            self._queue.pop(seat, None)
            if waiting.has_thread:  # given, and cancelled before it knew
                self.give_back()
            raise
        return waiting.has_thread

    def give_back(self) -> None:
        """The next in the queue has it."""
        if not self._queue:
            self._num_free += 1
            return
        waiting = self._queue.pop(next(iter(self._queue)))
        waiting.has_thread = True
        waiting.is_over.set()

    def let_go(self, seat: Seat) -> None:
        """`seat` leaves the queue, if it is in it, and goes on without."""
        if (waiting := self._queue.pop(seat, None)) is not None:
            waiting.is_over.set()


class Seat:
    """One stream's place. `async with seat.waited(): await seat.run(f, ...)`, one at a time.
    is_ending: voice activity may end the turn with the next piece; it waits for no other stream's.
    lead: how far the stream is ahead of real time.
    """

    def __init__(self, threads: HearingThreads, lead: Lead | None = None) -> None:
        self.lead = lead or Lead(threads.answers)
        self._threads = threads
        self._is_hurried = self.is_ending = False

    def hurry(self) -> None:
        """Somebody waits for the end of what is queued here: until `rest`, it waits for no other
        stream's pieces. Where it pushes, it gives way all the same."""
        self._is_hurried = True
        self._threads.let_go(self)

    def rest(self) -> None:
        """The end is heard, or will not come."""
        self._is_hurried = False

    @asynccontextmanager
    async def waited(self) -> AsyncIterator[None]:
        """When it is this stream's turn to hear. Who joins inside what came meanwhile pays less for
        a second of audio the longer the queue is."""
        has_thread = not (self._is_hurried or self.is_ending) and await self._threads.take(self)
        try:
            yield
        finally:
            if has_thread:
                self._threads.give_back()

    async def run(self, call: Callable[..., Value], *arguments: object) -> Value:
        """`call(*arguments)` on a worker thread. Raises what it raises."""
        return await anyio.to_thread.run_sync(call, *arguments, limiter=self._threads.limiter)

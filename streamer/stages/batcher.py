"""One model's thread, on which steps of many streams share the engine's steps.

The event loop never waits for torch: it hands steps over and awaits an event. Bounded by its
callers: a stream has at most one submission in hand per task, and a slot per turn.
"""

from __future__ import annotations

import atexit
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import anyio.lowlevel
import anyio.to_thread

CLOSED = "the describer was closed; nothing of it can be used any more"
EXIT_S = 10.0  # to wait for the round in hand, in a process that ends without closing


class Scheduler(Protocol):
    """model/scheduler.py's StepScheduler: steps come in under a key, every `run` feeds one row of
    each of them, and returns those that are done: with key, value and error."""

    def add(self, key: Any, steps: Any) -> None: ...
    def drop(self, key: Any) -> None: ...
    def run(self) -> Sequence[Any]: ...
    def __len__(self) -> int: ...


@dataclass(eq=False)
class _Ticket:
    steps: Any
    is_done: anyio.Event = field(default_factory=anyio.Event)
    value: Any = None
    error: Exception | None = None


class Batcher:
    """`async with Batcher(rounds): await batcher.submit(steps)`, from any task of one loop."""

    def __init__(self, rounds: Scheduler, name: str) -> None:
        self._rounds = rounds
        self._name = name
        self._inbox: queue.SimpleQueue[tuple[_Ticket, bool] | None] = queue.SimpleQueue()
        self._in_hand: set[_Ticket] = set()
        self._is_closed = False
        self._post: Callable[[Callable[[], object]], object] = lambda call: None

    async def __aenter__(self) -> Batcher:
        # asyncio's or trio's; it does not wait for the call's result, as anyio's from_thread does
        loop: Any = anyio.lowlevel.current_token().native_token
        self._post = getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        atexit.register(self._forgotten)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._end()
        with anyio.CancelScope(shield=True):  # bounded: a round ends
            await anyio.to_thread.run_sync(self._thread.join)
        atexit.unregister(self._forgotten)

    def _end(self) -> None:
        # Reject submissions from here on; the thread would never see them.
        self._is_closed = True
        self._inbox.put(None)

    def _forgotten(self) -> None:
        """Called at exit if the batcher was not closed: a daemon thread that comes back from torch
        would abort the process. Tasks of a loop in another thread get the error."""
        self._end()
        self._thread.join(EXIT_S)

    @property
    def is_busy(self) -> bool:
        """Whether steps are in hand or wait."""
        return bool(self._in_hand) or not self._inbox.empty()

    async def submit(self, steps: Any) -> Any:
        """The value that `steps` return. Raises their errors.

        A caller that is cancelled waits until the engine has let go of its steps: then its slot may
        be closed. Raises RuntimeError when the batcher is closed.
        """
        if self._is_closed:
            raise RuntimeError(CLOSED)
        ticket = _Ticket(steps)
        self._inbox.put((ticket, True))
        try:
            await ticket.is_done.wait()
        except anyio.get_cancelled_exc_class():
            self._inbox.put((ticket, False))
            with anyio.CancelScope(shield=True):  # bounded: one round
                await ticket.is_done.wait()
            raise
        if ticket.error is not None:
            raise ticket.error
        return ticket.value

    def _run(self) -> None:
        """The thread: take submissions, run a round, hand out results."""
        while self._take():
            if not len(self._rounds):
                continue
            for done in self._rounds.run():
                done.key.value = done.value
                done.key.error = done.error
                self._finish(done.key)
        for ticket in list(self._in_hand):
            self._rounds.drop(ticket)
            ticket.error = RuntimeError(CLOSED)
            self._finish(ticket)

    def _take(self) -> bool:
        """Take all submissions; wait for one where none is in hand. False at the end."""
        is_idle = not len(self._rounds)
        while True:
            try:
                entry = self._inbox.get(block=is_idle)
            except queue.Empty:
                return True
            if entry is None:
                return False
            is_idle = False
            ticket, is_new = entry
            if is_new:
                self._in_hand.add(ticket)
                self._rounds.add(ticket, ticket.steps)
            elif ticket in self._in_hand:
                self._rounds.drop(ticket)
                self._finish(ticket)

    def _finish(self, ticket: _Ticket) -> None:
        self._in_hand.discard(ticket)
        try:
            self._post(ticket.is_done.set)
        except RuntimeError:  # the event loop is gone, and with it all that waited
            return

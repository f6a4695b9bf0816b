"""One model's thread, on which steps of many streams share the engine's steps; the cloud model on
such a thread as the target of turns.

The event loop never waits for torch: it hands steps over and awaits an event. Bounded by its
callers: a stream has at most one submission in hand per task, and a slot per turn.
"""

from __future__ import annotations

import atexit
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread

from streamer.core.audio.turn_items import Closed, Heard
from streamer.core.decoding.plan import Mode, Refusal, Verdict, VerifyRequest
from streamer.core.rules.settings import LevelWeights, Rules
from streamer.stages.ports import Hearer, Side

CLOSED = "the describer was closed; nothing of it can be used any more"
EXIT_S = 10.0  # to wait for the round in hand, in a process that ends without closing


@dataclass(eq=False)
class _Ticket:
    steps: Any
    is_done: anyio.Event = field(default_factory=anyio.Event)
    value: Any = None
    error: Exception | None = None


class Batcher:
    """`async with Batcher(rounds): await batcher.submit(steps)`, from any task of one loop.

    rounds: a StepScheduler (model/scheduler.py). Every `run` feeds one row of each job that was
    added, and returns the jobs that are done, with their value or error.
    """

    def __init__(self, rounds: Any, name: str) -> None:
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
        atexit.register(self._end, EXIT_S)
        return self

    async def __aexit__(self, *error: object) -> None:
        # Reject submissions from here on; the thread would never see them.
        self._is_closed = True
        with anyio.CancelScope(shield=True):  # bounded: a round ends
            await anyio.to_thread.run_sync(self._end)
        atexit.unregister(self._end)

    def _end(self, wait_s: float | None = None) -> None:
        """Wait for the thread's end: at exit, too, since a daemon thread that comes back from torch
        would abort the process."""
        self._inbox.put(None)
        self._thread.join(wait_s)

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
            for done in self._rounds.run():
                self._finish(done)
        for ticket in list(self._in_hand):
            self._rounds.drop(ticket)
            ticket.error = RuntimeError(CLOSED)
            self._finish(ticket)

    def _take(self) -> bool:
        """Take all submissions; wait for one where none is in hand. False at the end."""
        while not (len(self._rounds) and self._inbox.empty()):
            entry = self._inbox.get()
            if entry is None:
                return False
            ticket, is_new = entry
            if is_new:
                self._in_hand.add(ticket)
                self._rounds.add(ticket)
            elif ticket in self._in_hand:
                self._rounds.drop(ticket)
                self._finish(ticket)
        return True

    def _finish(self, ticket: _Ticket) -> None:
        self._in_hand.discard(ticket)
        with suppress(RuntimeError):  # the event loop is gone, and with it all that waited
            self._post(ticket.is_done.set)


@dataclass(eq=False)
class LocalTarget:
    """One turn on the model that verifies; RemoteTarget of net/link offers the same methods.

    is_up: whether it is worth asking for this turn now, where its cloud is up: after a missed
    deadline only once it has answered, since each request would cost a budget. traffic: bytes up
    and down, on the way to a target elsewhere. It holds a KV slot until it is closed; no call may
    be in hand then.

    verifier_of: of a listener, by level weights. prefills: whether to prefill the last window at
    once, or with the first request. hears_late: all audio waits for `finish`, which then hears it.
    """

    batcher: Batcher
    hearer: Hearer
    verifier_of: Callable[..., Any]
    prefills: Callable[[], bool]
    hears_late: bool = False
    is_up: bool = True
    traffic: tuple[int, int] = (0, 0)
    _unheard: list[Heard] = field(default_factory=list)  # the edge holds their windows, too
    _verifier: Any = None  # model/decoding.py's LocalVerifier, once the turn is over
    _is_finished: anyio.Event = field(default_factory=anyio.Event)
    # a late verdict's request is not overtaken
    _asking: anyio.Lock = field(default_factory=partial(anyio.Lock, fast_acquire=True))

    async def hear(self, heard: Heard) -> None:
        """Prefill windows; a target elsewhere returns at once."""
        if self.hears_late:
            self._unheard.append(replace(heard, samples=None, provisional=None, measures=None))
        elif (steps := self.hearer.hear(heard)) is not None:
            await self.batcher.submit(steps)

    async def finish(self, closed: Closed, weights: LevelWeights) -> None:
        self.hears_late = False
        for heard in self._unheard:
            await self.hear(heard)
        self._unheard.clear()
        await self.batcher.submit(self.hearer.finish(closed.rest, closed.maximum, self.prefills()))
        self._verifier = self.verifier_of(self.hearer, weights=weights)
        self._is_finished.set()

    async def prefilled(self) -> None:
        """Wait until all is prefilled, as `hear` has here; briefly where the target is away."""

    async def verify(self, request: VerifyRequest) -> Verdict | Refusal:
        """Verify a block, once the target has heard the turn's end. Raises the model's errors;
        elsewhere TargetLost where waiting is in vain."""
        await self._is_finished.wait()
        async with self._asking:
            reply: Verdict | Refusal = await self.batcher.submit(self._verifier.verify(request))
            self.is_up = True
            return reply

    def failed(self) -> None:
        """A verdict did not come in time."""
        self.is_up = False

    def close(self) -> None:
        self.hearer.close()


@dataclass(eq=False)
class LocalCloud:
    """The cloud in this process; RemoteCloud of net/link offers the same.

    is_up: worth asking now. name, trouble (why it may be away): for error messages. verifier_of: of
    a listener, by rules and level weights. hears_late: as its targets.
    """

    side: Side
    verifier_of: Callable[..., Any]
    mode: Mode
    hears_late: bool = False
    is_up = True
    name = "the cloud model"
    trouble = "it is slow"

    @property
    def hears_ends(self) -> bool:
        """Whether it hears the end of a turn that it is not asked about yet: it is asked about
        every turn, or is idle."""
        is_free = not (self.hears_late or self.side.batcher.is_busy)
        return is_free or self.mode != "gated"

    def listen(self, rules: Rules) -> LocalTarget:
        batcher = self.side.batcher
        return LocalTarget(
            batcher,
            self.side.listen(rules.language),
            partial(self.verifier_of, rules=rules),
            # an edge drafts first, and an idle cloud has that time to prefill
            lambda: self.mode != "cloud" and not batcher.is_busy,
            self.hears_late,
        )

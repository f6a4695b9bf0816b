"""Third stage: a prefilled turn in, committed ids out. Drives the state machine; asks `verify`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from streamer.core.decoding.counts import Counts
from streamer.core.decoding.plan import Action, Done, DraftMore, Emit, Verify, Wait
from streamer.core.decoding.speculate import Speculator
from streamer.core.decoding.verdict import Refusal, Verdict
from streamer.core.rules.form import FREE, Ranges
from streamer.stages.plumbing.draft_on_edge import Drafting, may_ask
from streamer.stages.plumbing.messages import (
    Answer,
    Ask,
    Failed,
    Mark,
    Over,
    Prepare,
    Ready,
    Reply,
    Said,
    Settle,
    reason_of,
)
from streamer.stages.plumbing.open_turns import Books
from streamer.stages.plumbing.ports import Parts
from streamer.stages.plumbing.put import put
from streamer.stages.plumbing.target import Cloud, Target, TargetLost

CREDITS = 4  # requests, and verdicts, that fit into the queues between draft and verify


class Draft:
    """`run` is the stage; `cancel` ends the answer in hand, whatever it waits for."""

    def __init__(
        self,
        ready: MemoryObjectReceiveStream[Ready | Answer | Mark | Failed],
        requests: MemoryObjectSendStream[Prepare | Ask | Settle],
        replies: MemoryObjectReceiveStream[Reply],
        said: MemoryObjectSendStream[Said | Over | Failed],
        parts: Parts,
        books: Books,
        clock: Callable[[], float],
    ) -> None:
        self._ready = ready
        self._requests = requests
        self._replies = replies
        self._said = said
        self._parts = parts
        self._books = books
        self._clock = clock
        self._waiting: anyio.CancelScope | None = None
        self._cancelled = -1  # this turn and all before it
        self._begin(None)

    def _begin(self, turn: int | None) -> None:
        """The turn in hand is another one."""
        self._answering = turn
        self._num_asked = self._num_replied = 0
        self._is_prepared = False
        # request -> its draft's ids, as counted; those without a reply
        self._asked: dict[int, int] = {}
        self._lost: str | None = None  # why its target will answer no more

    async def run(self, answers_itself: bool) -> None:
        """Answer turn after turn, at once or when an Answer comes. Ends when `ready` does."""
        held: Ready | None = None
        async with self._ready, self._requests, self._replies, self._said:
            async for item in self._ready:
                if isinstance(item, Failed):
                    if held is not None:  # an Answer that comes means the turn that failed
                        self._books.close(held.turn)
                    held = None
                    await put(self._said, item)
                elif isinstance(item, Mark):
                    item.is_done.set()
                elif isinstance(item, Answer):
                    if held is not None:
                        await self._answer(held)
                    held = None
                # a part holds a slot; its end may never be asked for
                elif answers_itself or item.closed.goes_on:
                    await self._answer(item)
                else:
                    if held is not None:  # committed after it, and never asked for
                        self._books.close(held.turn)
                    held = item

    def cancel(self, last: int) -> None:
        """The answers to turn `last` and all before it end with what is committed, begun or not."""
        self._cancelled = max(self._cancelled, last)
        if self._is_cancelled and self._waiting is not None:
            self._waiting.cancel()

    async def _answer(self, ready: Ready) -> None:
        self._begin(ready.turn.number)
        over: Over | Failed
        try:
            over = await self._drive(ready) if ready.closed.has_speech else self._no_speech(ready)
        except Exception as error:  # this turn's alone
            over = Failed(ready.turn.number, reason_of(error))
        self._answering = None
        await put(self._said, over)  # before a target is waited for that was too slow already
        await self._settle(ready.turn.number)
        self._books.close(ready.turn)

    async def _settle(self, turn: int) -> None:
        """Wait until the target has let go of the turn: it has, where all was replied to."""
        if self._num_asked == self._num_replied and (self._num_replied or not self._is_prepared):
            return
        await put(self._requests, Settle(turn))
        async for reply in self._replies:
            if reply == Reply(turn):
                return

    @property
    def _is_cancelled(self) -> bool:
        return self._answering is not None and self._answering <= self._cancelled

    def _no_speech(self, ready: Ready) -> Over:
        return Over(ready, "no_speech", self._parts.mode, Counts(), None, self._clock())

    async def _drive(self, ready: Ready) -> Over | Failed:
        turn = ready.turn
        parts = self._parts
        cloud = self._parts.cloud
        if cloud is not None and self._is_sure_to_ask(cloud):
            await self._prepare(ready)
        action: Action | None = None
        edge = None
        if turn.edge is None:
            spec = parts.speculator(None)
        else:
            edge = Drafting(ready, parts, self._said, self._clock, lambda: self._is_cancelled)
            action = await self._begin_on_edge(ready, edge)
            spec = edge.spec
        prefilled_at: float | None = None  # by the target, where it speaks first
        num_failures = num_calls = 0
        while True:
            if action is None:
                # only here, between steps: the sequence is its engine's while one runs
                if self._is_cancelled:
                    spec.cancel()
                self._take_replies(spec, turn.number)
                action = spec.next(self._clock(), may_ask(cloud, turn))
            if spec.num_failures > num_failures and turn.cloud is not None:
                num_failures = spec.num_failures
                turn.cloud.failed()
            now = action
            action = None
            match now:
                case DraftMore():
                    assert edge is not None
                    action = await self._on_edge(edge, edge.draft(now))
                case Verify(request):
                    await self._prepare(ready)
                    self._num_asked += 1
                    assert turn.cloud is not None
                    # else it was refused, and counted then
                    if spec.counts.cloud_calls > num_calls:
                        num_calls = spec.counts.cloud_calls
                        self._asked[request.number] = len(request.draft)
                    await put(self._requests, Ask(turn.number, turn.cloud, request))
                case Wait(until):
                    await self._reply(spec, turn.number, until)
                    prefilled_at = prefilled_at or self._clock()
                case Emit(ids, verified, log_probs):
                    await put(self._said, Said(ready, ids, verified, log_probs))
                case Done("error"):
                    return Failed(turn.number, self._why_lost(spec), is_target_lost=True)
                case Done(reason):
                    if turn.cloud is not None:
                        self._count_sent(spec.counts, turn.cloud)
                    if edge is not None:
                        prefilled_at = min(
                            filter(None, (edge.prefilled_at, prefilled_at)), default=None
                        )
                    return Over(ready, reason, parts.mode, spec.counts, prefilled_at, self._clock())

    def _count_sent(self, counts: Counts, target: Target) -> None:
        """What was asked and never left was neither uploaded nor a call."""
        counts.bytes_up, counts.bytes_down = target.traffic
        for number, n_drafted in self._asked.items():
            if not target.has_sent(number):
                counts.cloud_calls -= 1
                counts.n_uploaded -= n_drafted

    def _is_sure_to_ask(self, cloud: Cloud) -> bool:
        """Whether the cloud hears the end with the edge: it will be asked, or is idle anyway."""
        return cloud.is_remote or self._parts.mode in ("exact", "cloud") or not cloud.is_busy

    async def _on_edge(self, edge: Drafting, steps: Any) -> Action | None:
        """Run steps of `edge`; what they came to."""
        assert self._parts.edge is not None
        action: Action | None = await self._parts.edge.batcher.submit(steps)
        await edge.flush()
        return action

    async def _begin_on_edge(self, ready: Ready, edge: Drafting) -> Action | None:
        """Measures say which levels may be said. They are known before the edge has heard the end,
        most often: then it needs no other way to its thread."""
        if ready.closed.measures is None:
            return await self._on_edge(edge, edge.begin([FREE]))
        known: list[Ranges] = []

        async def learn() -> None:
            known.append(await ready.ranges())

        async with anyio.create_task_group() as group:
            group.start_soon(learn)
            action = await self._on_edge(edge, edge.begin(known))
        return action if edge.is_held else await self._on_edge(edge, edge.hold(known[0]))

    async def _prepare(self, ready: Ready) -> None:
        """Let the target hear the turn's end, once."""
        if not self._is_prepared:
            self._is_prepared = True
            await put(self._requests, Prepare(ready))

    async def _reply(self, spec: Speculator, turn: int, until: float) -> None:
        """Wait for a reply, until `until` (the state machine's deadline), or cancelled."""
        with anyio.move_on_after(max(0.0, until - self._clock())) as self._waiting:
            self._take(spec, turn, await self._replies.receive())

    def _take_replies(self, spec: Speculator, turn: int) -> None:
        """Those that came while the edge drafted ahead."""
        with suppress(anyio.WouldBlock):
            while True:
                self._take(spec, turn, self._replies.receive_nowait())

    def _take(self, spec: Speculator, turn: int, reply: Reply) -> None:
        assert reply.turn == turn, "an earlier turn was not settled"
        self._num_replied += 1
        match reply:
            case Reply(error=TargetLost() as error):
                self._lost = str(error)
                spec.failed()
            case Reply(error=Exception() as error):
                raise error
            case Reply(verdict=Refusal() as refusal):
                self._asked.pop(refusal.number, None)
                spec.refused(refusal)
            case Reply(verdict=Verdict() as verdict):
                self._asked.pop(verdict.number, None)
                spec.verdict(verdict, self._clock())

    def _why_lost(self, spec: Speculator) -> str:
        """Mode exact or cloud, and no verdict: one line, cause and way out."""
        cloud = self._parts.cloud
        assert cloud is not None
        limit_s = spec.plan.verify_budget_s
        why = self._lost or f"no verdict of {cloud.name} within {limit_s:g} s ({cloud.trouble})"
        stands = "what was said before stands; " if spec.sequence.n_committed else ""
        return f"{why}; {stands}take --mode gated or --degrade to go on without it"

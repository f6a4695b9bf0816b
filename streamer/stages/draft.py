"""Third stage: a prefilled turn in, committed ids out. Drives the state machine; asks `verify`."""

from __future__ import annotations

from collections.abc import Callable

from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from streamer.core.decoding.counts import Counts
from streamer.core.decoding.plan import Action, Done, DraftMore, Emit, Verify, Wait
from streamer.core.decoding.speculate import Speculator
from streamer.stages.plumbing.asking import Asking
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
from streamer.stages.plumbing.target import Cloud

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
        self._cancelled = -1  # this turn and all before it
        self._answering: int | None = None
        self._asking: Asking | None = None  # of the turn that is answered

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
        if self._is_cancelled and self._asking is not None:
            self._asking.cancel()

    async def _answer(self, ready: Ready) -> None:
        self._answering = ready.turn.number
        asking = self._asking = Asking(ready, self._requests, self._replies, self._clock)
        over: Over | Failed
        try:
            if ready.closed.has_speech:
                over = await self._drive(ready, asking)
            else:
                over = self._no_speech(ready)
        except Exception as error:  # this turn's alone
            over = Failed(ready.turn.number, reason_of(error))
        self._answering = None
        await put(self._said, over)  # before waiting for a target that was too slow already
        await asking.settle()
        self._books.close(ready.turn)

    @property
    def _is_cancelled(self) -> bool:
        return self._answering is not None and self._answering <= self._cancelled

    def _no_speech(self, ready: Ready) -> Over:
        return Over(ready, "no_speech", self._parts.mode, Counts(), None, self._clock())

    async def _drive(self, ready: Ready, asking: Asking) -> Over | Failed:
        turn = ready.turn
        parts = self._parts
        cloud = self._parts.cloud
        if cloud is not None and self._is_sure_to_ask(cloud):
            await asking.prepare()
        action: Action | None = None
        edge = None
        if turn.edge is not None:
            edge = Drafting(ready, parts, self._said, self._clock, lambda: self._is_cancelled)
        spec = parts.speculator(None) if edge is None else edge.spec
        prefilled_at: float | None = None  # by the target, where it speaks first
        while True:
            if action is None:
                # only here, between steps: the sequence is its engine's while one runs
                if self._is_cancelled:
                    spec.cancel()
                asking.take_replies(spec)
                action = spec.next(self._clock(), may_ask(cloud, turn))
            asking.see_failures(spec)
            now = action
            action = None
            match now:
                case DraftMore():
                    assert edge is not None
                    action = await self._on_edge(edge, now)
                case Verify(request):
                    await asking.ask(request, spec.counts)
                case Wait(until):
                    await asking.reply(spec, until)
                    prefilled_at = prefilled_at or self._clock()
                case Emit(ids, verified, log_probs):
                    await put(self._said, Said(ready, ids, verified, log_probs))
                case Done("error"):
                    return Failed(turn.number, self._why_lost(spec, asking), is_target_lost=True)
                case Done(reason):
                    asking.count_sent(spec.counts)
                    if edge is not None:
                        prefilled_at = min(
                            filter(None, (edge.prefilled_at, prefilled_at)), default=None
                        )
                    return Over(ready, reason, parts.mode, spec.counts, prefilled_at, self._clock())

    def _is_sure_to_ask(self, cloud: Cloud) -> bool:
        """Whether the cloud hears the end with the edge: it will be asked, or is idle anyway."""
        return cloud.is_remote or self._parts.mode in ("exact", "cloud") or not cloud.is_busy

    async def _on_edge(self, edge: Drafting, wanted: DraftMore) -> Action | None:
        """Draft; returns the action that needs more than the edge."""
        assert self._parts.edge is not None
        action: Action | None = await self._parts.edge.batcher.submit(edge.draft(wanted))
        await edge.flush()
        return action

    def _why_lost(self, spec: Speculator, asking: Asking) -> str:
        """Mode exact or cloud, and no verdict: one line, cause and way out."""
        cloud = self._parts.cloud
        assert cloud is not None
        limit_s = spec.plan.verify_budget_s
        why = asking.lost or f"no verdict of {cloud.name} within {limit_s:g} s ({cloud.trouble})"
        stands = "what was said before stands; " if spec.sequence.n_committed else ""
        return f"{why}; {stands}take --mode gated or --degrade to go on without it"

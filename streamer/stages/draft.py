"""Third stage: a prefilled turn in, committed ids out. Drives the state machine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from streamer.core.decoding.gate import Signal
from streamer.core.decoding.machine import Speculator
from streamer.core.decoding.plan import Counts, Done, DraftMore, Emit, Verify, Wait
from streamer.core.decoding.verdict import Refusal, Verdict, VerifyRequest
from streamer.stages.ports import Cloud, Drafter, Parts, Steps, TargetLost
from streamer.stages.prefill import OpenTurns
from streamer.stages.queues import (
    Answer,
    Answered,
    Ask,
    Committed,
    Failed,
    Mark,
    Prepare,
    Ready,
    Reply,
    Settle,
    put,
    reason_of,
)

CREDITS = 4  # requests, and verdicts, that fit into the queues between draft and verify


class Draft:
    """`run` is the stage; `cancel` ends the answer in hand, whatever it waits for."""

    def __init__(
        self,
        ready: MemoryObjectReceiveStream[Ready | Answer | Mark | Failed],
        requests: MemoryObjectSendStream[Prepare | Ask | Settle],
        replies: MemoryObjectReceiveStream[Reply],
        answers: MemoryObjectSendStream[Committed | Answered | Failed],
        parts: Parts,
        turns: OpenTurns,
        clock: Callable[[], float],
    ) -> None:
        self._ready = ready
        self._requests = requests
        self._replies = replies
        self._answers = answers
        self._parts = parts
        self._turns = turns
        self._clock = clock
        self._cancelled = -1  # this turn and all before it
        self._answering: int | None = None
        self._asking: TurnRequests | None = None  # those of the turn that is answered

    async def run(self, answers_itself: bool) -> None:
        """Answer turn after turn, at once or when an Answer comes. Ends when `ready` does."""
        held: Ready | None = None
        async with self._ready, self._requests, self._replies, self._answers:
            async for item in self._ready:
                match item:
                    case Mark():
                        item.is_done.set()
                    case Ready() if answers_itself or item.closed.goes_on:
                        # a part holds a slot; its end may never be asked for
                        await self._answer(item)
                    case Answer():
                        if held is not None:
                            await self._answer(held)
                        held = None
                    case Ready() | Failed():
                        if held is not None:  # never asked for, or a later turn failed
                            self._turns.close(held.turn)
                        held = item if isinstance(item, Ready) else None
                        if isinstance(item, Failed):
                            await put(self._answers, item)

    def cancel(self, last: int) -> None:
        """The answers to turn `last` and all before it end with the committed ids, begun or not."""
        self._cancelled = max(self._cancelled, last)
        if self._is_cancelled and self._asking is not None:
            self._asking.cancel()

    async def _answer(self, ready: Ready) -> None:
        self._answering = ready.turn.number
        asking = TurnRequests(ready, self._requests, self._replies, self._clock)
        self._asking = asking
        end: Answered | Failed
        try:
            if ready.closed.has_speech:
                end = await self._drive(ready, asking)
            else:
                mode = self._parts.mode
                end = Answered(ready, "no_speech", mode, Counts(), None, self._clock())
        except Exception as error:  # this turn's alone
            end = Failed(ready.turn.number, reason_of(error))
        self._answering = None
        await put(self._answers, end)  # before waiting for a target that was too slow already
        await asking.settle()
        self._turns.close(ready.turn)

    @property
    def _is_cancelled(self) -> bool:
        return self._answering is not None and self._answering <= self._cancelled

    async def _drive(self, ready: Ready, asking: TurnRequests) -> Answered | Failed:
        turn = ready.turn
        parts = self._parts
        if parts.cloud is not None and self._is_sure_to_ask(parts.cloud):
            await asking.prepare()
        spec = parts.speculator(turn.edge)
        edge = EdgeDraft(ready, parts)
        prefilled_at: float | None = None  # when the first id was there
        while True:
            if self._is_cancelled:
                spec.cancel()
            asking.take_replies(spec)
            action = spec.next(self._clock(), self._may_ask(ready))
            asking.see_failures(spec)
            match action:
                case DraftMore(n):
                    ids, signals = await edge.draft(1 if prefilled_at is None else n)
                    now = self._clock()
                    prefilled_at = prefilled_at or now
                    spec.drafted(ids, signals, now)
                case Verify(request):
                    await asking.ask(request, spec.counts)
                case Wait(until):
                    await asking.reply(spec, until)
                    prefilled_at = prefilled_at or self._clock()
                case Emit():
                    await put(self._answers, Committed(ready, action))
                case Done("error"):
                    return Failed(turn.number, self._why_lost(spec, asking), is_target_lost=True)
                case Done(reason):
                    asking.count_sent(spec.counts)
                    now = self._clock()
                    return Answered(ready, reason, parts.mode, spec.counts, prefilled_at, now)

    def _is_sure_to_ask(self, cloud: Cloud) -> bool:
        """Whether the cloud hears the end with the edge: it will be asked, or is idle anyway."""
        return cloud.is_remote or self._parts.mode in ("exact", "cloud") or not cloud.is_busy

    def _may_ask(self, ready: Ready) -> bool:
        """Whether it is worth asking about the turn now."""
        cloud = self._parts.cloud
        target = ready.turn.cloud
        return cloud is not None and cloud.is_up and target is not None and target.is_up

    def _why_lost(self, spec: Speculator, asking: TurnRequests) -> str:
        """Mode exact or cloud, and no verdict: one line, cause and way out."""
        cloud = self._parts.cloud
        assert cloud is not None
        limit_s = spec.plan.verify_budget_s
        why = asking.lost or f"no verdict of {cloud.name} within {limit_s:g} s ({cloud.trouble})"
        stands = "the committed text stands; " if spec.sequence.n_committed else ""
        return f"{why}; {stands}take --mode gated or --degrade to go on without it"


class EdgeDraft:
    """One turn's drafter, on the edge's thread."""

    def __init__(self, ready: Ready, parts: Parts) -> None:
        self._ready = ready
        self._parts = parts
        self._drafter: Drafter | None = None

    async def draft(self, n: int) -> tuple[list[int], list[Signal]]:
        """Up to `n` ids, which now stand at the sequence's end, and their signals."""
        assert self._parts.edge is not None
        drafted: tuple[list[int], list[Signal]] = await self._parts.edge.batcher.submit(
            self._steps(n)
        )
        return drafted

    def _steps(self, n: int) -> Steps:
        if self._drafter is None:
            edge = self._ready.turn.edge
            assert edge is not None
            self._drafter = self._parts.drafter(edge, self._ready.weights)
        return (yield from self._drafter.draft(n))


class TurnRequests:
    """One turn's requests to its target, through the queues of the verify stage.

    `prepare`, then `ask` and `reply`; `settle` when the turn is over. lost: why the target will not
    answer any more.
    """

    def __init__(
        self,
        ready: Ready,
        requests: MemoryObjectSendStream[Prepare | Ask | Settle],
        replies: MemoryObjectReceiveStream[Reply],
        clock: Callable[[], float],
    ) -> None:
        self.lost: str | None = None
        self._ready = ready
        self._turn = ready.turn.number
        self._target = ready.turn.cloud
        self._requests = requests
        self._replies = replies
        self._clock = clock
        self._is_prepared = False
        self._num_asked = self._num_replied = 0
        self._num_calls = self._num_failures = 0  # counts of the state machine, as last seen
        self._asked: dict[int, int] = {}  # requests without a reply -> ids of their draft
        self._waiting: anyio.CancelScope | None = None

    async def prepare(self) -> None:
        """Let the target hear the turn's end, once."""
        if not self._is_prepared:
            self._is_prepared = True
            await put(self._requests, Prepare(self._ready))

    async def ask(self, request: VerifyRequest, counts: Counts) -> None:
        """Send one block. counts: with this request, unless it was refused and is sent again."""
        await self.prepare()
        assert self._target is not None
        self._num_asked += 1
        if counts.cloud_calls > self._num_calls:
            self._num_calls = counts.cloud_calls
            self._asked[request.number] = len(request.draft)
        await put(self._requests, Ask(self._turn, self._target, request))

    async def reply(self, spec: Speculator, until: float) -> None:
        """Wait for a reply, until `until` (the state machine's deadline), or cancelled."""
        with anyio.move_on_after(max(0.0, until - self._clock())) as self._waiting:
            self._take(spec, await self._replies.receive())

    def cancel(self) -> None:
        """Stop waiting for a reply."""
        if self._waiting is not None:
            self._waiting.cancel()

    def take_replies(self, spec: Speculator) -> None:
        """Apply the replies that came while the edge drafted ahead."""
        with suppress(anyio.WouldBlock):
            while True:
                self._take(spec, self._replies.receive_nowait())

    def see_failures(self, spec: Speculator) -> None:
        """Tell the target that it was too slow, or away."""
        if spec.num_failures > self._num_failures and self._target is not None:
            self._num_failures = spec.num_failures
            self._target.failed()

    async def settle(self) -> None:
        """Wait until the target has let go of the turn: it has, where all was replied to."""
        if self._num_asked == self._num_replied and (self._num_replied or not self._is_prepared):
            return
        await put(self._requests, Settle(self._turn))
        async for reply in self._replies:
            if reply == Reply(self._turn):
                return

    def count_sent(self, counts: Counts) -> None:
        """Requests that never left were neither uploaded nor a call."""
        if self._target is None:
            return
        counts.bytes_up, counts.bytes_down = self._target.traffic
        for number, n_drafted in self._asked.items():
            if not self._target.has_sent(number):
                counts.cloud_calls -= 1
                counts.n_uploaded -= n_drafted

    def _take(self, spec: Speculator, reply: Reply) -> None:
        assert reply.turn == self._turn, "an earlier turn was not settled"
        self._num_replied += 1
        match reply:
            case Reply(error=TargetLost() as error):
                self.lost = str(error)
                spec.failed()
            case Reply(error=Exception() as error):
                raise error
            case Reply(verdict=Refusal() as refusal):
                self._asked.pop(refusal.number, None)
                spec.refused(refusal)
            case Reply(verdict=Verdict() as verdict):
                self._asked.pop(verdict.number, None)
                spec.verdict(verdict, self._clock())

"""Third stage: a prefilled turn in, its text and its Description out.

It drives the state machine: the edge drafts, the target verifies, and committed ids become text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import zip_longest

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream

from streamer.core.attributes import SaidToken
from streamer.core.decoding.machine import Speculator
from streamer.core.decoding.plan import (
    Counts,
    Done,
    DraftMore,
    Emit,
    Refusal,
    Verdict,
    Verify,
    VerifyRequest,
    Wait,
)
from streamer.core.description import Description, TextDelta
from streamer.core.measures.speech_measures import Voice
from streamer.core.text.vocabulary import Emitter
from streamer.stages.events import TurnFailed
from streamer.stages.hear import OpenTurns
from streamer.stages.ports import (
    Answer,
    Cloud,
    Mark,
    Outlet,
    Parts,
    Ready,
    Steps,
    TargetLost,
    quietly,
    reason_of,
)

CREDITS = 4  # blocks of a turn whose verdict may be on its way
DRAFT_AHEAD = 48  # tokens that the edge drafts while it awaits a verdict


class AnswerStage:
    """`run` is the stage; `cancel` ends the answer in hand, whatever it waits for."""

    def __init__(
        self,
        ready: MemoryObjectReceiveStream[Ready | Answer | Mark | TurnFailed],
        outlet: Outlet,
        parts: Parts,
        turns: OpenTurns,
        clock: Callable[[], float],
        voice: Voice,
        baseline_hz: Callable[[], float | None],
    ) -> None:
        """baseline_hz: the usual pitch that the session's coach knows."""
        self._voice = voice
        self._baseline_hz = baseline_hz
        self._ready = ready
        self._outlet = outlet
        self._parts = parts
        self._turns = turns
        self._clock = clock
        self._cancelled = -1  # this turn and all before it
        self._answering: int | None = None
        self._requests: TurnRequests | None = None  # those of the turn that is answered

    async def run(self, answers_itself: bool) -> None:
        """Answer turn after turn, at once or when an Answer comes. Ends when `ready` does."""
        held: Ready | None = None
        async with self._ready:
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
                    case Ready() | TurnFailed():
                        if held is not None:  # never asked for, or a later turn failed
                            self._turns.close(held.turn)
                        held = item if isinstance(item, Ready) else None
                        if isinstance(item, TurnFailed):
                            await self._outlet.send(item)

    def cancel(self, last: int) -> None:
        """The answers to turn `last` and all before it end with the committed ids, begun or not."""
        self._cancelled = max(self._cancelled, last)
        if self._is_cancelled and self._requests is not None:
            self._requests.cancel()

    async def _answer(self, ready: Ready) -> None:
        self._answering = ready.turn.number
        end: Description | TurnFailed
        async with anyio.create_task_group() as group:
            self._requests = TurnRequests(ready, group, self._clock)
            try:
                end = await self._drive(ready, self._requests)
            except Exception as error:  # this turn's alone
                end = TurnFailed(ready.turn.number, reason_of(error))
            self._answering = None
            if not self._requests.num_open:
                self._turns.close(ready.turn)
            await self._outlet.send(end)  # before waiting for a target that was too slow already
            group.cancel_scope.cancel()
        self._turns.close(ready.turn)  # the target has let go of the turn

    @property
    def _is_cancelled(self) -> bool:
        return self._answering is not None and self._answering <= self._cancelled

    async def _drive(self, ready: Ready, requests: TurnRequests) -> Description | TurnFailed:
        parts = self._parts
        text = AnswerText(parts, ready, self._clock)
        if not ready.closed.has_speech:
            return await self._described(text.finish("no_speech", Counts(), None))
        if parts.cloud is not None and self._is_sure_to_ask(parts.cloud):
            requests.prepare()
        spec = parts.speculator(ready.turn.edge)
        prefilled_at: float | None = None  # when the first id was there
        while True:
            if self._is_cancelled:
                spec.cancel()
            requests.take_replies(spec)
            action = spec.next(self._clock(), self._may_ask(ready))
            requests.see_failures(spec)
            match action:
                case DraftMore(n):
                    assert parts.edge is not None
                    began = self._clock()
                    # the first step feeds the prompt's end, too: its ids go out at once
                    steps = self._draft(ready, 1 if prefilled_at is None else n, n)
                    ids, signals, took_s = await parts.edge.batcher.submit(steps)
                    prefilled_at = prefilled_at or self._clock()
                    spec.drafted(ids, signals, began + took_s)
                case Verify(request):
                    requests.ask(request, spec.counts)
                case Wait(until):
                    await requests.reply(until)
                    prefilled_at = prefilled_at or self._clock()
                case Emit():
                    await self._outlet.send(text.push(action))
                case Done("error"):
                    why = self._why_lost(spec, requests)
                    return TurnFailed(ready.turn.number, why, is_target_lost=True)
                case Done(reason):
                    requests.count_sent(spec.counts)
                    return await self._described(text.finish(reason, spec.counts, prefilled_at))

    def _draft(self, ready: Ready, n: int, most: int) -> Steps:
        """`n` to `most` ids, which then stand at the sequence's end, their signals, and how long
        they took in seconds, without the way to the thread and back: a busy event loop is no reason
        to draft fewer at once. On the edge's thread."""
        began = self._clock()
        turn = ready.turn
        if turn.drafter is None:
            parts = self._parts
            rules, sampling = parts.plan.rules, parts.sampling
            turn.drafter = parts.drafts(turn.edge, rules, sampling, ready.weights)
        ids, signals = yield from turn.drafter.draft(n, most)
        return ids, signals, self._clock() - began

    async def _described(self, describe: Callable[[], Description]) -> Description:
        """On a thread: it may have to find out where speech ended."""
        run, limiter = anyio.to_thread.run_sync, self._parts.threads.limiter
        found = await run(describe, limiter=limiter)
        self._voice.add(found.measures)
        return replace(found, voice_pitch=self._voice.of(found.measures, self._baseline_hz()))

    def _is_sure_to_ask(self, cloud: Cloud) -> bool:
        """Whether the cloud hears the end with the edge: it will be asked, or is idle anyway."""
        will_be_asked = cloud.is_remote or self._parts.mode in ("exact", "cloud")
        return will_be_asked or not (cloud.hears_late or cloud.is_busy)

    def _may_ask(self, ready: Ready) -> bool:
        """Whether it is worth asking about the turn now."""
        cloud = self._parts.cloud
        target = ready.turn.cloud
        return cloud is not None and cloud.is_up and target is not None and target.is_up

    def _why_lost(self, spec: Speculator, requests: TurnRequests) -> str:
        """Mode exact or cloud, and no verdict: one line, cause and way out."""
        cloud = self._parts.cloud
        assert cloud is not None
        limit_s = spec.plan.verify_budget_s
        why = requests.lost or f"no verdict of {cloud.name} within {limit_s:g} s ({cloud.trouble})"
        stands = "the committed text stands; " if spec.sequence.n_committed else ""
        return f"{why}; {stands}take --mode gated to go on without it"


class TurnRequests:
    """One turn's requests to its target, a task of `group` each: a target elsewhere takes several
    at once.

    Cancel the group when the turn is over: the target has let go of the turn when the group has
    ended. num_open: calls of the target that have not returned. lost: why the target will not
    answer any more.
    """

    def __init__(self, ready: Ready, group: TaskGroup, clock: Callable[[], float]) -> None:
        self.lost: str | None = None
        self.num_open = 0
        self._ready = ready
        self._target = ready.turn.cloud
        self._group = group
        self._clock = clock
        self._is_prepared = False
        self._is_finished = anyio.Event()  # the target has heard the turn's end
        self._num_calls = self._num_failures = 0  # counts of the state machine, as last seen
        self._asked: dict[int, int] = {}  # requests without a reply -> ids of their draft
        self._replies: deque[Verdict | Refusal | Exception] = deque()
        self._came = anyio.Event()  # a reply
        self._waiting: anyio.CancelScope | None = None

    def prepare(self) -> None:
        """Let the target hear the turn's end, once."""
        if not self._is_prepared:
            self._is_prepared = True
            self.num_open += 1
            self._group.start_soon(quietly, self._finish)

    def ask(self, request: VerifyRequest, counts: Counts) -> None:
        """Send one block. counts: with this request, unless it was refused and is sent again."""
        self.prepare()
        if counts.cloud_calls > self._num_calls:
            self._num_calls = counts.cloud_calls
            self._asked[request.number] = len(request.draft)
        self.num_open += 1
        self._group.start_soon(quietly, self._ask, request)

    async def reply(self, until: float) -> None:
        """Wait for a reply, until `until` (the state machine's deadline), or cancelled."""
        with anyio.move_on_after(max(0.0, until - self._clock())) as self._waiting:
            self._came = anyio.Event()
            await self._came.wait()

    def cancel(self) -> None:
        """Stop waiting for a reply."""
        if self._waiting is not None:
            self._waiting.cancel()

    def take_replies(self, spec: Speculator) -> None:
        """Apply the replies that have come. Raises the target's errors."""
        while self._replies:
            match self._replies.popleft():
                case TargetLost() as error:
                    self.lost = str(error)
                    spec.failed()
                case Exception() as error:
                    raise error
                case Verdict() | Refusal() as reply:
                    self._asked.pop(reply.number, None)
                    spec.replied(reply)

    def see_failures(self, spec: Speculator) -> None:
        """Tell the target that it was too slow, or away."""
        if spec.num_failures > self._num_failures and self._target is not None:
            self._num_failures = spec.num_failures
            self._target.failed()

    def count_sent(self, counts: Counts) -> None:
        """Requests that never left were neither uploaded nor a call."""
        if self._target is None:
            return
        counts.bytes_up, counts.bytes_down = self._target.traffic
        for number, n_drafted in self._asked.items():
            if not self._target.has_sent(number):
                counts.cloud_calls -= 1
                counts.n_uploaded -= n_drafted

    async def _finish(self) -> None:
        assert self._target is not None
        try:
            await self._target.finish(self._ready.closed, self._ready.weights)
        except Exception as error:
            self._take(error)
        else:
            self.num_open -= 1
            self._is_finished.set()

    async def _ask(self, request: VerifyRequest) -> None:
        assert self._target is not None
        await self._is_finished.wait()
        try:
            self._take(await self._target.verify(request))
        except Exception as error:
            self._take(error)

    def _take(self, reply: Verdict | Refusal | Exception) -> None:
        self.num_open -= 1
        self._replies.append(reply)
        self._came.set()


class AnswerText:
    """The text of one answer as it grows. Times are in ms since the turn's last sample was fed."""

    def __init__(self, parts: Parts, ready: Ready, clock: Callable[[], float]) -> None:
        self._parts = parts
        self._ready = ready
        self._clock = clock
        self._emitter = Emitter(parts.vocabulary)
        self._ids: tuple[int, ...] = ()
        self._pieces: tuple[SaidToken, ...] = ()
        self._ttft_ms: float | None = None

    def push(self, emit: Emit) -> TextDelta:
        pieces = tuple(
            SaidToken(self._emitter.push((token,)), log_prob)
            for token, log_prob in zip_longest(emit.ids, emit.log_probs)
        )
        text = "".join(piece.text for piece in pieces)
        at_ms = self._ms(self._clock())
        if self._ttft_ms is None and text:
            self._ttft_ms = at_ms
        self._ids += emit.ids
        self._pieces += pieces
        return TextDelta(text, emit.ids, emit.verified, at_ms, self._ready.turn.number)

    def finish(
        self, stop_reason: str, counts: Counts, prefilled_at: float | None
    ) -> Callable[[], Description]:
        """A function that makes the Description. prefilled_at: when the first id was there, in the
        stream's clock."""
        return partial(
            self._parts.describe,
            self._ready.closed,
            stop_reason,
            counts,
            self._pieces,
            self._ttft_ms,
            ids=self._ids,
            prefill_ms=None if prefilled_at is None else self._ms(prefilled_at),
            total_ms=self._ms(self._clock()),
        )

    def _ms(self, at: float) -> float:
        return 1000 * (at - self._ready.fed_at)

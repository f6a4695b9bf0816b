"""Third stage: a prefilled turn in, its text and its Description out.

It drives the state machine: the edge drafts, the target verifies, and committed ids become text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream

from streamer.core.attributes import SaidToken
from streamer.core.decoding.machine import Speculator
from streamer.core.decoding.plan import Done, DraftMore, Emit, Refusal, Verdict, VerifyRequest, Wait
from streamer.core.decoding.sequence import Sequence
from streamer.core.description import Description, TextDelta
from streamer.core.measures.speech_measures import Voice
from streamer.core.text.vocabulary import Emitter
from streamer.stages.events import TurnFailed
from streamer.stages.hear import OpenTurn, Prefilled
from streamer.stages.ports import (
    Command,
    Events,
    Hearing,
    Steps,
    TargetLost,
    quietly,
    reason_of,
    send,
)

CREDITS = 4  # blocks of a turn whose verdict may be on its way
DRAFT_AHEAD = 48  # tokens that the edge drafts while it awaits a verdict


@dataclass
class AnswerStage:
    """`run` is the stage; `cancel` ends the answer in hand, whatever it waits for."""

    ready: MemoryObjectReceiveStream[Prefilled]
    out: Events
    clock: Callable[[], float]
    voice: Voice
    hearing: Hearing
    _cancelled: int = -1  # this turn and all before it
    _in_hand: TurnAnswer | None = None

    async def run(self, answers_itself: bool) -> None:
        """Answer turn after turn, at once or when it is asked for. Ends when `ready` does."""
        held: OpenTurn | None = None
        async with self.ready:
            async for item in self.ready:
                match item:
                    case Command("settle"):
                        item.is_done.set()
                    case Command():  # to answer
                        if held is not None:
                            await self._answer(held)
                        held = None
                    case OpenTurn(failed=None) if answers_itself or item.closed.goes_on:
                        # a part holds a slot; its end may never be asked for
                        await self._answer(item)
                    case OpenTurn():
                        if held is not None:  # never asked for, or a later turn failed
                            held.close()
                        held = item if item.failed is None else None
                        if item.failed is not None:
                            await send(self.out, TurnFailed(item.number, item.failed))

    def cancel(self, last: int) -> None:
        """The answers to turn `last` and all before it end with the committed ids, begun or not."""
        self._cancelled = max(self._cancelled, last)
        if self._in_hand is not None and self._in_hand.turn.number <= last:
            self._in_hand.cancel()

    async def _answer(self, turn: OpenTurn) -> None:
        async with anyio.create_task_group() as group:
            answer = self._in_hand = TurnAnswer(turn, group, self.clock)
            self.cancel(self._cancelled)
            end: Description | TurnFailed
            try:
                found: Description = await turn.parts.on_thread(await answer.run(self.out))
                # the pitch beside the speaker's usual one, which the coach learns, or is given
                self.voice.add(found.measures)
                coach = self.hearing.coach
                usual = coach.baseline if coach else None
                usual_hz = None if usual is None else float(usual.pitch_median_hz)
                end = replace(found, voice_pitch=self.voice.of(found.measures, usual_hz))
            except TargetLost as lost:
                end = TurnFailed(turn.number, str(lost), is_target_lost=True)
            except Exception as error:  # this turn's alone
                end = TurnFailed(turn.number, reason_of(error))
            if not answer.num_open:
                turn.close()
            # before waiting for a target that was too slow already
            await send(self.out, end)
            group.cancel_scope.cancel()
        self._in_hand = None
        turn.close()  # the target has let go of the turn


class TurnAnswer:
    """One turn's answer: it drives the state machine, asks the target and grows the text.

    Each call of the target is a task of `group`: a target elsewhere takes several requests at once.
    Cancel the group when the answer is over: the target has let go of the turn when the group has
    ended. num_open: calls of the target that have not returned. Times of the text are in ms since
    the turn's last sample was fed.
    """

    def __init__(self, turn: OpenTurn, group: TaskGroup, clock: Callable[[], float]) -> None:
        self.turn = turn
        self.num_open = 0
        self._parts = parts = turn.parts
        self._group = group
        self._clock = clock
        if turn.edge is not None:
            sequence = turn.edge.sequence
        else:  # ids alone: nothing is drafted on it
            sequence = Sequence(parts.suffix)
            sequence.start_answer()
        self._spec = Speculator(parts.plan, parts.vocabulary, sequence, parts.pace)
        self._is_cancelled = False
        self._is_prepared = False  # the target hears the turn's end
        self._replies: deque[Verdict | Refusal | Exception] = deque()
        self._came = anyio.Event()  # a reply, or the end of the wait for one
        self._lost = ""  # why the target will not answer any more
        self._emitter = Emitter(parts.vocabulary)
        self._pieces: tuple[SaidToken, ...] = ()
        self._prefilled_ms: float | None = None  # when the first id was there
        self._ttft_ms: float | None = None

    @property
    def _now_ms(self) -> float:
        return 1000 * (self._clock() - self.turn.fed_at)

    def cancel(self) -> None:
        """End with the committed ids."""
        self._is_cancelled = True
        self._came.set()

    async def run(self, out: Events) -> Callable[[], Description]:
        """Send deltas to the end. Returns a function that makes the Description. Raises TargetLost,
        and the models' errors."""
        has_speech = self.turn.closed.has_speech
        reason = await self._decode(out) if has_speech else "no_speech"
        return partial(
            self._parts.describe,
            self.turn.closed,
            reason,
            self._spec.counts,
            self._pieces,
            self._ttft_ms,
            ids=tuple(self._spec.sequence.answer) if has_speech else (),
            prefill_ms=self._prefilled_ms,
            total_ms=self._now_ms,
        )

    async def _decode(self, out: Events) -> str:
        """The answer; why it ended."""
        spec, cloud, target = self._spec, self._parts.cloud, self.turn.cloud
        if cloud is not None and cloud.hears_ends:
            self._prepare()
        num_failures = 0
        while True:
            if self._is_cancelled:
                spec.cancel()
            self._take_replies()
            is_up = cloud is not None and cloud.is_up and target is not None and target.is_up
            action = spec.next(self._clock(), is_up)
            if spec.num_failures > num_failures and target is not None:
                num_failures = spec.num_failures
                target.failed()
            match action:
                case DraftMore(n):
                    await self._draft_more(n)
                case VerifyRequest():
                    self._prepare()
                    assert target is not None
                    self._call(target.verify, action)
                case Wait(until):
                    with anyio.move_on_after(max(0.0, until - self._clock())):
                        await self._came.wait()
                    self._prefilled_ms = self._prefilled_ms or self._now_ms
                case Emit():
                    await send(out, self._delta(action))
                case Done(reason):
                    if reason == "error":
                        raise TargetLost(self._why_lost())
                    if target is not None:
                        spec.counts.bytes_up, spec.counts.bytes_down = target.traffic
                    return reason

    async def _draft_more(self, n: int) -> None:
        """Up to `n` ids, on the edge's thread. Their time leaves out the way to the thread and
        back: a busy event loop is no reason to draft fewer at once."""
        turn, parts, clock = self.turn, self._parts, self._clock
        assert parts.edge is not None
        # the first step feeds the prompt's end, too: its ids go out at once
        least = 1 if self._prefilled_ms is None else n

        def steps() -> Steps:
            began = clock()
            if turn.drafter is None:
                rules, sampling = parts.plan.rules, parts.sampling
                turn.drafter = parts.drafts(turn.edge, rules, sampling, turn.weights)
            ids, signals = yield from turn.drafter.draft(least, n)
            return ids, signals, clock() - began

        began = clock()
        ids, signals, took_s = await parts.edge.batcher.submit(steps())
        self._prefilled_ms = self._prefilled_ms or self._now_ms
        self._spec.drafted(ids, signals, began + took_s)

    def _prepare(self) -> None:
        """Let the target hear the turn's end, once."""
        assert self.turn.cloud is not None
        if not self._is_prepared:
            self._is_prepared = True
            self._call(self.turn.cloud.finish, self.turn.closed, self.turn.weights)

    def _call(self, job: Callable[..., Coroutine[Any, Any, Any]], *given: Any) -> None:
        """Call the target in a task; its reply or error comes to `_take_replies`."""

        async def call() -> None:
            try:
                reply = await job(*given)
            except Exception as error:
                reply = error
            self.num_open -= 1
            if reply is not None:
                self._replies.append(reply)
                self._came.set()

        self.num_open += 1
        self._group.start_soon(quietly, call)

    def _take_replies(self) -> None:
        """Apply the replies that have come. Raises the target's errors."""
        self._came = anyio.Event()
        while self._replies:
            match self._replies.popleft():
                case TargetLost() as error:
                    self._lost = str(error)
                    self._spec.failed()
                case Exception() as error:
                    raise error
                case reply:
                    self._spec.replied(reply)

    def _why_lost(self) -> str:
        """Mode exact or cloud, and no verdict: one line, cause and way out."""
        cloud = self._parts.cloud
        assert cloud is not None
        limit_s = self._spec.plan.verify_budget_s
        why = self._lost or f"no verdict of {cloud.name} within {limit_s:g} s ({cloud.trouble})"
        stands = "the committed text stands; " if self._spec.sequence.n_committed else ""
        return f"{why}; {stands}take --mode gated to go on without it"

    def _delta(self, emit: Emit) -> TextDelta:
        pieces = tuple(
            SaidToken(self._emitter.push((token,)), log_prob)
            for token, log_prob in zip_longest(emit.ids, emit.log_probs)
        )
        text = "".join(piece.text for piece in pieces)
        at_ms = self._now_ms
        if self._ttft_ms is None and text:
            self._ttft_ms = at_ms
        self._pieces += pieces
        return TextDelta(text, emit.ids, emit.verified, at_ms, self.turn.number)

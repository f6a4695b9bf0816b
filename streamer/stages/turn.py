"""One turn: prefilled on every model while it is spoken, then answered.

The answer drives the state machine: the edge drafts, the target verifies, and committed ids become
text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Any

import anyio
from anyio import create_memory_object_stream as queue
from anyio.abc import TaskGroup

from streamer.core.attributes import SaidToken
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn import Closed, Heard
from streamer.core.decoding.machine import Speculator
from streamer.core.decoding.plan import Done, DraftMore, Emit, Refusal, Verdict, VerifyRequest, Wait
from streamer.core.decoding.sequence import Sequence
from streamer.core.description import Description, TextDelta
from streamer.core.measures.speech_measures import Voice
from streamer.core.rules.settings import FLAT
from streamer.core.text.vocabulary import Emitter
from streamer.stages.events import (
    Events,
    LiveUpdate,
    TargetLost,
    TurnFailed,
    quietly,
    reason_of,
    send,
)
from streamer.stages.parts import Drafter, Hearer, Parts, Steps, Target

MAX_ITEMS = 8  # heard and not yet prefilled on the edge
MAX_TURNS = 3  # of a stream: one is answered, one waits for that, one is spoken
SLOT_WAIT_S = 120.0  # twice the longest turn


@dataclass(eq=False)
class Shared:
    """The turns of one stream share it. turns: those that are not over, in order. coach: the
    session's, which learns the speaker's usual pitch."""

    parts: Parts
    out: Events
    clock: Callable[[], float]
    voice: Voice
    coach: Any
    turns: list[Turn] = field(default_factory=list)

    def in_voice(self, found: Description) -> Description:
        """The same with its pitch beside the speaker's usual one."""
        self.voice.add(found.measures)
        usual = self.coach.baseline if self.coach else None
        usual_hz = None if usual is None else float(usual.pitch_median_hz)
        return replace(found, voice_pitch=self.voice.of(found.measures, usual_hz))


class Turn:
    """`run` it in a task, put its items into `items` and close that, set `asked` or `drop` it.

    It holds KV slots while it runs: none is leaked, wherever it fails or is cancelled. An Event
    among the items is set when all before it is prefilled, and the turns before are over. closed,
    fed_at: once its audio is over; its last sample was fed at `fed_at`. weights: of the levels in
    its sentence.
    """

    def __init__(self, number: int, shared: Shared) -> None:
        self.number = number
        self.items, self._heard = queue[Heard | Closed | anyio.Event](MAX_ITEMS)
        self.closed: Closed | None = None
        self.fed_at = 0.0
        self.edge: Hearer = None  # in mode cloud
        self.cloud: Target = None  # in mode edge
        self.weights = FLAT
        self.asked = anyio.Event()
        self.came = anyio.Event()  # something that the answer may wait for
        self.is_cancelled = False
        self.is_over = anyio.Event()
        self._shared = shared
        self._parts = shared.parts
        shared.turns.append(self)
        self._has_slots = self._is_dropped = False
        self._update: anyio.CancelScope | None = None  # of the one that is written
        self._on_edge = anyio.Lock(fast_acquire=True)  # the turn's own steps, or an update

    def drop(self) -> None:
        """Give it up, unless it was asked for."""
        if not self.asked.is_set():
            self._is_dropped = True
            self.items.close()
            self.asked.set()

    def cancel(self) -> None:
        """End its answer with the committed ids, begun or not."""
        self.is_cancelled = True
        self.came.set()

    async def run(self) -> None:
        """From its first sample to its Description. Raises SlowReader."""
        try:
            failure = await self._prefilled()
            if failure is not None:
                await self._let_go()
                await self._take_items()
            if self.closed is not None:  # else it was cleared, and nothing is left to tell
                await self._be_first()
            if failure is None:
                await self.asked.wait()
                if not self._is_dropped:
                    await self._answer()
            elif self.closed is not None:
                await send(self._shared.out, TurnFailed(self.number, failure))
        finally:
            await self._let_go()
            self.end()

    def end(self) -> None:
        """It is over, whether it has run or not."""
        self._give_back()
        self.items.close()
        self._heard.close()
        if self in self._shared.turns:
            self._shared.turns.remove(self)
        self.is_over.set()

    async def _be_first(self) -> None:
        """Wait until the turns before are over."""
        while (first := self._shared.turns[0]) is not self:
            await first.is_over.wait()

    async def _let_go(self) -> None:
        """Give back the slots, once the cloud hears no more of this turn."""
        if self.cloud is not None:
            await self.cloud.stop()
        self._give_back()

    def _give_back(self) -> None:
        """The slots; a second call does nothing."""
        if self._has_slots:
            self._has_slots = False
            for hearer in (self.edge, self.cloud):
                if hearer is not None:
                    hearer.close()
            self.edge = self.cloud = None
            self._parts.slots.release()

    # Prefill.

    async def _prefilled(self) -> str | None:
        """Take slots, and the items in order, to the turn's end; why that failed, if it did."""
        # where this stream has slots, the wait is for them
        is_own = any(turn._has_slots for turn in self._shared.turns)
        with anyio.move_on_after(None if is_own else SLOT_WAIT_S):
            await self._parts.slots.acquire()
            self._has_slots = True
        if not self._has_slots:
            told = f"other streams have held every KV slot for {SLOT_WAIT_S:g} s"
            return f"{told}; commit or clear their turns, or give more slots"
        try:
            if self._parts.edge is not None:
                self.edge = self._parts.edge.listen(self._parts.plan.rules.language)
            self.cloud = self._parts.target()
            async with anyio.create_task_group() as group:
                await self._take_items(group)
                group.cancel_scope.cancel()  # a live update
            if self.closed is not None:
                await self._finish(self.closed)
        except Exception as error:  # this turn's alone
            return reason_of(error)
        return None

    async def _take_items(self, group: TaskGroup | None = None) -> None:
        """To the turn's end. group: for live updates; None: the turn has failed."""
        async for item in self._heard:
            match item:
                case Heard() if group is not None:
                    await self._hear(item, group)
                case Closed():
                    self.closed = item
                case anyio.Event():
                    try:
                        if self.cloud is not None:
                            await self.cloud.prefilled()
                        await self._be_first()
                    finally:
                        item.set()

    async def _hear(self, heard: Heard, group: TaskGroup) -> None:
        """Prefill complete windows on the edge, begin to on the cloud; begin a live update where
        one is due. An update gives way to the edge's own steps."""
        steps = None if self.edge is None else self.edge.hear(heard)
        if self.cloud is not None:
            await self.cloud.hear(heard)  # in the background
        if steps is not None:
            if self._update is not None:  # the next one need not wait for its thread
                self._update.cancel()
                self._update = None
            async with self._on_edge:
                await self._parts.edge.submit(steps, is_urgent=False)
        if heard.provisional is not None and self.edge is not None and self._update is None:
            # Set before the task runs: a second update must not begin, in any order of tasks.
            self._update = anyio.CancelScope()
            group.start_soon(quietly, self._describe_so_far, heard, self._update)

    async def _finish(self, closed: Closed) -> None:
        """Encode the last window on the edge, while the last samples are measured. The first
        drafting step feeds it."""
        parts = self._parts

        async def measure() -> None:
            self.weights = await parts.on_thread(parts.weights, closed)

        async with anyio.create_task_group() as group:
            if closed.measures is not None:
                group.start_soon(quietly, measure)
            if self.edge is not None and closed.has_speech:
                await parts.edge.submit(self.edge.finish(closed.rest, closed.maximum))

    async def _describe_so_far(self, heard: Heard, scope: anyio.CancelScope) -> None:
        """A live update; cancelled as soon as the turn itself needs the model."""
        parts = self._parts
        with scope:
            weights = await parts.on_thread(parts.weights, heard)
            rules, sampling = parts.plan.rules, parts.sampling
            steps = parts.updates(self.edge, heard.provisional, rules, sampling, weights)
            async with self._on_edge:
                ids = tuple(await parts.edge.submit(steps, is_urgent=False))
            text, heard_s = parts.vocabulary.text_of(ids), heard.num_taken / SAMPLE_RATE_HZ
            await send(self._shared.out, LiveUpdate(self.number, text, ids, heard_s))
        if self._update is scope:
            self._update = None

    async def _answer(self) -> None:
        async with anyio.create_task_group() as group:
            answer = Answer(self, group, self._shared)
            end: Description | TurnFailed
            try:
                found: Description = await self._parts.on_thread(await answer.run())
                end = self._shared.in_voice(found)
            except TargetLost as lost:
                end = TurnFailed(self.number, str(lost), is_target_lost=True)
            except Exception as error:  # this turn's alone
                end = TurnFailed(self.number, reason_of(error))
            if not answer.num_open and (self.cloud is None or not self.cloud.is_hearing):
                self._give_back()
            # before waiting for a target that was too slow already
            await send(self._shared.out, end)
            group.cancel_scope.cancel()


class Answer:
    """A turn's answer: it drives the state machine, asks the target and grows the text.

    Each call of the target is a task of `group`: a target elsewhere takes several requests at once.
    Cancel the group when the answer is over: the target has let go of the turn when the group has
    ended. num_open: calls of the target that have not returned. Times of the text are in ms since
    the turn's last sample was fed.
    """

    def __init__(self, turn: Turn, group: TaskGroup, shared: Shared) -> None:
        self.num_open = 0
        self._turn = turn
        self._group = group
        self._out = shared.out
        self._clock = shared.clock
        self._parts = parts = shared.parts
        if turn.edge is not None:
            sequence = turn.edge.sequence
        else:  # ids alone: nothing is drafted on it
            sequence = Sequence(parts.suffix)
            sequence.start_answer()
        self._spec = Speculator(parts.plan, parts.vocabulary, sequence, parts.pace)
        self._drafter: Drafter | None = None
        self._replies: deque[Verdict | Refusal | Exception] = deque()
        self._lost = ""  # why the target will not answer any more
        self._emitter = Emitter(parts.vocabulary)
        self._pieces: tuple[SaidToken, ...] = ()
        self._prefilled_ms: float | None = None  # when the first id was there
        self._ttft_ms: float | None = None

    @property
    def _now_ms(self) -> float:
        return 1000 * (self._clock() - self._turn.fed_at)

    async def run(self) -> Callable[[], Description]:
        """Send deltas to the end. Returns a function that makes the Description. Raises TargetLost,
        and the models' errors."""
        closed = self._turn.closed
        assert closed is not None
        reason = await self._decode(closed) if closed.has_speech else "no_speech"
        return partial(
            self._parts.describe,
            closed,
            reason,
            self._spec.counts,
            self._pieces,
            self._ttft_ms,
            ids=tuple(self._spec.sequence.answer) if closed.has_speech else (),
            prefill_ms=self._prefilled_ms,
            total_ms=self._now_ms,
        )

    async def _decode(self, closed: Closed) -> str:
        """The answer; why it ended."""
        spec, cloud, target = self._spec, self._parts.cloud, self._turn.cloud
        if target is not None:
            await target.finish(closed, self._turn.weights)
        num_failures = 0
        while True:
            if self._turn.is_cancelled:
                spec.cancel()
            self._take_replies()
            is_up = cloud is not None and cloud.is_up and target.is_up
            action = spec.next(self._clock(), is_up)
            if spec.num_failures > num_failures:
                num_failures = spec.num_failures
                target.failed()
            match action:
                case DraftMore(n):
                    await self._draft_more(n)
                case VerifyRequest():
                    self.num_open += 1
                    self._group.start_soon(quietly, self._verify, target, action)
                case Wait(until):
                    with anyio.move_on_after(max(0.0, until - self._clock())):
                        await self._turn.came.wait()
                    self._prefilled_ms = self._prefilled_ms or self._now_ms
                case Emit():
                    await send(self._out, self._delta(action))
                case Done(reason):
                    if reason == "error":
                        raise TargetLost(self._why_lost())
                    if target is not None:
                        spec.counts.bytes_up, spec.counts.bytes_down = target.traffic
                    return reason

    async def _draft_more(self, n: int) -> None:
        """Up to `n` ids, on the edge's thread. Their time leaves out the way to the thread and
        back: a busy event loop is no reason to draft fewer at once."""
        turn, parts, clock = self._turn, self._parts, self._clock
        # the first step feeds the prompt's end, too: its ids go out at once
        least = 1 if self._prefilled_ms is None else n

        def steps() -> Steps:
            began = clock()
            if self._drafter is None:
                rules, sampling = parts.plan.rules, parts.sampling
                self._drafter = parts.drafts(turn.edge, rules, sampling, turn.weights)
            _, signals = yield from self._drafter.draft(least, n)
            return signals, clock() - began

        began = clock()
        signals, took_s = await parts.edge.submit(steps())
        self._prefilled_ms = self._prefilled_ms or self._now_ms
        self._spec.drafted(signals, began + took_s)

    async def _verify(self, target: Target, request: VerifyRequest) -> None:
        """The target's reply or error comes to `_take_replies`."""
        try:
            reply = await target.verify(request)
        except Exception as error:
            reply = error
        self.num_open -= 1
        self._replies.append(reply)
        self._turn.came.set()

    def _take_replies(self) -> None:
        """Apply the replies that have come. Raises the target's errors."""
        self._turn.came = anyio.Event()
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
        return TextDelta(text, emit.ids, emit.verified, at_ms, self._turn.number)

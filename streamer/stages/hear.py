"""First two stages, chunk and prefill: PCM and commands in, turns prefilled on every model out.

Items (core/audio/turn_items.py) go from `Chunk` to `Prefill`, which also writes live updates.
Hearing runs on worker threads. Measures and the coach hear the same samples on others, so that no
model and no hearing waits for them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn_items import Closed, Dropped, Heard, Item, TurnOpened
from streamer.core.rules.settings import FLAT, LevelWeights
from streamer.stages.events import Cleared, LiveUpdate, SpeechStarted, SpeechStopped, TurnCommitted
from streamer.stages.ports import (
    Command,
    Drafter,
    Events,
    Hearer,
    Hearing,
    Parts,
    Target,
    offer,
    quietly,
    reason_of,
    send,
)

MAX_JOINED_BYTES = 19_200  # 200 ms at 48 kHz
SLOT_WAIT_S = 120.0  # twice the longest turn


@dataclass(eq=False, slots=True)
class OpenTurn:
    """One turn's hearers, with KV slots until it is closed: none is leaked, whichever stage fails
    or is cancelled.

    held: the stream's turns that have slots. failed: why it cannot go on. closed, fed_at: once its
    audio is over; its last sample was fed at `fed_at`. weights: of the levels in its sentence.
    drafter: once the answer has begun.
    """

    number: int
    parts: Parts
    held: set[OpenTurn]
    edge: Hearer | None = None
    cloud: Target | None = None
    failed: str | None = None
    closed: Closed = field(init=False)
    fed_at: float = 0.0
    weights: LevelWeights = field(default_factory=lambda: FLAT)
    drafter: Drafter | None = None

    async def open(self) -> None:
        """Take a slot on every model. Waits while other streams hold all of them, for SLOT_WAIT_S;
        after that the turn has `failed`, and no slot."""
        # where this stream has turns, the wait is for them
        with anyio.move_on_after(None if self.held else SLOT_WAIT_S) as scope:
            await self.parts.slots.acquire()
        if scope.cancelled_caught:
            told = f"other streams have held every KV slot for {SLOT_WAIT_S:g} s"
            self.failed = f"{told}; commit or clear their turns, or give more slots"
            return
        self.held.add(self)
        if self.parts.edge is not None:
            self.edge = self.parts.edge.listen(self.parts.plan.rules.language)
        self.cloud = self.parts.target()

    def close(self) -> None:
        """Give the slots back; a second call does nothing."""
        if self not in self.held:
            return
        self.held.remove(self)
        for hearer in (self.edge, self.cloud):
            if hearer is not None:
                hearer.close()
        self.parts.slots.release()


# with the time when the last piece was fed
Timed = tuple[Item | Command, float]
Prefilled = OpenTurn | Command


@dataclass
class Chunk:
    """`run` is the stage. shows_measures: send Measures events, five a second. last_closed: the
    last turn whose audio is over."""

    commands: MemoryObjectReceiveStream[Command]
    items: MemoryObjectSendStream[Timed]
    out: Events
    hearing: Hearing
    parts: Parts
    shows_measures: bool
    last_closed: int = -1
    _fed_at: float = 0.0  # when the last piece was fed
    _is_heard: bool = False  # samples that no commit has ended
    _last_committed: int = -1
    _woken: anyio.Event = field(default_factory=anyio.Event)  # there is more to observe
    _is_over: bool = False

    async def run(self) -> None:
        """Ends when the commands do."""
        held: Command | None = None
        async with anyio.create_task_group() as group, self.commands, self.items:
            group.start_soon(quietly, self._observe)
            with suppress(anyio.EndOfStream):
                while True:
                    held = await self._take(held or await self.commands.receive())
            if self._is_heard:
                await self._hand_on(await self.parts.on_thread(self.hearing.commit))
            self._is_over = True
            self._woken.set()

    async def _take(self, command: Command) -> Command | None:
        """Returns a command that came after pieces, to be taken next."""
        hearing, on_thread = self.hearing, self.parts.on_thread
        match command.kind:
            case "hear":
                return await self._hear(command)
            case "commit":
                await self._commit(command)
            case "settle":
                await self._hand_on(await on_thread(_settle, hearing, command.num_left))
                await self.items.send((command, self._fed_at))
            case "answer":
                await self.items.send((command, self._fed_at))
            case "clear":
                await self._hand_on(await on_thread(hearing.clear))
                await send(self.out, Cleared(hearing.num_turns))
                self._last_committed = hearing.num_turns - 1
        return None

    async def _hear(self, first: Command) -> Command | None:
        """Hear `first` and the pieces after it. Pieces wait for a thread in order, and all that
        have come meanwhile are heard at once: on a busy machine a trip to a thread costs more than
        hearing a piece."""
        following: Command | None = None
        async with self.parts.pieces:
            pcm, self._fed_at = first.pcm, first.fed_at
            with suppress(anyio.WouldBlock, anyio.EndOfStream):
                while following is None and len(pcm) < MAX_JOINED_BYTES:
                    command = self.commands.receive_nowait()
                    if command.kind == "hear":
                        pcm, self._fed_at = pcm + command.pcm, command.fed_at
                    else:
                        following = command
            found = await self.parts.on_thread(self.hearing.push, pcm)
        self._is_heard = True
        await self._hand_on(found)
        return following

    async def _commit(self, commit: Command) -> None:
        """End the turn, without waiting for the threads that hear pieces."""
        hearing, pcm = self.hearing, commit.pcm
        if pcm:
            self._fed_at = commit.fed_at

        def end() -> tuple[list[Item], list[Item]]:  # one trip to the thread for both
            return hearing.push(pcm) if pcm else [], hearing.commit()

        pushed, found = await self.parts.on_thread(end)
        self._is_heard = False
        await self._hand_on([*pushed, *found])
        # If voice activity just ended the turn, this commit refers to it: do not commit twice.
        ends_one = any(isinstance(item, Closed) for item in found)
        if ends_one or hearing.num_turns - 1 > self._last_committed:
            commit.turn = self._last_committed = hearing.num_turns - 1
        commit.is_done.set()

    async def _hand_on(self, found: list[Item]) -> None:
        for item in found:
            match item:
                case TurnOpened(turn, at_ms) if at_ms is not None:
                    await send(self.out, SpeechStarted(turn, at_ms))
                case Closed(turn, stopped_ms=stopped_ms, last_speech_ms=last_ms):
                    self.last_closed = turn
                    if stopped_ms is not None and last_ms is not None:
                        await send(self.out, SpeechStopped(turn, stopped_ms, last_ms))
                    audio_s = item.num_samples / SAMPLE_RATE_HZ
                    await send(self.out, TurnCommitted(turn, audio_s))
            await self.items.send((item, self._fed_at))
        self._woken.set()

    async def _observe(self) -> None:
        """Measures and the coach hear what came since the last time, whenever they are woken."""
        hearing, coach = self.hearing, self.hearing.coach
        run, limiter = anyio.to_thread.run_sync, self.parts.measuring
        is_last = False
        while not is_last:
            await self._woken.wait()
            self._woken, is_last = anyio.Event(), self._is_over
            measurer = hearing.measurer
            if measurer is not None and not measurer.is_over:
                news = await run(measurer.work, self.shows_measures, limiter=limiter)
                if news is not None and news.heard_s > 0 and not measurer.is_over:
                    offer(self.out, news)
            for event in await run(coach.work, limiter=limiter) if coach is not None else ():
                if event.may_be_lost:  # a slow reader loses news, but no nudge
                    offer(self.out, event)
                else:
                    await send(self.out, event)


def _settle(hearing: Hearing, num_left: int) -> list[Item]:
    """All but the last samples are heard, and measured."""
    found = hearing.settle(num_left)
    if hearing.measurer is not None:
        hearing.measurer.work()
    return found


@dataclass
class Prefill:
    """`run` is the stage: it hands turns on in the order in which they were spoken."""

    items: MemoryObjectReceiveStream[Timed]
    ready: MemoryObjectSendStream[Prefilled]
    out: Events
    parts: Parts
    held: set[OpenTurn]
    _turn: OpenTurn | None = None  # in hand
    _update: tuple[anyio.CancelScope, anyio.Event] | None = None  # being written; over

    async def run(self) -> None:
        """Ends when the items do."""
        async with self.items, self.ready, anyio.create_task_group() as group:
            async for item, fed_at in self.items:
                match item:
                    case TurnOpened(number):
                        self._turn = OpenTurn(number, self.parts, self.held)
                        await self._turn.open()
                    case Heard() if self._turn is not None and self._turn.failed is None:
                        await self._hear(self._turn, item, group)
                    case Closed() | Dropped():
                        await self._stop_update()
                        turn, self._turn = self._turn, None
                        assert turn is not None
                        if isinstance(item, Dropped):
                            turn.close()
                            continue
                        if turn.failed is None:
                            turn.closed, turn.fed_at = item, fed_at
                            await self._finish(turn)
                        await self.ready.send(turn)
                    case Command(kind):
                        turn = self._turn if kind == "settle" else None
                        if turn is not None and turn.cloud is not None:
                            await turn.cloud.prefilled()
                        await self.ready.send(item)

    async def _hear(self, turn: OpenTurn, heard: Heard, group: TaskGroup) -> None:
        """Prefill complete windows on both models at once; begin a live update where one is due.
        An update gives way to the edge's own steps."""
        edge = self.parts.edge
        try:
            steps = None if turn.edge is None else turn.edge.hear(heard)
            async with anyio.create_task_group() as both:
                if turn.cloud is not None:
                    both.start_soon(quietly, turn.cloud.hear, heard)
                if steps is not None and edge is not None:
                    await self._stop_update()
                    await edge.batcher.submit(steps)
        except Exception as error:  # this turn's alone
            turn.failed = reason_of(error)
            turn.close()
            return
        if heard.provisional is not None and turn.edge is not None and self._update is None:
            # Set before the task runs: a second update must not begin, in any order of tasks.
            self._update = anyio.CancelScope(), anyio.Event()
            group.start_soon(quietly, self._describe_so_far, turn, heard, *self._update)

    async def _finish(self, turn: OpenTurn) -> None:
        """Encode the turn's last window on the edge, while its last samples are measured. The first
        drafting step feeds it."""
        parts, closed = self.parts, turn.closed

        async def measure() -> None:
            turn.weights = await parts.on_thread(parts.weights, closed)

        try:
            async with anyio.create_task_group() as group:
                if closed.measures is not None:
                    group.start_soon(quietly, measure)
                if parts.edge is not None and turn.edge is not None and closed.has_speech:
                    await parts.edge.batcher.submit(turn.edge.finish(closed.rest, closed.maximum))
        except Exception as error:  # this turn's alone
            turn.failed = reason_of(error)
            turn.close()

    async def _describe_so_far(
        self, turn: OpenTurn, heard: Heard, scope: anyio.CancelScope, is_over: anyio.Event
    ) -> None:
        """A live update; cancelled as soon as the turn itself needs the model."""
        parts = self.parts
        assert parts.edge is not None
        try:
            with scope:
                weights = await parts.on_thread(parts.weights, heard)
                rules, sampling = parts.plan.rules, parts.sampling
                steps = parts.updates(turn.edge, heard.provisional, rules, sampling, weights)
                ids = tuple(await parts.edge.batcher.submit(steps))
                text = parts.vocabulary.text_of(ids)
                heard_s = heard.num_taken / SAMPLE_RATE_HZ
                await send(self.out, LiveUpdate(turn.number, text, ids, heard_s))
        finally:
            self._update = None
            is_over.set()

    async def _stop_update(self) -> None:
        if self._update is not None:
            scope, is_over = self._update
            scope.cancel()
            await is_over.wait()

"""A live session: audio is cut into turns, and each turn (stages/turn.py) runs in its own task.

Closing flows downstream: after `end` the audio is heard, the turns end, then the events. Leaving
the context manager cancels what is left; every KV slot is given back, whatever happens.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import anyio.lowlevel
from anyio import create_memory_object_stream as queue
from anyio.abc import TaskGroup

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn import Closed, Dropped, Heard, Item, TurnOpened
from streamer.core.description import Description
from streamer.core.measures.speech_measures import Measures, Voice
from streamer.stages.events import (
    MAX_EVENTS,
    Cleared,
    CoachEvent,
    Event,
    NothingToCommit,
    SessionOptions,
    SpeechStarted,
    SpeechStopped,
    TurnCommitted,
    TurnFailed,
    cause_of,
    quietly,
    send,
)
from streamer.stages.parts import Parts
from streamer.stages.turn import MAX_TURNS, Shared, Turn

# Audio is heard in pieces, since a trip to a thread for every 20 ms of a microphone would cost more
# than hearing them. Voice activity, which ends turns, judges every 32 ms and must not wait. Nothing
# is urgent that is not shown: 200 streams take a twelfth less CPU time with half a second than with
# 200 ms (2026-11). A turn's end sends the rest.
PIECE_S = 0.5
SHOWN_S = 0.2  # measures, live updates, the coach
VOICE_PIECE_S = 0.032
JOINED_S = 1.0  # heard at once, or a little more, where it is late and nothing is shown live
MAX_QUEUED_S = 5.0  # audio that waits to be heard, after which `feed` waits
ENDED = "the session has ended; open another one"


@asynccontextmanager
async def open_stream(
    parts: Parts, options: SessionOptions, clock: Callable[[], float] = time.perf_counter
) -> AsyncIterator[LiveSession]:
    """A session that runs until it is ended or left. Raises ValueError for bad options."""
    session = LiveSession(parts, options, clock)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(quietly, session._run)
            yield session
            group.cancel_scope.cancel()
    except BaseExceptionGroup as group_of:
        raise cause_of(group_of) from None
    finally:
        session._ended = anyio.ClosedResourceError
        session._events.close()
        for turn in list(session._shared.turns):
            turn.end()


@dataclass(eq=False, slots=True)
class Request:
    """Call `kind` of the session's TurnCutter once it has heard `pcm`, the audio before it, fed at
    `fed_at`. turn: the one that a commit has ended, None where there was none."""

    kind: Literal["commit", "settle", "clear"]
    given: tuple[int, ...]
    pcm: bytes
    fed_at: float
    turn: int | None = None
    is_done: anyio.Event = field(default_factory=anyio.Event)


class LiveSession:
    """`feed`, `commit`, iterate. One task may feed while another iterates.

    Without turn detection an iteration ends with its turn's Description: commit, iterate; feed,
    commit, iterate. With turn detection it goes on until `end`. Left unread for 10 s, more than 256
    events end the session (SlowReader).

    num_bytes_fed: bytes of audio that were taken; they are never lost while the session lives.
    """

    def __init__(self, parts: Parts, options: SessionOptions, clock: Callable[[], float]) -> None:
        self.num_bytes_fed = 0
        self._parts = parts
        self._options = options
        self._clock = clock
        second = options.sample_bytes * options.sample_rate_hz
        shows_live = options.measures or options.live_update_s or options.coach
        piece_s, joined_s = (SHOWN_S, SHOWN_S) if shows_live else (PIECE_S, JOINED_S)
        piece_s = piece_s if options.turn_detection is None else VOICE_PIECE_S
        # each call of `feed` with a recording goes on at once
        self._piece_bytes = 1 if options.is_recording else int(second * piece_s)
        joined_s = MAX_QUEUED_S if options.is_recording else joined_s
        self._joined_bytes = int(second * joined_s)
        self._most_bytes = int(second * MAX_QUEUED_S)
        # Audio and requests that wait for `_run`, in order.
        self._requests: deque[Request] = deque()
        # after all requests, with the times of the clock when it was fed
        self._audio: deque[tuple[bytes, float]] = deque()
        self._num_held = 0  # bytes of it
        self._fed_at = 0.0  # the last sample that was taken of it
        self._came = anyio.Event()  # one of them
        self._queued = anyio.CancelScope()  # while a piece waits for a thread
        self._taken = anyio.Event()  # audio: there is room
        self._ended: type[Exception] | None = None  # raised where no more audio is taken
        out, self._events = queue[Event](MAX_EVENTS)
        self._is_over = False  # the iteration, which another one may follow
        self._hearing = hearing = parts.cut(options, parts.weighs)
        self._shared = Shared(parts, out, clock, Voice(options.pitch_reference), hearing.coach)
        self._turn: Turn | None = None  # the one that is spoken
        self._last: Turn | None = None  # whose audio is over
        self._uncommitted: int | None = None  # its number, until a commit has returned it

    async def feed(self, pcm: bytes) -> None:
        """Audio as the session's options say, any number of bytes; waits while 5 s are in hand.

        Raises TypeError for anything but bytes (of a numpy array give `array.tobytes()`), and
        anyio.ClosedResourceError after `end`.
        """
        if not isinstance(pcm, bytes | bytearray | memoryview):
            kind = f"feed takes bytes of PCM16, not {type(pcm).__name__}"
            raise TypeError(f"{kind}; of an int16 array give .tobytes()")
        await self._check_open()
        left = memoryview(bytes(pcm))
        while left:
            while (room := self._most_bytes - self._num_waiting) <= 0:
                if self._taken.is_set():  # else another task waits for it, too
                    self._taken = anyio.Event()
                await self._taken.wait()
                await self._check_open()
            taken = bytes(left[: min(room, self._joined_bytes)])
            left = left[len(taken) :]
            self._audio.append((taken, self._clock()))
            self._num_held += len(taken)
            self.num_bytes_fed += len(taken)
            if self._num_held >= self._piece_bytes:
                self._came.set()
                await anyio.lowlevel.checkpoint()

    async def commit(self) -> int:
        """End the turn; its number. Later audio is the next turn's.

        Raises NothingToCommit where nothing was fed since the last turn, and as `feed` after `end`.
        """
        turn = await self._asked("commit")
        if turn is None:
            raise NothingToCommit("there is no audio since the last turn; feed some before commit")
        return turn

    async def catch_up(self, num_left: int) -> None:
        """Wait until all of a recording but its last `num_left` samples (at 16 kHz) is prefilled on
        every model, and its earlier parts are answered."""
        await self._asked("settle", num_left)

    async def clear(self) -> None:
        """Forget the audio that is not committed yet; a Cleared event follows."""
        await self._asked("clear")

    async def answer(self) -> None:
        """Answer the last committed turn, in a session with `answers_itself=False`. A second call
        does nothing.

        Parts of a turn that is longer than max_turn_s are answered as they end, all but the last.
        """
        await self._check_open()
        if self._last is not None:
            self._last.asked.set()

    async def cancel(self) -> None:
        """Stop the answers to all turns that were committed, and asked for: committed text stays,
        each Description has stop_reason `cancelled`. Does nothing where there is none to stop."""
        for turn in self._shared.turns:
            if turn.asked.is_set():
                turn.cancel()

    async def end(self) -> None:
        """No more audio: all that was fed is answered, then the events end."""
        if self._ended is None:
            self._request("commit")
            self._ended = anyio.ClosedResourceError

    def events(self) -> AsyncIterator[Event]:
        """Every event in order, until the session ends."""
        # not a generator: a caller that leaves one early must close it
        return self._events

    def __aiter__(self) -> LiveSession:
        self._is_over = False
        return self

    async def __anext__(self) -> Event:
        if self._is_over:
            raise StopAsyncIteration
        event = await anext(self._events)
        ends_turn = isinstance(event, Description | TurnFailed)
        self._is_over = ends_turn and not (self._options.turn_detection or self._ended)
        return event

    @property
    def baseline(self) -> Any:
        """How the speaker usually speaks: a streamer.Baseline, given or learnt by the coach.

        None without a coach, and under 5 s of speech. `baseline.save("me.json")` keeps it.
        """
        return self._hearing.coach.baseline if self._hearing.coach else None

    @property
    def backlog(self) -> dict[str, int]:
        """`pieces` and `audio_ms` fed and unheard, `turns` in hand, `events` unread."""
        second = self._options.sample_bytes * self._options.sample_rate_hz
        return {
            "pieces": self._num_waiting // self._piece_bytes,
            "audio_ms": 1000 * self._num_waiting // second,
            "turns": len(self._shared.turns),
            "events": self._events.statistics().current_buffer_used,
        }

    # The audio and the requests that wait.

    @property
    def _num_waiting(self) -> int:
        return self._num_held + sum(len(request.pcm) for request in self._requests)

    def _take(self, most: int) -> bytes:
        """Audio of `most` bytes, or a little more; all if there is less."""
        taken = []
        while self._audio and most > 0:
            pcm, self._fed_at = self._audio.popleft()
            taken.append(pcm)
            most -= len(pcm)
            self._num_held -= len(pcm)
        self._taken.set()
        return b"".join(taken)

    async def _check_open(self) -> None:
        if self._ended is not None:
            # a caller that is cancelled, as the session is, hears of that alone
            await anyio.lowlevel.checkpoint_if_cancelled()
            raise self._ended(ENDED)

    def _request(self, kind: Literal["commit", "settle", "clear"], *given: int) -> Request:
        pcm = self._take(self._num_held)
        request = Request(kind, given, pcm, self._fed_at)
        self._requests.append(request)
        self._came.set()
        self._queued.cancel()
        return request

    async def _asked(self, kind: Literal["commit", "settle", "clear"], *given: int) -> int | None:
        """Make a request and wait for its effect; the turn that it ended. Raises
        ClosedResourceError after `end`, and where the session is left."""
        await self._check_open()
        request = self._request(kind, *given)
        await request.is_done.wait()
        if request in self._requests:
            await self._check_open()
        return request.turn

    # Hearing.

    async def _run(self) -> None:
        """Hear audio and requests in order, on worker threads, and run the turns; then the events
        end."""
        async with self._shared.out, anyio.create_task_group() as group:
            try:
                while self._requests or self._ended is None:
                    if self._requests:
                        await self._perform(self._requests[0], group)
                        self._requests.popleft()
                        self._taken.set()
                    elif self._num_held >= self._piece_bytes:
                        await self._hear_piece(group)
                    else:
                        self._came = anyio.Event()
                        await self._came.wait()
            finally:
                self._ended = self._ended or anyio.BrokenResourceError
                self._taken.set()
                for request in self._requests:
                    request.is_done.set()
            if self._last is not None:  # it can be asked for no more
                self._last.drop()

    async def _hear_piece(self, group: TaskGroup) -> None:
        """Pieces wait for a thread in order, and all that has come meanwhile is heard at once: on a
        busy machine a trip to a thread costs more than hearing a piece. A request ends the wait."""
        hearing, threads = self._hearing, self._parts.pieces
        with anyio.CancelScope() as self._queued:
            await threads.acquire()
        if self._queued.cancelled_caught:
            return
        try:
            pcm, fed_at = self._take(self._joined_bytes), self._fed_at
            found = await self._parts.on_thread(lambda: [*hearing.push(pcm), *hearing.news()])
        finally:
            threads.release()
        await self._hand_on(found, fed_at, group)

    async def _perform(self, request: Request, group: TaskGroup) -> None:
        """Do as asked, without waiting for the threads that hear pieces."""
        hearing = self._hearing

        def perform() -> list[Item]:  # one trip to the thread for both
            pushed = hearing.push(request.pcm) if request.pcm else []
            items = getattr(hearing, request.kind)(*request.given)
            if request.kind == "settle" and hearing.measurer is not None:
                hearing.measurer.work()
            return [*pushed, *items]

        await self._hand_on(await self._parts.on_thread(perform), request.fed_at, group)
        if hearing.coach is not None:  # no turn waits for it
            await self._hand_on(await self._parts.on_thread(hearing.news), request.fed_at, group)
        if request.kind in ("commit", "clear"):
            # of a commit; voice activity may just have ended the turn
            request.turn, self._uncommitted = self._uncommitted, None
        match request.kind:
            case "clear":
                await send(self._shared.out, Cleared(hearing.num_turns))
            case "settle" if self._turn is not None:
                await self._turn.items.send(request.is_done)
                await request.is_done.wait()
        request.is_done.set()

    async def _hand_on(self, found: list[Any], fed_at: float, group: TaskGroup) -> None:
        """found: items (core/audio/turn.py), Measures and the coach's events."""
        for item in found:
            turn = self._turn
            match item:
                case TurnOpened(number, at_ms):
                    if at_ms is not None:
                        await send(self._shared.out, SpeechStarted(number, at_ms))
                    while len(turns := self._shared.turns) >= MAX_TURNS:
                        await turns[0].is_over.wait()
                    self._turn = Turn(number, self._shared)
                    group.start_soon(quietly, self._turn.run)
                case Heard() if turn is not None:
                    await turn.items.send(item)
                case Closed() if turn is not None:
                    turn.fed_at = fed_at
                    await self._close(turn, item)
                case Dropped() if turn is not None:
                    turn.drop()
                    self._turn = None
                case Measures() | CoachEvent():
                    await send(self._shared.out, item)

    async def _close(self, turn: Turn, closed: Closed) -> None:
        """The turn's audio is over."""
        stopped_ms, last_ms = closed.stopped_ms, closed.last_speech_ms
        if stopped_ms is not None and last_ms is not None:
            await send(self._shared.out, SpeechStopped(turn.number, stopped_ms, last_ms))
        audio_s = closed.num_samples / SAMPLE_RATE_HZ
        await send(self._shared.out, TurnCommitted(turn.number, audio_s))
        if self._last is not None:  # it was never asked for
            self._last.drop()
        self._last, self._turn, self._uncommitted = turn, None, turn.number
        # a part holds a slot; its end may never be asked for
        if self._options.answers_itself or closed.goes_on:
            turn.asked.set()
        await turn.items.send(closed)
        turn.items.close()

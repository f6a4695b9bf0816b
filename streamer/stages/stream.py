"""A live session: chunk | prefill | answer, joined by bounded queues.

Closing flows downstream: `end` closes the commands, each stage ends when its input does. Leaving
the context manager cancels what is left; every KV slot is given back, whatever happens.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
from anyio import create_memory_object_stream as queue

from streamer.core.description import Description
from streamer.core.measures.speech_measures import Voice
from streamer.stages.answer import AnswerStage
from streamer.stages.events import Event, NothingToCommit, SessionOptions, TurnFailed
from streamer.stages.hear import Chunk, OpenTurn, Prefill, Prefilled, Timed
from streamer.stages.ports import MAX_EVENTS, Command, Events, Parts, cause_of, quietly

# A trip to a thread for every 20 ms of a microphone costs more than hearing them. Voice activity
# judges every 32 ms and must not wait; nothing else depends on it before the turn ends, and the
# last piece goes on at once.
PIECE_S = 0.1
VOICE_PIECE_S = 0.032
RECORDED_PIECE_S = 2.0  # at most; each call of `feed` goes on at once
MAX_QUEUED_S = 5.0  # audio in the queue, after which `feed` waits
ENDED = "the session has ended; open another one"
MAX_ITEMS = 8  # heard and not yet prefilled
Stage = Callable[[], Coroutine[Any, Any, None]]


@asynccontextmanager
async def open_stream(
    parts: Parts, options: SessionOptions, clock: Callable[[], float] = time.perf_counter
) -> AsyncIterator[LiveSession]:
    """A session that runs until it is ended or left. Raises ValueError for bad options."""
    session = LiveSession(parts, options, clock)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(quietly, _run, session._events_in, *session._stages)
            yield session
            group.cancel_scope.cancel()
    except BaseExceptionGroup as group_of:
        raise cause_of(group_of) from None
    finally:
        session._close()


async def _run(events: Events, *stages: Stage) -> None:
    """All stages; the events end when they have ended."""
    async with events, anyio.create_task_group() as group:
        for stage in stages:
            group.start_soon(quietly, stage)


class LiveSession:
    """`feed`, `commit`, iterate. One task may feed while another iterates.

    Without turn detection an iteration ends with its turn's Description: commit, iterate; feed,
    commit, iterate. With turn detection it goes on until `end`. Left unread for 10 s, more than 256
    events end the session (SlowReader).

    num_bytes_fed: bytes of audio that were taken; they are never lost while the session lives.
    """

    def __init__(self, parts: Parts, options: SessionOptions, clock: Callable[[], float]) -> None:
        self.num_bytes_fed = 0
        self._options = options
        self._clock = clock
        piece_s = PIECE_S if options.turn_detection is None else VOICE_PIECE_S
        if options.is_recording:
            piece_s = RECORDED_PIECE_S
        self._sample_bytes = options.sample_bytes
        self._piece_bytes = self._sample_bytes * int(options.sample_rate_hz * piece_s)
        self._held = bytearray()  # fed, not yet a piece
        self._held_at = 0.0
        self._is_ended = self._is_closed = False  # no more audio; its context is left
        self._is_over = False  # the iteration, which another one may follow
        self._awaited: set[anyio.Event] = set()
        self._last_asked = -1
        self._hearing = hearing = parts.cut(options, parts.weighs)
        self._turns: set[OpenTurn] = set()  # those that have slots
        self._commands, self._taken = queue[Command](int(MAX_QUEUED_S / piece_s))
        items, heard = queue[Timed](MAX_ITEMS)
        readies, ready = queue[Prefilled](1)
        self._events_in, self._events = queue[Event](MAX_EVENTS)
        out, voice = self._events_in, Voice(options.pitch_reference)
        shows = options.measures and not options.is_recording
        self._chunk = Chunk(self._taken, items, out, hearing, parts, shows)
        self._answers = AnswerStage(ready, out, clock, voice, hearing)
        # no bound methods of the session: the cycle would keep it until a garbage collection
        self._stages: tuple[Stage, ...] = (
            self._chunk.run,
            Prefill(heard, readies, out, parts, self._turns).run,
            partial(self._answers.run, options.answers_itself),
        )

    async def feed(self, pcm: bytes) -> None:
        """Audio as the session's options say, any number of bytes; waits while 5 s are in hand.

        Raises TypeError for anything but bytes (of a numpy array give `array.tobytes()`), and
        anyio.ClosedResourceError after `end`.
        """
        if not isinstance(pcm, bytes | bytearray | memoryview):
            kind = f"feed takes bytes of PCM16, not {type(pcm).__name__}"
            raise TypeError(f"{kind}; of an int16 array give .tobytes()")
        pcm = bytes(pcm)
        self._check_open()
        if self._options.is_recording:
            await self._send(Command("hear", pcm, self._clock()))
            self.num_bytes_fed += len(pcm)
            return
        at = 0
        while at < len(pcm):
            taken = pcm[at : at + self._piece_bytes - len(self._held)]
            at += len(taken)
            self._held += taken
            self._held_at = self._clock()
            self.num_bytes_fed += len(taken)
            if len(self._held) == self._piece_bytes:
                await self._flush()

    async def commit(self) -> int:
        """End the turn; its number. Later audio is the next turn's.

        Raises NothingToCommit where nothing was fed since the last turn, and as `feed` after `end`.
        """
        self._check_open()
        command = Command("commit", bytes(self._held), self._held_at)
        await self._perform(command, len(command.pcm))
        if command.turn is None:
            raise NothingToCommit("there is no audio since the last turn; feed some before commit")
        return command.turn

    async def catch_up(self, num_left: int) -> None:
        """Wait until all of a recording but its last `num_left` samples (at 16 kHz) is prefilled on
        every model, and its earlier parts are answered."""
        await self._perform(Command("settle", num_left=num_left))

    async def answer(self) -> None:
        """Answer the last committed turn, in a session with `answers_itself=False`. A second call
        does nothing.

        Parts of a turn that is longer than max_turn_s are answered as they end, all but the last.
        """
        self._check_open()
        self._last_asked = self._chunk.last_closed
        await self._send(Command("answer"))

    async def clear(self) -> None:
        """Forget the audio that is not committed yet; a Cleared event follows."""
        self._check_open()
        await self._flush()  # not dropped here: times count from the session's first sample
        await self._send(Command("clear"))

    async def cancel(self) -> None:
        """Stop the answers to all turns committed by now: committed text stays, each Description
        has stop_reason `cancelled`. Does nothing where there is no answer to stop."""
        answers_itself = self._options.answers_itself
        self._answers.cancel(self._chunk.last_closed if answers_itself else self._last_asked)

    async def end(self) -> None:
        """No more audio: all that was fed is answered, then the events end."""
        self._is_ended = True
        # where the session is failing, its context raises
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._flush()
        self._commands.close()

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
        self._is_over = ends_turn and not (self._options.turn_detection or self._is_ended)
        return event

    @property
    def baseline(self) -> Any:
        """How the speaker usually speaks: a streamer.Baseline, given or learnt by the coach.

        None without a coach, and under 5 s of speech. `baseline.save("me.json")` keeps it.
        """
        return self._hearing.coach.baseline if self._hearing.coach else None

    @property
    def backlog(self) -> dict[str, int]:
        """`pieces`, `audio_ms` fed and unheard, `turns` in hand, `events` unread."""
        pieces = self._taken.statistics().current_buffer_used
        num_samples = (pieces * self._piece_bytes + len(self._held)) // self._sample_bytes
        return {
            "pieces": pieces,
            "audio_ms": 1000 * num_samples // self._options.sample_rate_hz,
            "turns": len(self._turns),
            "events": self._events.statistics().current_buffer_used,
        }

    def _close(self) -> None:
        self._is_ended = self._is_closed = True
        for event in self._awaited:
            event.set()
        for turn in list(self._turns):
            turn.close()
        for end in (self._commands, self._taken, self._events):
            end.close()

    def _check_open(self) -> None:
        if self._is_ended:
            raise anyio.ClosedResourceError(ENDED)

    async def _send(self, command: Command, num_held: int = 0) -> None:
        """num_held: the held bytes that it hands on; if the caller is cancelled, they are still
        held."""
        try:
            await self._commands.send(command)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise type(error)(ENDED) from None
        del self._held[:num_held]

    async def _flush(self) -> None:
        if self._held:
            held = bytes(self._held)
            await self._send(Command("hear", held, self._held_at), len(held))

    async def _perform(self, command: Command, num_held: int = 0) -> None:
        """Send a command and wait for its effect. Raises ClosedResourceError where the session is
        left."""
        self._awaited.add(command.is_done)
        try:
            await self._send(command, num_held)
            await command.is_done.wait()
        finally:
            self._awaited.discard(command.is_done)
        if self._is_closed:
            raise anyio.ClosedResourceError(ENDED)

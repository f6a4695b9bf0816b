"""First stage: pieces of PCM and commands in, turns and windows out.

Hearing is on worker threads. Measures and the coach hear the same samples on others, so that no
model and no hearing waits for them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio import create_memory_object_stream as queue
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn_items import Closed, Item, TurnOpened
from streamer.stages.events import Cleared, SpeechStarted, SpeechStopped, TurnCommitted
from streamer.stages.ports import (
    Answer,
    AudioPiece,
    Clear,
    Command,
    Commit,
    Hearing,
    HearingThreads,
    Mark,
    Outlet,
)

MAX_JOINED_BYTES = 19_200  # 200 ms at 48 kHz
Items = MemoryObjectSendStream[tuple[Item | Answer | Mark, float]]
Value = TypeVar("Value")


class Chunk:
    """`run` is the stage. Items go on with the time when the last piece was fed.

    last_closed: the last turn whose audio is over.
    """

    def __init__(
        self,
        commands: MemoryObjectReceiveStream[Command],
        items: Items,
        observers: Observers,
        outlet: Outlet,
        hearing: Hearing,
        threads: HearingThreads,
    ) -> None:
        self._commands = commands
        self._items = items
        self._observers = observers
        self._outlet = outlet
        self._hearing = hearing
        self._threads = threads
        self.last_closed = -1
        self._fed_at = 0.0  # when the last piece was fed
        self._is_heard = False  # samples that no commit has ended
        self._last_committed = -1

    async def run(self) -> None:
        """Ends when the commands do."""
        held: Command | None = None
        try:
            async with self._commands, self._items:
                while True:
                    try:
                        command = held or await self._commands.receive()
                    except anyio.EndOfStream:
                        break
                    held = await self._take(command)
                if self._is_heard:
                    await self._hand_on(await self._on_thread(self._hearing.commit))
        finally:
            self._observers.close()

    async def _take(self, command: Command) -> Command | None:
        """Returns a command that came after pieces, to be taken next."""
        hearing = self._hearing
        match command:
            case AudioPiece():
                return await self._hear(command)
            case Commit():
                await self._commit(command)
            case Clear():
                await self._hand_on(await self._on_thread(hearing.clear))
                await self._outlet.send(Cleared(hearing.num_turns))
                self._last_committed = hearing.num_turns - 1
            case Mark(num_left):
                await self._hand_on(await self._on_thread(_settle, hearing, num_left))
                await self._items.send((command, self._fed_at))
            case Answer():
                await self._items.send((command, self._fed_at))
        return None

    async def _hear(self, first: AudioPiece) -> Command | None:
        """Hear `first` and the pieces after it. Pieces wait for a thread in order, and all that
        have come meanwhile are heard at once."""
        async with self._threads.pieces:
            pcm, self._fed_at, following = _join(self._commands, first)
            found = await self._on_thread(self._hearing.push, pcm)
        self._is_heard = True
        await self._hand_on(found)
        return following

    async def _commit(self, commit: Commit) -> None:
        """It waits for no thread that hears pieces."""
        hearing = self._hearing
        pcm = b""
        if commit.rest is not None:
            pcm, self._fed_at = commit.rest.pcm, commit.rest.fed_at
        pushed, found = await self._on_thread(_end, hearing, pcm)
        self._is_heard = False
        await self._hand_on([*pushed, *found])
        # If voice activity just ended the turn, this commit refers to it: do not commit twice.
        ends_one = any(isinstance(item, Closed) for item in found)
        if ends_one or hearing.num_turns - 1 > self._last_committed:
            commit.turn = self._last_committed = hearing.num_turns - 1
        commit.is_done.set()

    async def _on_thread(self, call: Callable[..., Value], *arguments: object) -> Value:
        return await anyio.to_thread.run_sync(call, *arguments, limiter=self._threads.limiter)

    async def _hand_on(self, found: list[Item]) -> None:
        for item in found:
            if isinstance(item, Closed):
                self.last_closed = item.turn
            await _tell(item, self._outlet)
            await self._items.send((item, self._fed_at))
        self._observers.wake()


class Observers:
    """Measures and the coach of one session: `run` hears what came since the last time, each time
    after `wake`. wants_measures: send Measures events, five a second."""

    def __init__(
        self, hearing: Hearing, outlet: Outlet, limiter: anyio.CapacityLimiter, wants_measures: bool
    ) -> None:
        self._hearing = hearing
        self._outlet = outlet
        self._limiter = limiter
        self._wants_measures = wants_measures
        self._wakes, self._woken = queue[None](1)

    def wake(self) -> None:
        """There is more to hear. Does nothing while one wake waits, or when `run` has ended."""
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
            self._wakes.send_nowait(None)

    def close(self) -> None:
        """Let `run` end."""
        self._wakes.close()

    async def run(self) -> None:
        """Ends after `close`."""
        async with self._woken:
            async for _ in self._woken:
                await self._measure()
                await self._coach()

    async def _measure(self) -> None:
        measurer = self._hearing.measurer
        if measurer is None or not measurer.is_due(self._wants_measures):
            return  # most often: a trip to a thread would cost more than it brings
        run = anyio.to_thread.run_sync
        news = await run(measurer.work, self._wants_measures, limiter=self._limiter)
        if news is not None and news.heard_s > 0 and not measurer.is_over:
            self._outlet.offer(news)

    async def _coach(self) -> None:
        """A slow reader loses news, but no nudge."""
        coach = self._hearing.coach
        if coach is None:
            return
        for event in await anyio.to_thread.run_sync(coach.work, limiter=self._limiter):
            if event.may_be_lost:
                self._outlet.offer(event)
            else:
                await self._outlet.send(event)


def _end(hearing: Hearing, pcm: bytes) -> tuple[list[Item], list[Item]]:
    """Items of the turn's last piece, and of its end: one trip to the thread for both."""
    return hearing.push(pcm) if pcm else [], hearing.commit()


def _settle(hearing: Hearing, num_left: int) -> list[Item]:
    """All but the last samples are heard, and measured."""
    found = hearing.settle(num_left)
    if hearing.measurer is not None:
        hearing.measurer.work(False)
    return found


def _join(
    commands: MemoryObjectReceiveStream[Command], first: AudioPiece
) -> tuple[bytes, float, Command | None]:
    """PCM of `first` and the pieces that wait after it, when the last was fed, and the command that
    came after them. On a busy machine a trip to a thread costs more than hearing a piece."""
    pieces = [first]
    while sum(len(piece.pcm) for piece in pieces) < MAX_JOINED_BYTES:
        try:
            following = commands.receive_nowait()
        except (anyio.WouldBlock, anyio.EndOfStream):
            break
        if not isinstance(following, AudioPiece):
            return b"".join(piece.pcm for piece in pieces), pieces[-1].fed_at, following
        pieces.append(following)
    return b"".join(piece.pcm for piece in pieces), pieces[-1].fed_at, None


async def _tell(item: Item, outlet: Outlet) -> None:
    match item:
        case TurnOpened(turn, at_ms) if at_ms is not None:
            await outlet.send(SpeechStarted(turn, at_ms))
        case Closed():
            if item.stopped_ms is not None and item.last_speech_ms is not None:
                await outlet.send(SpeechStopped(item.turn, item.stopped_ms, item.last_speech_ms))
            await outlet.send(TurnCommitted(item.turn, item.num_samples / SAMPLE_RATE_HZ))

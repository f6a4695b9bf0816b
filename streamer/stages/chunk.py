"""First stage: pieces of PCM and commands in, turns and windows out. Hearing is on a thread."""

from __future__ import annotations

import math

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn_items import Closed, Item, TurnOpened
from streamer.stages.events import Cleared, SpeechStarted, SpeechStopped, TurnCommitted
from streamer.stages.plumbing.hearing_threads import Seat
from streamer.stages.plumbing.messages import Answer, Clear, Command, Commit, Mark, Piece
from streamer.stages.plumbing.open_turns import Books
from streamer.stages.plumbing.outlet import Outlet
from streamer.stages.plumbing.pokes import Pokes
from streamer.stages.plumbing.ports import Hearing
from streamer.stages.plumbing.put import put

MAX_JOINED_BYTES = 19_200  # 200 ms at 48 kHz
# Behind a turn's end the models have both cores: a coach at work then cost them 2 ms of 30.
QUIET_S = 0.05
Items = MemoryObjectSendStream[tuple[Item | Answer | Mark, float]]


async def chunk(
    commands: MemoryObjectReceiveStream[Command],
    items: Items,
    pokes: Pokes,
    outlet: Outlet,
    hearing: Hearing,
    seat: Seat,
    books: Books,
) -> None:
    """Items go on with the time when the last piece was fed. Ends when `commands` does."""
    stage = _Chunk(items, pokes, outlet, hearing, seat, books)
    held: Command | None = None
    async with commands, items, pokes, outlet:
        while True:
            try:
                command = held or await stage.next(commands)
            except anyio.EndOfStream:
                break
            held = None
            match command:
                case Piece() | Commit():
                    held = await stage.hear(commands, command)
                case Clear():
                    await stage.clear()
                case Mark(num_left):
                    await stage.hand_on(await seat.run(hearing.settle, num_left))
                    await put(items, (command, stage.fed_at))
                case Answer():
                    await put(items, (command, stage.fed_at))
        if stage.is_heard:
            await stage.hand_on(await seat.run(hearing.commit))
        pokes.poke()


class _Chunk:
    """fed_at: when the last piece was. is_heard: something that no commit has ended."""

    def __init__(
        self, items: Items, pokes: Pokes, outlet: Outlet, hearing: Hearing, seat: Seat, books: Books
    ) -> None:
        self.fed_at = 0.0
        self.is_heard = False
        self._items = items
        self._pokes = pokes
        self._outlet = outlet
        self._hearing = hearing
        self._seat = seat
        self._books = books
        self._last_committed = -1
        self._quiet_until = -math.inf  # who hears beside the stages waits so long
        self._is_poke_due = False

    async def next(self, commands: MemoryObjectReceiveStream[Command]) -> Command:
        """The next command. Who hears beside the stages is told meanwhile, when it is time."""
        if self._is_poke_due:
            with anyio.CancelScope(deadline=self._quiet_until):
                return await commands.receive()
            self._poke()
        return await commands.receive()

    async def hear(
        self, commands: MemoryObjectReceiveStream[Command], first: Piece | Commit
    ) -> Command | None:
        """Hear `first` and the pieces behind it, to a commit at most. What came after them."""
        hearing = self._hearing
        await self._seat.lead.give_way()
        async with self._seat.waited():
            pcm, self.fed_at, last = _join(commands, first, self.fed_at)
            commit = last if isinstance(last, Commit) else None
            found = await self._seat.run(hearing.push, pcm) if commit is None else []
            self._seat.is_ending = hearing.is_ending
        self.is_heard = commit is None
        if commit is None:
            await self.hand_on(found)
            return last
        await self._commit(commit, pcm)
        return None

    async def _commit(self, commit: Commit, pcm: bytes) -> None:
        hearing = self._hearing
        pushed, found = await self._seat.run(_end, hearing, pcm)
        self._seat.rest()
        await self.hand_on([*pushed, *found])
        # A turn that voice activity has just ended is what the client means; twice is once.
        ends_one = any(isinstance(item, Closed) for item in found)
        if ends_one or hearing.num_turns - 1 > self._last_committed:
            commit.turn = self._last_committed = hearing.num_turns - 1
        commit.is_done.set()

    async def clear(self) -> None:
        await self.hand_on(await self._seat.run(self._hearing.clear))
        await self._outlet.send(Cleared(self._hearing.num_turns))
        self._last_committed = self._hearing.num_turns - 1

    async def hand_on(self, found: list[Item]) -> None:
        for item in found:
            if isinstance(item, Closed):
                self._books.last_closed = item.turn
                self._quiet_until = anyio.current_time() + QUIET_S
            await _tell(item, self._outlet)
            await put(self._items, (item, self.fed_at))
        self._poke()

    def _poke(self) -> None:
        self._is_poke_due = anyio.current_time() < self._quiet_until
        if not self._is_poke_due:
            self._pokes.poke()


def _end(hearing: Hearing, pcm: bytes) -> tuple[list[Item], list[Item]]:
    """What the turn's last piece brings, and its end: one way to the thread for both."""
    return hearing.push(pcm) if pcm else [], hearing.commit()


def _join(
    commands: MemoryObjectReceiveStream[Command], first: Piece | Commit, fed_at: float
) -> tuple[bytes, float, Command | None]:
    """`first` and the pieces that wait behind it, when the last was fed, and what came after them,
    if it is no piece.

    Where many streams share the machine, a hop to a thread for every 20 ms costs more than hearing
    them.
    """
    parts = list[bytes]()
    size = 0
    command = first
    while True:
        piece = command.rest if isinstance(command, Commit) else command
        if piece is not None:
            parts.append(piece.pcm)
            fed_at = piece.fed_at
            size = size + len(piece.pcm)
        if isinstance(command, Commit) or size >= MAX_JOINED_BYTES:
            return b"".join(parts), fed_at, command if isinstance(command, Commit) else None
        try:
            following = commands.receive_nowait()
        except (anyio.WouldBlock, anyio.EndOfStream):
            return b"".join(parts), fed_at, None
        if not isinstance(following, Piece | Commit):
            return b"".join(parts), fed_at, following
        command = following


async def _tell(item: Item, outlet: Outlet) -> None:
    match item:
        case TurnOpened(turn, at_ms) if at_ms is not None:
            await outlet.send(SpeechStarted(turn, at_ms))
        case Closed():
            if item.stopped_ms is not None and item.last_speech_ms is not None:
                await outlet.send(SpeechStopped(item.turn, item.stopped_ms, item.last_speech_ms))
            await outlet.send(TurnCommitted(item.turn, item.num_samples / SAMPLE_RATE_HZ))

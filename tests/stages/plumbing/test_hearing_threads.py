"""Pieces wait for their turn, ends do not, and a thread that was given to one who left goes to the
next."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from speech import speech

from streamer import Describer, Description
from streamer.stages.plumbing.hearing_threads import NUM_PIECES, HearingThreads, Seat

LIMIT_S = 10.0


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def settle() -> None:
    for _ in range(5):
        await checkpoint()


class Room:
    """Streams that hear one piece each, when `go` lets them; who had a turn, in order."""

    def __init__(self, num_pieces: int) -> None:
        self.threads = HearingThreads(num_pieces, 1)
        self.inside: list[int] = []
        self.go = anyio.Event()

    async def hear(self, number: int, seat: Seat) -> None:
        async with seat.waited():
            self.inside.append(number)
            await self.go.wait()


def run(backend: str, work: object, limit_s: float = LIMIT_S) -> None:
    async def limited() -> None:
        with anyio.fail_after(limit_s):
            await work()  # type: ignore[operator]

    anyio.run(limited, backend=backend)


@pytest.mark.parametrize("num_pieces", [1, 2])
def test_first_come_first_served_and_no_more_at_once_than_there_are_threads(
    backend: str, num_pieces: int
) -> None:
    async def work() -> None:
        room = Room(num_pieces)
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(room.hear, number, Seat(room.threads))
                await settle()
            assert room.inside == [0, 1][:num_pieces]
            room.go.set()
        assert (
            room.inside == [0, 1, 2, 3, 4, 5]
            if num_pieces == 1
            else sorted(room.inside) == [0, 1, 2, 3, 4, 5]
        )

    run(backend, work)


def test_who_pushes_has_one_turn_and_then_all_others_have_theirs(backend: str) -> None:
    """However much of it waits: it stands in the queue once, behind who came meanwhile."""

    async def work() -> None:
        room = Room(1)

        async def push(seat: Seat) -> None:
            for _ in range(3):
                await room.hear(0, seat)

        async def speak(number: int, seat: Seat) -> None:
            for _ in range(2):
                await room.hear(number, seat)

        async with anyio.create_task_group() as group:
            group.start_soon(push, Seat(room.threads))
            await settle()
            for number in (1, 2):
                group.start_soon(speak, number, Seat(room.threads))
                await settle()
            room.go.set()
        assert room.inside == [0, 1, 2, 0, 1, 2, 0]

    run(backend, work)


def test_who_hurries_passes_the_queue_and_waits_again_when_it_is_over(backend: str) -> None:
    async def work() -> None:
        room = Room(1)
        seats = [Seat(room.threads) for _ in range(4)]
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(room.hear, number, seats[number])
                await settle()
            seats[2].hurry()  # it stands in the queue
            await settle()
            assert room.inside == [0, 2]
            seats[3].hurry()  # it has not come yet
            group.start_soon(room.hear, 3, seats[3])
            await settle()
            assert room.inside == [0, 2, 3]
            seats[3].rest()
            group.start_soon(room.hear, 3, seats[3])
            await settle()
            assert room.inside == [0, 2, 3]
            room.go.set()
        assert room.inside == [0, 2, 3, 1, 3]

    run(backend, work)


def test_the_end_that_voice_activity_finds_waits_for_nobodys_pieces(backend: str) -> None:
    """All threads for pieces are taken when half its silence has passed."""

    async def work() -> None:
        spoken = (speech(1.5, 0) * 32767).astype("<i2").tobytes()
        async with Describer.open(mode="edge") as describer, describer.session(vad=True) as session:
            await session.feed(spoken + bytes(32 * 300))
            while not session._stream._hearing.is_ending:
                await anyio.sleep(0.005)
            threads = session._stream._parts.threads
            for _ in range(NUM_PIECES):
                await threads.take(Seat(threads))
            await session.feed(bytes(32 * 400))
            assert [event async for event in taken_until(session, Description)]

    run(backend, work, 60.0)  # models are loaded in it


async def taken_until(session: Any, kind: type) -> AsyncIterator[object]:
    """Its events, up to one of that kind."""
    async for event in session:
        yield event
        if isinstance(event, kind):
            return


@pytest.mark.parametrize("is_given", [False, True])
def test_who_leaves_while_it_waits_takes_no_thread_with_it(backend: str, is_given: bool) -> None:
    async def work() -> None:
        threads = HearingThreads(1, 1)
        first, second, third = (Seat(threads) for _ in range(3))
        assert await threads.take(first)
        heard = anyio.Event()

        async def hear() -> None:
            async with third.waited():
                heard.set()

        async with anyio.create_task_group() as group:
            leaving = anyio.CancelScope()

            async def leave() -> None:
                with leaving:
                    async with second.waited():
                        await anyio.sleep_forever()

            group.start_soon(leave)
            await settle()
            group.start_soon(hear)
            await settle()
            if is_given:
                threads.give_back()  # it is the second's, who is cancelled before it runs
            leaving.cancel()
            await settle()
            if not is_given:
                threads.give_back()
            await heard.wait()
        assert await threads.take(first)

    run(backend, work)


def test_calls_run_on_threads_and_raise_what_they_raise(backend: str) -> None:
    async def work() -> None:
        seat = Seat(HearingThreads())
        assert await seat.run(threading.get_ident) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await seat.run(lambda: 1 / 0)

    run(backend, work)

"""One that pushes gives way to those who wait for words, never for long; those who speak do not."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

import anyio
import pytest
from anyio.lowlevel import checkpoint
from patience import PATIENCE_S
from speech import speech

from streamer import Describer, Description
from streamer.session import LiveSession
from streamer.stages.plumbing import lead as lead_module
from streamer.stages.plumbing.lead import AHEAD_S, GIVE_WAY_S, LATE_S, MOST_S, SPEED, Answers, Lead

PIECE_S = 0.1


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def fed(lead: Lead, clock: Clock, seconds: float, speed: float) -> bool:
    """So much audio at so many times real time: whether it pushed at any time."""
    pushed = False
    for _ in range(round(seconds / PIECE_S)):
        lead.came(PIECE_S)
        clock.now_s += PIECE_S / speed
        pushed |= lead.pushes
    return pushed


@pytest.mark.parametrize("speed", [0.5, 1.0, 1.01, SPEED - 0.01])
def test_who_speaks_never_pushes_however_long_and_whatever_its_clock(speed: float) -> None:
    clock = Clock()
    assert not fed(Lead(Answers(), clock), clock, 7200.0, speed)


@pytest.mark.parametrize("speed", [1.5, 2.0, 10.0, 1000.0])
def test_who_sends_faster_pushes_until_it_rests(speed: float) -> None:
    clock = Clock()
    lead = Lead(Answers(), clock)
    assert not fed(lead, clock, LATE_S, speed), "a client's own buffer, when it connects"
    assert fed(lead, clock, 40.0, speed)
    clock.now_s += MOST_S / SPEED
    assert not lead.pushes


@pytest.mark.parametrize("late_s", [1.0, LATE_S, 10.0, 30.0])
def test_what_was_late_may_come_at_once(late_s: float) -> None:
    """More than LATE_S makes one that pushes of it, and soon one that speaks again."""
    clock = Clock()
    lead = Lead(Answers(), clock)
    assert not fed(lead, clock, 60.0, 1.0)
    clock.now_s += late_s
    assert fed(lead, clock, late_s, 1000.0) == (late_s > LATE_S + AHEAD_S)
    fed(lead, clock, 10.0, 1.0)
    assert not lead.pushes
    clock.now_s += 3600.0
    assert fed(lead, clock, LATE_S + AHEAD_S + 1.0, 1000.0), "a long rest is no credit for minutes"


def test_a_recording_always_pushes() -> None:
    assert Lead(Answers(), Clock(), is_recording=True).pushes


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    async def limited(work: Callable[[], Awaitable[None]]) -> None:
        with anyio.fail_after(PATIENCE_S):
            await work()

    return lambda work: anyio.run(limited, work, backend=str(request.param))


def pushing(answers: Answers) -> Lead:
    return Lead(answers, Clock(), is_recording=True)


def test_one_that_pushes_goes_on_when_the_last_has_its_words(run, monkeypatch) -> None:
    monkeypatch.setattr(lead_module, "GIVE_WAY_S", math.inf)  # the time is another test's

    async def work() -> None:
        answers, clock, order = Answers(), Clock(), []
        speaking = [Lead(answers, clock) for _ in range(2)]
        lead = pushing(answers)

        async def give_way() -> None:
            await lead.give_way()
            order.append("pushed")

        async with anyio.create_task_group() as group:
            with speaking[0].answered():
                with speaking[1].answered():
                    group.start_soon(give_way)
                    for _ in range(5):
                        await checkpoint()
                order.append("first")
                await checkpoint()
                await speaking[0].give_way()  # it does not push: no wait
                order.append("second")
        assert order == ["first", "second", "pushed"]

    run(work)


def test_it_waits_for_so_long_at_most_and_not_for_others_that_push(run) -> None:
    async def work() -> None:
        answers = Answers()
        lead = pushing(answers)
        with pushing(answers).answered():
            began = time.monotonic()
            for _ in range(1000):
                await lead.give_way()
            assert time.monotonic() - began < 1000 * GIVE_WAY_S / 2
        with Lead(answers).answered():
            began = time.monotonic()
            await lead.give_way()
            assert time.monotonic() - began >= GIVE_WAY_S / 2

    run(work)


def spoken(seconds: float) -> bytes:
    return (speech(seconds, 0) * 32767).astype("<i2").tobytes()


def test_what_is_pushed_is_heard_and_answered_while_others_wait_for_words_all_the_time(run) -> None:
    """12 s at once: pieces and the answer wait a little, and nothing else changes."""

    async def work() -> None:
        async with Describer.open(mode="gated") as describer, describer.session() as session:
            with session._stream._parts.threads.answers.waited_for():
                event = await described(session, spoken(12.0))
            assert (await describer.describe((speech(12.0, 0), 16_000))).text == event.text

    run(work)


class Counted(Answers):
    num = 0

    def waited_for(self) -> AbstractContextManager[None]:
        self.num += 1
        return super().waited_for()


@pytest.mark.parametrize(("seconds", "num"), [(2.0, 1), (20.0, 0)])
def test_the_answer_of_one_that_speaks_is_waited_for_and_of_one_that_pushes_not(
    run, seconds: float, num: int
) -> None:
    async def work() -> None:
        async with Describer.open(mode="edge") as describer:
            async with describer.session() as session:
                threads = session._stream._parts.threads
            answers = threads.answers = Counted()
            async with describer.session() as session:
                await described(session, spoken(seconds))
            assert answers.num == num

    run(work)


def test_what_is_pushed_waits_for_the_last_word_of_others(run, monkeypatch) -> None:
    """It would wait without an end: only that lets it go."""

    async def work() -> None:
        order: list[str] = []
        async with Describer.open(mode="edge") as describer, describer.session() as session:
            answers = session._stream._parts.threads.answers

            async def push() -> None:
                await described(session, spoken(20.0))
                order.append("pushed")

            monkeypatch.setattr(lead_module, "GIVE_WAY_S", math.inf)
            async with anyio.create_task_group() as group:
                with answers.waited_for():
                    group.start_soon(push)
                    while session._stream.backlog["pieces"] < 10:  # heard no further
                        await anyio.sleep(0.01)
                    order.append("others have their words")
            assert order == ["others have their words", "pushed"]

    run(work)


async def described(session: LiveSession, pcm: bytes) -> Description:
    await session.feed(pcm)
    await session.commit()
    async for event in session:
        if isinstance(event, Description):
            return event
    raise AssertionError("no description")

"""One that pushes gives way to those who wait for words, never for long; those who speak do not."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint
from speech import speech

from streamer import Describer, Description
from streamer.stages.plumbing.lead import AHEAD_S, GIVE_WAY_S, LATE_S, SPEED, Answers, Lead

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
    assert not fed(lead, clock, AHEAD_S, speed), "a client's own buffer"
    assert fed(lead, clock, 10.0, speed)
    clock.now_s += 10.0
    assert not lead.pushes


def test_what_was_late_may_come_at_once() -> None:
    clock = Clock()
    lead = Lead(Answers(), clock)
    assert not fed(lead, clock, 3.0, 1.0)
    clock.now_s += LATE_S
    assert not fed(lead, clock, LATE_S, 1000.0)
    clock.now_s += 3600.0
    assert fed(lead, clock, LATE_S + AHEAD_S + 1.0, 1000.0), "a long rest is no credit for minutes"


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    async def limited(work: Callable[[], Awaitable[None]]) -> None:
        with anyio.fail_after(60.0):  # models are loaded in one
            await work()

    return lambda work: anyio.run(limited, work, backend=str(request.param))


def pushing(answers: Answers) -> Lead:
    clock = Clock()
    lead = Lead(answers, clock)
    lead.came(60.0)
    return lead


def test_one_that_pushes_goes_on_when_the_last_has_its_words(run) -> None:
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


def test_what_is_pushed_is_heard_and_answered_while_others_wait_for_words_all_the_time(run) -> None:
    """12 s at once: each piece waits a little, and nothing else changes."""

    async def work() -> None:
        spoken = (speech(12.0, 0) * 32767).astype("<i2").tobytes()
        async with Describer.open(mode="gated") as describer, describer.session() as session:
            with session._stream._parts.threads.answers.waited_for():
                began = time.monotonic()
                await session.feed(spoken)
                await session.commit()
                async for event in session:
                    if isinstance(event, Description):
                        break
                took_s = time.monotonic() - began
            assert event.text
            assert took_s >= 5 * GIVE_WAY_S
            assert (await describer.describe((speech(12.0, 0), 16_000))).text == event.text

    run(work)

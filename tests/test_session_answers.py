"""When a live session's answers come: asked for, cancelled, left in the middle; under asyncio and trio."""

import random

import anyio
import pytest
from sessions import free_of
from speech import speech
from turns import SILENCE, feed_in_pieces, one_turn, pcm

from streamer import Describer, Description, TextDelta
from streamer.stages.events import LiveUpdate, TurnCommitted

MODES = ("edge", "gated", "exact", "cloud")


@pytest.fixture
def options(tiny_pair):
    return {"edge": str(tiny_pair[0]), "cloud": str(tiny_pair[1]), "threshold": 2.0}


async def test_cancel_keeps_what_is_committed(options):
    async with Describer.open(mode="exact", **options) as describer:
        async with describer.session() as session:
            data = pcm(speech(3, 5))
            await session.feed(data)
            await session.commit()
            events = []
            async for event in session:
                events.append(event)
                if isinstance(event, TextDelta):
                    await session.cancel()
            last = events[-1]
            assert last.stop_reason in ("cancelled", "sentence", "eos")
            assert last.text == "".join(
                event.text for event in events if isinstance(event, TextDelta)
            )
            await session.cancel()  # nothing to stop
            await session.feed(data)
            await session.commit()
            assert (await one_turn(session))[-1].stop_reason != "cancelled"
        assert set(free_of(describer)) == {4}


@pytest.mark.parametrize("seed", range(12))
async def test_leaving_at_any_moment_leaks_no_slot(options, seed):
    """The session is dropped while it hears, prefills, drafts, verifies: the next one finds every
    slot."""
    chance = random.Random(seed)
    async with Describer.open(mode=chance.choice(MODES), **options) as describer:
        async with describer.session(live_update_s=0.3, vad=chance.random() < 0.5) as session:
            with anyio.move_on_after(chance.uniform(0.0, 0.4)):
                await feed_in_pieces(session, pcm(SILENCE[:4000], speech(4, seed), SILENCE), seed)
                await session.end()
                async for _ in session:
                    pass
        assert set(free_of(describer)) == {4}
        assert describer._parts.slots.value == 4
        async with describer.session() as session:
            await session.feed(pcm(speech(2, seed)))
            await session.commit()
            assert isinstance((await one_turn(session))[-1], Description)


async def test_a_turn_is_answered_when_it_is_asked_for(options):
    async with Describer.open(mode="edge", **options) as describer:
        async with describer.session(answers_itself=False) as session:
            await session.feed(pcm(speech(2, 1)))
            await session.commit()
            await session.feed(pcm(speech(2, 2)))
            await session.commit()  # the first is never asked for
            await session.answer()
            await session.answer()
            await session.end()
            events = [event async for event in session.events()]
        assert [event.turn for event in events if isinstance(event, TurnCommitted)] == [0, 1]
        assert {event.turn for event in events if isinstance(event, TextDelta)} == {1}
        assert sum(isinstance(event, Description) for event in events) == 1
        assert set(free_of(describer)) == {4}


def test_under_trio(options):
    async def main():
        async with (
            Describer.open(mode="exact", **options) as describer,
            describer.session() as session,
        ):
            await session.feed(pcm(speech(2, 1)))
            await session.commit()
            return (await one_turn(session))[-1].text

    assert anyio.run(main, backend="trio") == anyio.run(main) != ""


async def test_parts_are_answered_where_answers_are_asked_for(options):
    """All but the last at once: a part holds a slot, and its end may never be asked for."""
    async with Describer.open(mode="edge", **options) as describer:
        async with (
            describer.session(answers_itself=False) as session,
            anyio.create_task_group() as group,
        ):
            events = []

            async def listen():
                async for event in session.events():
                    events.append(event)

            group.start_soon(listen)
            await session.feed(pcm(*(speech(65, seed) for seed in (1, 2))))
            assert await session.commit() == 2
            await session.answer()
            await session.end()
        assert [event.turn for event in events if isinstance(event, Description)] == [0, 1, 2]
        assert set(free_of(describer)) == {4}


@pytest.mark.parametrize("asked", [True, False])
async def test_cancel_before_the_first_text(options, asked, monkeypatch):
    """An answer that was asked for and has not begun is cancelled; the next turn is not."""
    async with Describer.open(mode="exact", **options) as describer:
        async with describer.session(answers_itself=not asked) as session:
            await session.feed(pcm(speech(3, 5)))
            await session.commit()
            if asked:
                await session.cancel()  # committed, not asked for: nothing to stop
                await session.answer()
            await session.cancel()
            await session.feed(pcm(speech(3, 6)))
            await session.commit()
            if asked:
                await session.answer()
            await session.end()
            found = [event async for event in session.events() if isinstance(event, Description)]
        assert [event.stop_reason == "cancelled" for event in found] == [True, False]
        assert found[0].ids == ()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_live_updates_begin_one_at_a_time(options, backend):
    """Whatever order the event loop takes: under trio a parent may run before its child."""

    async def main():
        events = []

        async def listen(session):
            async for event in session:
                events.append(event)

        async with Describer.open(mode="edge", **options) as describer:
            for seed in range(4):
                with anyio.fail_after(60):
                    async with (
                        describer.session(live_update_s=0.5) as session,
                        anyio.create_task_group() as group,
                    ):
                        group.start_soon(listen, session)
                        data, told = pcm(speech(5, seed)), len(events)
                        for at in range(0, len(data), 16_000):
                            await session.feed(data[at : at + 16_000])
                            await anyio.sleep(0.03)
                            # 3.5 s are heard, and nothing else comes
                            while at == 96_000 and len(events) == told:
                                await anyio.sleep(0.01)
                        await session.commit()
        assert sum(isinstance(event, Description) for event in events) == 4
        assert sum(isinstance(event, LiveUpdate) for event in events) >= 4

    anyio.run(main, backend=backend)

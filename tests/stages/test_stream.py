"""Five stages joined by queues, on real models: any capacity, any delay, any point of cancellation.

No deadlock, nothing committed is lost, nothing is said twice, every KV slot comes back.
"""

import random

import anyio
import numpy as np
import pytest
from speech import RATE_HZ, speech

from streamer import Describer, Description, TextDelta
from streamer.stages import stream
from streamer.stages.plumbing.batcher import Batcher

submit = Batcher.submit
MODES = ("edge", "gated", "exact", "cloud")
NUM_TURNS = 3


def pcm(samples):
    return (samples * 32767).astype("<i2").tobytes()


@pytest.fixture(scope="module")
def turns():
    return [pcm(speech(seconds, seed)) for seed, seconds in enumerate((1.1, 4.3, 2.0))]


@pytest.fixture
def anyhow(monkeypatch):
    """Queues of any capacity, down to one; models that answer after any delay."""

    def shake(chance):
        for name in ("MAX_ITEMS", "MAX_SAID"):
            monkeypatch.setattr(stream, name, chance.choice([1, 2, 7]))
        monkeypatch.setattr(stream, "MAX_EVENTS", chance.choice([1, 3, 40]))
        monkeypatch.setattr(stream, "CREDITS", chance.choice([1, 2, 4]))
        monkeypatch.setattr(stream, "MAX_QUEUED_S", chance.choice([0.1, 0.3, 5.0]))
        monkeypatch.setattr(stream, "PIECE_S", chance.choice([0.01, 0.1]))

        async def late(batcher, steps, lead=None):
            await anyio.sleep(chance.choice([0.0, 0.0, 0.0, 0.003, 0.02]))
            value = await submit(batcher, steps, lead)
            await anyio.sleep(chance.choice([0.0, 0.0, 0.002]))
            return value

        monkeypatch.setattr(Batcher, "submit", late)

    return shake


async def feed_all(session, turns, chance, cancels):
    """Each turn in pieces of any size and a commit; a cancel wherever chance has it. Feeds the next
    one meanwhile."""
    for data in turns:
        at = 0
        while at < len(data):
            n = chance.choice([1, 640, 3_201, 50_000])
            await session.feed(data[at : at + n])
            at += n
            if cancels and chance.random() < 0.1:
                await session.cancel()
        await session.commit()
        if cancels and chance.random() < 0.4:
            await anyio.sleep(chance.uniform(0, 0.1))
            await session.cancel()
    await session.end()


def check(events, wanted):
    """Every turn has one Description, which is what its deltas said; a cancelled one is a beginning
    of the whole."""
    found = {event.turn: event for event in events if isinstance(event, Description)}
    assert sorted(found) == list(range(len(wanted)))
    for turn, description in found.items():
        deltas = [event for event in events if isinstance(event, TextDelta) and event.turn == turn]
        assert tuple(i for delta in deltas for i in delta.ids) == description.ids
        assert "".join(delta.text for delta in deltas) == description.text
        if description.stop_reason == "cancelled":
            assert description.ids == wanted[turn][: len(description.ids)]
        else:
            assert description.ids == wanted[turn]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num", [3, pytest.param(60, marks=pytest.mark.long)])
async def test_any_capacity_delay_and_cancellation(tiny_pair, turns, anyhow, mode, num):
    options = {
        "edge": str(tiny_pair[0]),
        "cloud": str(tiny_pair[1]),
        "threshold": 2.0,
        "mode": mode,
    }
    async with Describer.open(**options) as describer:
        wanted = []
        async with describer.session() as session:
            for data in turns:
                await session.feed(data)
                await session.commit()
                wanted.append([event async for event in session][-1].ids)
        free = [t.engine.slots.num_free for t in describer._models.pair if t is not None]
        for seed in range(num):
            chance = random.Random(f"{mode}/{seed}")
            anyhow(chance)
            with anyio.fail_after(60):
                async with describer.session() as session, anyio.create_task_group() as group:
                    group.start_soon(feed_all, session, turns, chance, seed % 3 > 0)
                    check([event async for event in session.events()], wanted)
            assert [
                t.engine.slots.num_free for t in describer._models.pair if t is not None
            ] == free


@pytest.mark.parametrize("num", [4, pytest.param(60, marks=pytest.mark.long)])
async def test_left_at_any_point(tiny_pair, turns, anyhow, num):
    """Whoever waits for whatever queue is let go, in all four modes; the slots are there for the
    next one."""
    for seed in range(num):
        chance = random.Random(seed)
        anyhow(chance)
        options = {
            "edge": str(tiny_pair[0]),
            "cloud": str(tiny_pair[1]),
            "threshold": 2.0,
            "mode": MODES[seed % 4],
        }
        async with Describer.open(**options) as describer:
            free = None
            for _ in range(4):
                with anyio.fail_after(30):
                    async with describer.session(
                        live_update_s=chance.choice([None, 0.5])
                    ) as session:
                        free = free or [
                            t.engine.slots.num_free for t in describer._models.pair if t is not None
                        ]
                        with anyio.move_on_after(chance.uniform(0.0, 0.6)):
                            async with anyio.create_task_group() as group:
                                group.start_soon(feed_all, session, turns, chance, False)
                                async for _ in session.events():
                                    await anyio.sleep(chance.choice([0.0, 0.01]))
                assert [
                    t.engine.slots.num_free for t in describer._models.pair if t is not None
                ] == free


async def test_audio_that_nobody_hears_is_pushed_back_not_kept(tiny_pair, monkeypatch):
    """`feed` waits while 5 s are in hand; `feed_nowait` says so."""
    monkeypatch.setattr(Batcher, "submit", lambda *_: anyio.sleep_forever())
    options = {"edge": str(tiny_pair[0]), "cloud": "none", "mode": "edge"}
    async with Describer.open(**options) as describer, describer.session() as session:
        with anyio.move_on_after(3.0) as waiting:
            await session.feed(bytes(2 * RATE_HZ * 120))
        assert waiting.cancelled_caught
        taken_s = session.num_bytes_fed / 2 / RATE_HZ
        assert taken_s < 60, "it was not all taken"
        assert session._stream.backlog["audio_ms"] <= 5_200
        assert not session._stream.feed_nowait(bytes(6_400))
        assert session.num_bytes_fed / 2 / RATE_HZ == taken_s


async def test_pieces_may_be_of_any_size(tiny_pair):
    """feed and feed_nowait in any mixture are one stream of bytes."""
    options = {"edge": str(tiny_pair[0]), "cloud": "none", "mode": "edge"}
    data = pcm(np.concatenate([speech(3, 4), speech(2, 5)]))
    async with Describer.open(**options) as describer:
        found = set()
        for seed in range(4):
            chance, at = random.Random(seed), 0
            async with describer.session() as session:
                while at < len(data):
                    part = data[at : at + chance.choice([1, 2, 639, 3_200, 6_401])]
                    if seed == 0 or not session._stream.feed_nowait(part):
                        await session.feed(part)
                    at += len(part)
                assert session.num_bytes_fed == len(data)
                await session.commit()
                found.add([event async for event in session][-1].ids)
        assert len(found) == 1

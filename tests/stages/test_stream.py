"""The stages on real models: any capacity, any delay, any point of cancellation."""

import random
import threading
from dataclasses import dataclass, replace
from functools import partial

import anyio
import numpy as np
import pytest
from speech import RATE_HZ, Between, Passing, pcm, slots_free, speech
from toy_parts import Decoding, toy_parts

from bench.arms import models_of, opened
from streamer import Description, TextDelta
from streamer.assembly import patient
from streamer.core.audio.turn import Heard
from streamer.core.decoding.plan import Plan
from streamer.core.rules.settings import Sampling
from streamer.describer import describe_recording
from streamer.stages import stream as stream_module
from streamer.stages import turn as turn_module
from streamer.stages.events import SessionOptions
from streamer.stages.parts import MOST_UNHEARD, NUM_PIECES
from streamer.stages.stream import open_stream

MODES = ("edge", "gated", "exact", "cloud")


@pytest.fixture(scope="module")
def turns():
    return [pcm(speech(seconds, seed)) for seed, seconds in enumerate((1.1, 4.3, 2.0))]


@dataclass(frozen=True)
class Late(Passing):
    """A batcher, or a turn's target, that takes its time."""

    chance: random.Random

    def __getattr__(self, name):
        work = getattr(self.inner, name)
        if name not in ("submit", "hear", "prepare", "verify"):
            return work

        async def after_a_while(*given, **named):
            await anyio.sleep(self.chance.choice([0.0, 0.0, 0.0, 0.003, 0.02]))
            value = await work(*given, **named)
            await anyio.sleep(self.chance.choice([0.0, 0.0, 0.002]))
            return value

        return after_a_while


@pytest.fixture
def anyhow(monkeypatch):
    """Queues of any capacity, down to one, and parts that answer after any delay."""

    def shake(chance, parts):
        monkeypatch.setattr(turn_module, "MAX_ITEMS", chance.choice([1, 2, 7]))
        monkeypatch.setattr(stream_module, "MAX_EVENTS", chance.choice([1, 3, 40]))
        monkeypatch.setattr(stream_module, "MAX_QUEUED_S", chance.choice([0.1, 0.3, 5.0]))
        for name in ("PIECE_S", "SHOWN_S"):
            monkeypatch.setattr(stream_module, name, chance.choice([0.01, 0.1]))
        late = partial(Late, chance=chance)
        return Between(parts, batcher_of=late, target_of=late)

    return shake


async def feed_all(session, turns, chance, cancels):
    """Each turn in pieces of any size and a commit; a cancel where chance has it."""
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
    """Every turn has one Description, as its deltas; a cancelled one is a beginning."""
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
async def test_any_capacity_delay_and_cancellation(tiny_models, turns, anyhow, mode, num):
    models = models_of(**tiny_models, threshold=2.0, mode=mode)
    async with opened(models) as parts:
        wanted = []
        async with open_stream(parts, SessionOptions()) as session:
            for data in turns:
                await session.feed(data)
                await session.commit()
                wanted.append([event async for event in session][-1].ids)
        free = slots_free(models)
        for seed in range(num):
            chance = random.Random(f"{mode}/{seed}")
            late = anyhow(chance, parts)
            with anyio.fail_after(300):
                async with (
                    open_stream(late, SessionOptions()) as session,
                    anyio.create_task_group() as group,
                ):
                    group.start_soon(feed_all, session, turns, chance, seed % 3 > 0)
                    check([event async for event in session.events()], wanted)
            assert slots_free(models) == free


@pytest.mark.parametrize("num", [4, pytest.param(60, marks=pytest.mark.long)])
async def test_left_at_any_point(tiny_models, turns, anyhow, num):
    for seed in range(num):
        chance = random.Random(seed)
        models = models_of(**tiny_models, threshold=2.0, mode=MODES[seed % 4])
        async with opened(models) as parts:
            late = anyhow(chance, parts)
            free = slots_free(models)
            for _ in range(4):
                update_s = chance.choice([None, 0.5])
                with anyio.fail_after(300):
                    async with open_stream(late, SessionOptions(live_update_s=update_s)) as session:
                        with anyio.move_on_after(chance.uniform(0.0, 0.6)):
                            async with anyio.create_task_group() as group:
                                group.start_soon(feed_all, session, turns, chance, False)
                                async for _ in session.events():
                                    await anyio.sleep(chance.choice([0.0, 0.01]))
                assert slots_free(models) == free


class Deaf(Passing):
    """A batcher whose model never answers."""

    async def submit(self, *given, **named):
        await anyio.sleep_forever()


async def test_unheard_audio_is_pushed_back_not_kept(tiny_pair):
    """`feed` waits while 5 s are in hand."""
    models = models_of(edge=str(tiny_pair[0]), cloud="none", mode="edge")
    noise = random.Random(0).randbytes(2 * RATE_HZ * 120)  # silence would need no model
    async with (
        opened(models) as parts,
        open_stream(Between(parts, batcher_of=Deaf), SessionOptions()) as stream,
    ):
        with anyio.move_on_after(3.0) as waiting:
            await stream.feed(noise)
        assert waiting.cancelled_caught
        taken_s = stream.num_bytes_fed / 2 / RATE_HZ
        assert taken_s < 60, "it was not all taken"
        assert stream.backlog["audio_ms"] <= 5_200


async def test_several_tasks_may_wait_to_feed():
    parts = toy_parts(Decoding(Plan("edge"), Sampling()), None)
    with anyio.fail_after(30):
        async with open_stream(parts, SessionOptions()) as stream:
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(stream.feed, bytes(2 * RATE_HZ * 6))
            await stream.commit()
            await stream.end()
            found = [event async for event in stream.events() if isinstance(event, Description)]
    assert [round(one.audio_s) for one in found] == [18]


async def test_a_caller_that_is_cancelled_with_the_session_hears_of_that_alone():
    parts = toy_parts(Decoding(Plan("edge"), Sampling()), None)
    with anyio.CancelScope() as scope:
        async with open_stream(parts, SessionOptions()) as stream:
            scope.cancel()
            with anyio.CancelScope(shield=True):  # such as a thread that is waited for
                await anyio.wait_all_tasks_blocked()
            await stream.feed(bytes(320))
    assert scope.cancelled_caught


async def _described(stream):
    return await anext(e async for e in stream.events() if isinstance(e, Description))


async def test_a_commit_does_not_wait_for_other_streams_pieces_and_pieces_do():
    parts = toy_parts(Decoding(Plan("edge"), Sampling()), None)
    others = [object() for _ in range(NUM_PIECES)]  # other streams, each with a piece in hand
    for other in others:
        parts.pieces.acquire_on_behalf_of_nowait(other)
    async with open_stream(parts, SessionOptions()) as stream:
        await stream.feed(bytes(16_000))  # a piece, which waits
        await anyio.wait_all_tasks_blocked()
        assert await stream.commit() == 0
        found = [(await _described(stream)).audio_s]  # then its turn is closed
        await stream.feed(bytes(16_000))
        await anyio.wait_all_tasks_blocked()
        assert stream.backlog["turns"] == 0, "the piece waits"
        parts.pieces.release_on_behalf_of(others[0])
        await stream.end()
        found.append((await _described(stream)).audio_s)
    assert found == [0.5, 0.5]
    assert parts.pieces.borrowed_tokens == NUM_PIECES - 1


async def test_a_gated_cloud_waits_with_some_windows_while_pieces_wait():
    async with opened(models_of(mode="gated")) as parts, anyio.create_task_group() as group:
        target, cutter = parts.target(), parts.cut(SessionOptions(), True)
        calm = replace(parts.cloud, pieces=None).listen(parts.plan.rules)
        parts.pieces.acquire_on_behalf_of_nowait(group)
        group.start_soon(parts.pieces.acquire)  # a piece that waits
        await anyio.wait_all_tasks_blocked()
        positions, data = [target.hearer.sequence.n_cached], pcm(speech(38.0, 1))
        for at in range(0, len(data), 4 * RATE_HZ):  # bytes of 2 s
            for item in cutter.push(data[at : at + 4 * RATE_HZ]):
                if isinstance(item, Heard) and item.windows:
                    for each in (target, calm):
                        await each.hear(item)
                        await each.prefilled()
                    positions.append(target.hearer.sequence.n_cached)
            if len(positions) == MOST_UNHEARD + 2:
                parts.pieces.release_on_behalf_of(group)
        heard = [0] * (MOST_UNHEARD + 1) + list(range(MOST_UNHEARD + 1, len(positions)))
        assert [(n - positions[0]) // 50 for n in positions] == heard
        assert np.array_equal(target.hearer.features(), calm.hearer.features())
        target.close()
        calm.close()


def cannot_hear(target, until=None):
    """The target, whose model has an error with the first window."""

    def failing():
        if until is not None:
            until.wait(60)
        yield from ()
        raise ValueError("mine")

    jobs = iter([failing()])
    target.hearer.hear = lambda heard: next(jobs) if heard.windows else None
    return target


async def test_a_busy_cloud_delays_no_turn_and_its_error_comes_with_the_verdict():
    async with opened(models_of(mode="gated")) as parts:
        in_hand = threading.Event()
        target, cutter = cannot_hear(parts.target(), in_hand), parts.cut(SessionOptions(), True)
        _, heard = cutter.push(pcm(speech(2.6, 1)))
        await target.hear(heard)
        await target.hear(heard)
        assert target.is_hearing
        in_hand.set()
        for call in (target.prefilled, partial(target.finish, cutter.commit()[-1], {})):
            with pytest.raises(ValueError, match="mine"):
                await call()
            await target.hear(heard)  # nothing of it goes on
        await target.stop()
        target.close()


@pytest.mark.parametrize("mode", ["exact", "gated"])
async def test_a_recording_that_the_cloud_cannot_hear_fails(mode):
    async with opened(models_of(mode=mode)) as parts:
        broken = Between(patient(parts, hears_late=False), target_of=cannot_hear)
        with anyio.fail_after(60), pytest.raises(RuntimeError, match="mine"):
            await describe_recording(broken, (speech(7.0, 1), RATE_HZ))

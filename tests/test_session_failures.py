"""What goes wrong in a live session, and stays where it went wrong."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import anyio
import numpy as np
import pytest
from sessions import free_of, session_of, slots_free
from speech import recording, speech
from turns import SILENCE, one_turn, pcm

from bench.arms import models_of
from bench.watched import Between, Passing, opened
from streamer import Describer, Description
from streamer.stages.events import NothingToCommit, TurnDetection, TurnFailed


@pytest.fixture
def options(tiny_pair):
    return {"edge": str(tiny_pair[0]), "cloud": str(tiny_pair[1]), "threshold": 2.0}


async def test_nothing_to_commit_and_clear(options):
    async with Describer.open(mode="edge", **options) as describer:
        async with describer.session() as session:
            with pytest.raises(NothingToCommit, match="feed some"):
                await session.commit()
            await session.feed(pcm(speech(2, 1)))
            await session.clear()
            with pytest.raises(NothingToCommit):
                await session.commit()
            await session.feed(b"")
            await session.feed(pcm(np.zeros(8_000, np.float32)))
            await session.commit()
            assert (await one_turn(session))[-1].stop_reason == "no_speech"
            await session.end()
            assert [event async for event in session] == []
        async with describer.session(vad=True) as session:
            await session.feed(pcm(SILENCE, speech(3, 1), SILENCE))
            # voice activity was first: both at once are one turn
            first = await session.commit()
            with pytest.raises(NothingToCommit):
                await session.commit()
            await session.end()
            events = [event async for event in session]
        assert sum(isinstance(event, Description) for event in events) == first + 1


@dataclass(frozen=True)
class FailsOnce(Passing):
    """A drafter; `left` holds something until it has failed."""

    left: list

    def draft(self, n):
        if self.left and self.left.pop():
            raise RuntimeError("the drafter fell over")
        return (yield from self.inner.draft(n))


async def test_one_turns_failure_is_its_own(options):
    """A model that fails for one turn: TurnFailed for it, the next turn and the other stream go
    on."""
    models = models_of(mode="edge", **options)
    async with opened(models) as parts:
        fails = Between(parts, drafter_of=partial(FailsOnce, left=[True]))
        async with session_of(fails) as session:
            kinds = []
            for _ in range(2):
                await session.feed(pcm(speech(2, 1)))
                await session.commit()
                kinds.append((await one_turn(session))[-1])
        assert isinstance(kinds[0], TurnFailed)
        assert kinds[0].message == "RuntimeError: the drafter fell over"
        assert isinstance(kinds[1], Description)
        assert set(slots_free(models)) == {4}


async def test_events_that_nobody_reads_end_the_stream_alone(options, monkeypatch):
    from streamer.stages import queues, stream
    from streamer.stages.queues import SlowReader

    monkeypatch.setattr(queues, "MAX_WAIT_S", 0.2)
    monkeypatch.setattr(stream, "MAX_EVENTS", 4)
    async with Describer.open(mode="edge", **options) as describer:

        async def feed_and_never_read():
            async with describer.session() as session:
                await session.feed(pcm(speech(3, 1)))
                await session.commit()
                await anyio.sleep_forever()

        with pytest.raises(SlowReader):
            await feed_and_never_read()
        assert set(free_of(describer)) == {4}


async def test_what_a_user_raises_comes_out_as_it_is(options):
    """Not wrapped in the group of the session's tasks."""
    async with Describer.open(mode="edge", **options) as describer:
        with pytest.raises(KeyError):
            async with describer.session():
                raise KeyError("mine")
        with pytest.raises(NothingToCommit):
            async with describer.session() as session:
                await session.commit()


@pytest.mark.parametrize(
    "wrong",
    [
        {"sample_rate": 16_000.5},
        {"sample_rate": 10},
        {"live_update_s": 0},
        {"live_update_s": -1.0},
        {"live_update_s": float("nan")},
        {"live_update_s": 1e-9},
    ],
)
async def test_options_that_mean_nothing_are_refused(options, wrong):
    async with Describer.open(mode="edge", **options) as describer:
        with pytest.raises(ValueError, match=r"may be|whole Hz"):
            async with describer.session(**wrong):
                pass


def test_turn_detection_that_means_nothing_is_refused():
    for wrong in (
        {"threshold": 5.0},
        {"prefix_padding_ms": -1},
        {"silence_ms": 0},
        {"threshold": float("nan")},
    ):
        with pytest.raises(ValueError, match="may be"):
            TurnDetection(**wrong)


@dataclass(frozen=True)
class HearsTheEndLate(Passing):
    """A turn's target."""

    is_late: anyio.Event
    heard_at: list

    async def finish(self, closed, weights):
        if self.is_late.is_set():
            await anyio.sleep(6.0)
        await self.inner.finish(closed, weights)
        self.heard_at.append(anyio.current_time())


async def test_a_slow_cloud_in_this_process_costs_one_budget(options):
    """Gated goes on unverified; the description does not wait for a cloud that still hears the
    turn's end."""
    is_late, heard_at = anyio.Event(), []
    options |= {"mode": "gated", "threshold": 0.0, "verify_budget_s": 1.0}
    models = models_of(**options)
    async with opened(models) as parts:
        late = partial(HearsTheEndLate, is_late=is_late, heard_at=heard_at)
        for _ in range(2):
            heard_at.clear()
            async with session_of(Between(parts, target_of=late)) as session:
                await session.feed(pcm(recording(3)))
                await session.commit()
                begun = anyio.current_time()
                *_, last = await one_turn(session)
                took = anyio.current_time() - begun
            if is_late.is_set():
                assert not heard_at, "said before the cloud has heard the end"
                assert took < 1.0 + 2.5, "one budget, not one for each block"
                assert last.verified_share == 0
            else:
                assert last.verified_share > 0, "every block asks"
            is_late.set()
        assert slots_free(models) == [4, 4]


async def test_a_session_that_was_left_takes_nothing_more(options):
    async with Describer.open(**options) as describer:
        async with describer.session() as session:
            pass
        with pytest.raises(anyio.ClosedResourceError, match="has ended; open another one"):
            await session.feed(bytes(320))

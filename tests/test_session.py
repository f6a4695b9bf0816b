"""Live sessions on real models: streamed == described, turns, updates, answers, bounds, failures."""

from dataclasses import dataclass
from functools import partial
from operator import attrgetter

import anyio
import numpy as np
import pytest
import soundfile
from processes import until
from speech import SILENCE, Between, Passing, feed_cut, pcm, recording, slots_free, speech, turn_of

import streamer
from bench.arms import models_of, opened
from streamer.stages import events as events_module
from streamer.stages import stream
from streamer.stages import turn as turn_module
from streamer.stages.events import SessionOptions
from streamer.stages.stream import open_stream

told_of = attrgetter("ids", "text", "stop_reason", "n_accepted", "cloud_calls")


@pytest.fixture
def options(tiny_models):
    return tiny_models | {"threshold": 2.0}


RATES = {"edge": (8, 16), "gated": (16, 48), "exact": (8, 24), "cloud": (24, 48)}  # two modes each


@pytest.mark.parametrize("mode", RATES)
async def test_streamed_equals_described(options, tmp_path, mode):
    async with streamer.Describer.open(mode=mode, **options) as describer:
        for rate in (1000 * khz for khz in RATES[mode]):
            file = tmp_path / f"{rate}.wav"
            soundfile.write(file, recording(rate // 8_000), rate, subtype="PCM_16")
            data = soundfile.read(file, dtype="int16")[0].astype("<i2").tobytes()
            wanted = await describer.describe(file)
            async with describer.session(sample_rate=rate) as session:
                for seed in range(2):
                    await feed_cut(session, data, seed)
                    assert await session.commit() == seed
                    events = [event async for event in session]
                    got = events[-1]
                    assert isinstance(got, streamer.Description)
                    assert told_of(got) == told_of(wanted)
                    deltas = [event for event in events if isinstance(event, streamer.TextDelta)]
                    assert "".join(delta.text for delta in deltas) == got.text
                    assert {delta.turn for delta in deltas} <= {seed}
                assert session.num_bytes_fed == 2 * len(data)
        assert set(slots_free(describer._models)) == {4}


async def test_voice_activity_makes_turns(options):
    data = pcm(SILENCE, speech(4, 1), SILENCE, speech(4, 2), SILENCE)
    async with (
        streamer.Describer.open(mode="edge", **options) as describer,
        describer.session(vad=True) as session,
    ):
        await feed_cut(session, data, 1)
        await session.end()
        events = [event async for event in session]
    kinds = [type(event).__name__ for event in events if not isinstance(event, streamer.TextDelta)]
    numbers = {kinds.count(k) for k in ("SpeechStarted", "SpeechStopped", "Description")}
    assert len(numbers) == 1
    assert min(numbers) >= 2
    for turn in range(kinds.count("Description")):
        mine = [event for event in events if getattr(event, "turn", None) == turn]
        wanted = {"SpeechStarted", "SpeechStopped", "TurnCommitted", "TextDelta"}
        assert wanted <= {type(event).__name__ for event in mine}
    firsts = (streamer.SpeechStarted, streamer.SpeechStopped, streamer.Description)
    started, stopped, said = (next(e for e in events if isinstance(e, kind)) for kind in firsts)
    assert said.ttft_from_speech_ms > 500 - 32
    assert stopped.at_ms - stopped.last_speech_ms == 500
    # with its padding, and the silence that ended it
    assert said.audio_s == pytest.approx((stopped.at_ms - started.at_ms) / 1000)


async def one_more_event(session):
    """Where an update is written; in between, the next window cuts one off."""
    num = session.backlog["events"]
    with anyio.move_on_after(1.0):
        while session.backlog["events"] == num:
            await anyio.sleep(0.01)


@pytest.mark.parametrize("mode", ["edge", "exact"])
async def test_live_updates_do_not_change_the_sentence(options, mode):
    """Many updates, fewer on a busy machine, some cut off by the next window."""
    data = pcm(speech(9, 3, crescendo=True))
    async with streamer.Describer.open(mode=mode, **options) as describer:
        found = {}
        for every in (None, 0.5):
            async with describer.session(live_update_s=every) as session:
                for at in range(0, len(data), 6_400):
                    await session.feed(data[at : at + 6_400])
                    if every and at % 19_200 == 0:
                        await one_more_event(session)
                await session.commit()
                found[every] = [event async for event in session]
        assert set(slots_free(describer._models)) == {4}
    assert found[None][-1].ids == found[0.5][-1].ids
    updates = [event for event in found[0.5] if isinstance(event, streamer.LiveUpdate)]
    assert updates
    assert all(update.text and update.ids for update in updates)
    assert [update.heard_s for update in updates] == sorted(update.heard_s for update in updates)
    assert not any(isinstance(event, streamer.LiveUpdate) for event in found[None])


async def test_a_turn_waits_for_a_slot_that_others_keep_but_not_for_ever(options, monkeypatch):
    """An idle session holds one; the turn that gets none fails, the next one is answered."""
    monkeypatch.setattr(turn_module, "SLOT_WAIT_S", 0.2)
    async with (
        streamer.Describer.open(mode="edge", num_slots=1, **options) as describer,
        describer.session() as silent,
        describer.session() as session,
    ):
        await silent.feed(pcm(speech(0.5, 1)))
        await until(lambda: not slots_free(describer._models)[0])
        failed = (await turn_of(session, speech(2, 1)))[-1]
        assert isinstance(failed, streamer.TurnFailed)
        assert "other streams have held every KV slot" in failed.message
        await silent.commit()
        [event async for event in silent]
        assert isinstance((await turn_of(session, speech(2, 1)))[-1], streamer.Description)
        assert set(slots_free(describer._models)) == {1}


async def test_a_turn_is_answered_when_it_is_asked_for(options):
    async with streamer.Describer.open(mode="edge", **options) as describer:
        async with describer.session(answers_itself=False) as session:
            await session.feed(pcm(speech(2, 1)))
            await session.commit()
            for seed in (2, 3, 4):  # what is cleared waits for no answer
                await session.feed(pcm(speech(1, seed)))
                with anyio.fail_after(30):
                    await session.clear()
            await session.feed(pcm(speech(2, 2)))
            await session.commit()  # the first is never asked for
            await session.answer()
            await session.answer()
            await session.end()
            events = [event async for event in session.events()]
        committed = [event for event in events if isinstance(event, streamer.TurnCommitted)]
        assert [event.turn for event in committed] == [0, 4]
        assert {event.turn for event in events if isinstance(event, streamer.TextDelta)} == {4}
        assert sum(isinstance(event, streamer.Description) for event in events) == 1
        assert set(slots_free(describer._models)) == {4}


async def test_nothing_to_commit_and_clear(options):
    async with streamer.Describer.open(mode="edge", **options) as describer:
        async with describer.session() as session:
            with pytest.raises(streamer.NothingToCommit, match="feed some"):
                await session.commit()
            await session.feed(pcm(speech(2, 1)))
            await session.clear()
            with pytest.raises(streamer.NothingToCommit):
                await session.commit()
            await session.feed(b"")
            (*_, silent) = await turn_of(session, np.zeros(8_000, np.float32))
            assert silent.stop_reason == "no_speech"
            await session.end()
            assert [event async for event in session] == []
            late = [partial(session.feed, b"\0\0"), session.commit, session.answer, session.clear]
            for call in late:
                with pytest.raises(anyio.ClosedResourceError, match="has ended; open another one"):
                    await call()
        async with describer.session(vad=True) as session:
            await session.feed(pcm(SILENCE, speech(3, 1), SILENCE))
            # voice activity was first: both at once are one turn
            first = await session.commit()
            with pytest.raises(streamer.NothingToCommit):
                await session.commit()
            await session.end()
            events = [event async for event in session]
        assert sum(isinstance(event, streamer.Description) for event in events) == first + 1


@dataclass(frozen=True)
class FailsOnce(Passing):
    """A drafter; `left` holds something until it has failed."""

    left: list

    def draft(self, n, most=0):
        if self.left and self.left.pop():
            raise RuntimeError("the drafter fell over")
        return (yield from self.inner.draft(n, most))


async def test_one_turns_failure_is_its_own(options):
    models = models_of(mode="edge", **options)
    async with opened(models) as parts:
        fails = Between(parts, drafter_of=partial(FailsOnce, left=[True]))
        async with open_stream(fails, SessionOptions()) as session:
            failed, again = [(await turn_of(session, speech(2, 1)))[-1] for _ in range(2)]
        assert isinstance(failed, streamer.TurnFailed)
        assert failed.message == "RuntimeError: the drafter fell over"
        assert isinstance(again, streamer.Description)
        assert set(slots_free(models)) == {4}


async def test_unread_events_end_their_stream_alone(options, monkeypatch):
    monkeypatch.setattr(events_module, "MAX_WAIT_S", 0.2)
    monkeypatch.setattr(stream, "MAX_EVENTS", 4)
    async with streamer.Describer.open(mode="edge", **options) as describer:

        async def feed_and_never_read():
            async with describer.session() as session:
                await session.feed(pcm(speech(3, 1)))
                await session.commit()
                await anyio.sleep_forever()

        with pytest.raises(streamer.SlowReader):
            await feed_and_never_read()
        assert set(slots_free(describer._models)) == {4}

"""The public API on real files: the same way as live audio, parts of long recordings, concurrency,
cancellation."""

import anyio
import numpy as np
import pytest
import soundfile
from sessions import free_of
from sound_files import wav
from speech import RATE_HZ, recording, speech

from streamer import Describer, Description, TextDelta
from streamer.audio.file import AudioError
from streamer.core.attributes import ATTRIBUTES
from streamer.core.description import JSON_FIELDS


@pytest.fixture
def options(tiny_pair):
    return {"edge": str(tiny_pair[0]), "cloud": str(tiny_pair[1])}


async def test_a_file_is_described_and_deltas_are_its_text(options, samples):
    async with Describer.open(mode="exact", **options) as describer:
        deltas = []
        result = await describer.describe(samples[0], deltas.append)
    assert result.text == "".join(delta.text for delta in deltas)
    assert result.ids == tuple(token for delta in deltas for token in delta.ids)
    assert all(delta.verified for delta in deltas)
    row = result.as_json()
    assert list(row) == list(JSON_FIELDS)
    assert set(row["attributes"]) == set(ATTRIBUTES)
    assert row["n_tokens"] == len(result.ids) > 0
    assert 0 < row["ttft_ms"] <= row["total_ms"]
    assert row["audio_s"] == pytest.approx(len(recording(0)) / RATE_HZ, abs=0.001)


async def test_cancelling_gives_the_slots_back(options, samples):
    async with Describer.open(mode="edge", **options) as describer:
        await describer.load()
        with anyio.CancelScope() as scope:
            await describer.describe(samples[0], lambda delta: scope.cancel())
        assert scope.cancelled_caught
        assert (await describer.describe(samples[1])).n_tokens > 0
        assert free_of(describer) == [4]


async def test_samples_in_memory_are_described_as_the_file_is(options, tmp_path):
    stereo = np.stack([speech(4, 1), speech(4, 2)], axis=1)
    soundfile.write(tmp_path / "stereo.wav", stereo, RATE_HZ, subtype="PCM_16")
    whole, _ = soundfile.read(tmp_path / "stereo.wav", dtype="int16")
    async with Describer.open(mode="edge", **options) as describer:
        wanted = await describer.describe(tmp_path / "stereo.wav")
        for samples in (whole, (whole / 32768).astype(np.float32), whole / 32768):
            found = await describer.describe((samples, RATE_HZ))
            assert (found.ids, found.audio_s, found.file) == (wanted.ids, wanted.audio_s, "samples")
        for bad in (whole[:0], whole.astype(np.int32), [1, 2], whole[None], whole.T):
            with pytest.raises((TypeError, ValueError), match="give"):
                await describer.describe((bad, RATE_HZ))
        with pytest.raises(AudioError, match="samples: its sample rate of 1 Hz"):
            await describer.describe((whole, 1))
        with pytest.raises(TypeError, match="sample_rate"):
            await describer.describe(whole)
        with pytest.raises(TypeError, match="the sample rate is '16000'; give Hz as a number"):
            await describer.describe((whole, "16000"))
        with pytest.raises(TypeError, match="the sample rate is nan; give Hz as a number"):
            await describer.describe((whole, float("nan")))


async def test_unreadable_audio_raises_and_the_next_is_described(options, samples, tmp_path):
    text = tmp_path / "text.wav"
    text.write_text("these are words, not sound")
    bad = wav(tmp_path / "nan.wav", np.full(16_000, np.nan, np.float32), subtype="FLOAT")
    async with Describer.open(mode="edge", **options) as describer:
        for file in (text, bad, tmp_path / "missing.wav", tmp_path):
            with pytest.raises(AudioError) as error:
                await describer.describe(file)
            assert str(error.value).count("\n") == 0
        assert (await describer.describe(samples[0])).n_tokens > 0


def named(result):
    return [name for name, level in result.attributes.items() if level is not None]


async def test_a_profile_and_what_a_recording_and_a_session_ask_for(samples):
    """exact equals cloud in each; attributes that the describer leaves out are refused."""
    texts = {}
    for mode in ("cloud", "exact"):
        async with Describer.open(mode=mode, profile="acoustic") as d:
            assert d.said == ATTRIBUTES[:-1]
            found = [await d.describe(samples[0]), await d.describe(samples[0], attributes="rate")]
            async with d.session(attributes="timbre, pitch") as session:
                await session.feed((recording(0) * 32767).astype("<i2").tobytes())
                await session.commit()
                found += [event async for event in session if isinstance(event, Description)]
            assert list(map(named, found)) == [list(d.said), ["rate"], ["pitch", "timbre"]]
            assert [one.stop_reason for one in found] == ["sentence"] * 3
            texts[mode] = [one.text for one in found]
            with pytest.raises(ValueError, match="'arousal'; it is left out here"):
                await d.describe(samples[0], attributes="arousal")
    assert texts["exact"] == texts["cloud"]


async def test_a_describer_that_is_not_opened_says_how():
    way = "write `async with Describer.open"
    opening = Describer.open(mode="edge")
    with pytest.raises(AttributeError, match=f"has no describe: .*{way}"):
        await opening.describe("clip.wav")
    with pytest.raises(TypeError, match=f"cannot be awaited: .*{way}"):
        await opening
    with pytest.raises(TypeError, match=f"needs `async`: .*{way}"), opening:
        pass


async def test_a_long_recording_is_described_in_parts(options, tmp_path):
    file = wav(
        tmp_path / "long.wav",
        np.concatenate([speech(61, 1), np.zeros(59 * RATE_HZ, np.float32), speech(10, 2)]),
    )
    async with Describer.open(mode="edge", **options) as describer:
        result = await describer.describe(file)
    assert [round(part.audio_s) for part in result.parts] == [60, 60, 10]
    assert result.text == "".join(part.text for part in result.parts)
    assert (
        result.parts[0].n_tokens + result.parts[1].n_tokens + result.parts[2].n_tokens
        == result.n_tokens
    )
    assert result.audio_s == pytest.approx(130, abs=0.01)


async def test_progress_and_where_a_part_begins_are_told(options, tmp_path):
    file, heard, begun = (
        wav(tmp_path / "long.wav", np.concatenate([speech(61, 1), speech(9, 2)])),
        [],
        {},
    )
    async with Describer.open(mode="edge", **options) as describer:
        result = await describer.describe(
            file, lambda d: begun.setdefault(d.from_s, d.text), lambda *at: heard.append(at)
        )
        short = []
        await describer.describe(wav(tmp_path / "short.wav", speech(4, 1)), short.append)
    assert list(begun) == [0.0, result.parts[0].audio_s]
    assert {delta.from_s for delta in short} == {None}
    assert [of_s for _, of_s in heard] == [pytest.approx(70, abs=0.01)] * len(heard)
    steps = np.diff([0.0, *(heard_s for heard_s, _ in heard), 70.0])
    assert len(heard) >= 12
    assert (steps < 7).all()


@pytest.mark.parametrize(("mode", "most"), [("edge", 1), ("gated", 5), ("exact", 9)])
async def test_a_sentence_grows_however_fast_it_is_drafted(options, samples, mode, most):
    """Ids are drafted several at a time, and shown by ids, blocks and verdicts."""
    deltas = []
    async with Describer.open(mode=mode, k=4, **options) as describer:
        result = await describer.describe(samples[0], deltas.append)
        async with describer.session(16_000) as session:
            await session.feed((speech(4, 1) * 32767).astype("<i2").tobytes())
            await session.commit()
            live = [event async for event in session if isinstance(event, TextDelta)]
    assert sum((delta.ids for delta in deltas), ()) == result.ids
    assert max(len(delta.ids) for delta in [*deltas, *live]) <= most
    assert len(deltas) >= len(result.ids) / most
    assert len(live) >= 2


async def test_a_recording_a_little_longer_than_a_turn_has_its_times(options, tmp_path):
    """60.01 s: the last 10 ms once were a part of their own, without speech and so without TTFT."""
    file = wav(tmp_path / "long.wav", np.pad(speech(60, 1), (0, 160)))
    silent_end = wav(tmp_path / "end.wav", np.pad(speech(60, 1), (0, 6 * RATE_HZ)))
    async with Describer.open(mode="edge", **options) as describer:
        for result, seconds in (
            (await describer.describe(file), [58, 2]),
            (await describer.describe(silent_end), [60, 6]),
        ):
            assert [round(part.audio_s) for part in result.parts] == seconds
            assert 0 < result.ttft_ms <= result.total_ms
        assert result.parts[1].stop_reason == "no_speech"
        assert result.stop_reason == result.parts[0].stop_reason


async def test_ttft_is_the_first_text_and_prefill_ends_with_the_first_step(options, samples):
    async with Describer.open(mode="exact", **options) as describer:
        deltas = []
        result = await describer.describe(samples[0], deltas.append)
    with_text = [delta for delta in deltas if delta.text]
    assert result.ttft_ms == with_text[0].at_ms
    assert 0 < result.prefill_ms < result.ttft_ms
    assert result.tokens_per_s == pytest.approx(
        1000 * result.n_tokens / (result.total_ms - result.prefill_ms)
    )

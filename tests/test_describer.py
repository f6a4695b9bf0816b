"""The public API on real files: the same way as live audio, parts of long recordings, concurrency,
cancellation."""

import asyncio

import anyio
import numpy as np
import pytest
import soundfile
from sessions import free_of
from sound_files import wav
from speech import RATE_HZ, recording, speech

from streamer import Describer, Description
from streamer.audio.file import AudioError
from streamer.config import Config, ConfigError
from streamer.core.attributes import ATTRIBUTES
from streamer.model.checkpoint.weights import ModelError

FIELDS = [
    "file",
    "text",
    "stop_reason",
    "mode",
    "n_tokens",
    "n_drafted",
    "n_uploaded",
    "n_accepted",
    "n_corrected",
    "n_wasted",
    "cloud_calls",
    "blocks",
    "verified_share",
    "audio_s",
    "ttft_ms",
    "total_ms",
    "tokens_per_s",
    "attributes",
]


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
    assert set(FIELDS) <= set(row)
    assert set(row["attributes"]) == set(ATTRIBUTES)
    assert row["n_tokens"] == len(result.ids) > 0
    assert 0 < row["ttft_ms"] <= row["total_ms"]
    assert row["audio_s"] == pytest.approx(len(recording(0)) / RATE_HZ, abs=0.001)


async def test_format_rate_and_channels_do_not_change_pcm16(options, tmp_path):
    """The same samples as WAV, FLAC and stereo give the same ids; another rate is heard too."""
    samples = recording(1)
    files = [
        wav(tmp_path / "a.wav", samples, subtype="PCM_16"),
        wav(tmp_path / "a.flac", samples, subtype="PCM_16"),
        wav(tmp_path / "stereo.wav", np.stack([samples, samples], axis=1), subtype="PCM_16"),
    ]
    async with Describer.open(mode="edge", **options) as describer:
        ids = [(await describer.describe(file)).ids for file in files]
        assert ids[0] == ids[1] == ids[2]
        import soxr

        high = wav(tmp_path / "48k.wav", soxr.resample(samples, RATE_HZ, 48_000), 48_000)
        assert (await describer.describe(high)).stop_reason != "no_speech"


async def test_many_at_once_do_not_mix(options, samples):
    async with Describer.open(mode="gated", threshold=1.0, **options) as describer:
        alone = [await describer.describe(file) for file in samples]
        together = {}

        async def describe(file):
            together[file] = await describer.describe(file)

        async with anyio.create_task_group() as group:
            for file in samples:
                group.start_soon(describe, file)
    assert [together[file].ids for file in samples] == [one.ids for one in alone]


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


async def test_a_task_that_asyncio_cancels_leaves_no_thread_at_work(options, tmp_path):
    """As Ctrl-C does, past anyio: when `describe` has ended, nothing of a long recording is heard
    any more."""
    long = wav(tmp_path / "long.wav", np.tile(recording(0), 100))
    async with Describer.open(mode="edge", **options) as describer:
        heard, begun = [], anyio.Event()

        def on_heard(heard_s, of_s):
            heard.append(heard_s)
            begun.set()

        task = asyncio.create_task(describer.describe(long, on_heard=on_heard))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        before = len(heard)
        await anyio.sleep(0.5)
        assert len(heard) == before
        assert (await describer.describe(wav(tmp_path / "short.wav", recording(1)))).stop_reason


async def test_a_failed_and_a_cancelled_describe_leave_a_log_line(
    options, samples, tmp_path, caplog
):
    caplog.set_level("INFO", logger="streamer")
    async with Describer.open(mode="edge", **options) as describer:
        with pytest.raises(AudioError):
            await describer.describe(tmp_path / "missing.wav")
        with anyio.CancelScope() as scope:
            await describer.describe(samples[0], lambda delta: scope.cancel())
    events = [(record.getMessage(), record.stream) for record in caplog.records]
    assert [event for event, _ in events] == [
        "describe.start",
        "describe.failed",
        "describe.start",
        "describe.cancelled",
    ]
    assert events[0][1] == events[1][1] != events[2][1] == events[3][1]
    assert caplog.records[1].numbers == {"error": "AudioError"}


async def test_what_cannot_be_heard_raises_and_the_next_is_described(options, samples, tmp_path):
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
    """exact equals cloud in each; nobody may ask for what the describer leaves out."""
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


async def test_a_model_without_phrases_cannot_be_asked_for_some(options, samples):
    async with Describer.open(mode="edge", attributes="rate", **options) as describer:
        with pytest.raises(ModelError, match="has no phrases of rate"):
            await describer.describe(samples[0])


@pytest.mark.parametrize("was_used", [False, True])
async def test_a_closed_describer_says_so(options, samples, was_used):
    """Also one that loaded nothing before: it would load its models with nobody to end them."""
    async with Describer.open(mode="edge", **options) as describer:
        if was_used:
            await describer.load()
    with pytest.raises(RuntimeError, match=r"^the describer was closed; nothing of it can be used"):
        await describer.describe(samples[0])


async def test_a_describer_that_is_not_opened_says_how():
    way = "write `async with Describer.open"
    opening = Describer.open(mode="edge")
    with pytest.raises(AttributeError, match=f"has no describe: .*{way}"):
        await opening.describe("clip.wav")
    with pytest.raises(TypeError, match=f"cannot be awaited: .*{way}"):
        await opening
    with pytest.raises(TypeError, match=f"needs `async`: .*{way}"), opening:
        pass


def test_rules_are_no_key_of_a_pipeline_file(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text('mode = "edge"\n[rules]\nmin_new_tokens = 3\n')
    with pytest.raises(ConfigError, match=r"own\.toml: rules is no key of a file; give max_new"):
        Config.from_toml(file)

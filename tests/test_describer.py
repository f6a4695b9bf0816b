"""The public API on real files: live audio, parts of long recordings, measures; a session beside
another program: nothing waits, and a turn is the audio between two calls.
"""

import re
import sys
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import numpy as np
import pytest
import soundfile
import soxr
from processes import PATIENCE_S, ended
from speech import RATE_HZ, recording, speech, turn_of, wav

from streamer import (
    BackgroundSession,
    Config,
    Describer,
    Description,
    ModelError,
    SpeechMeasures,
    TextDelta,
    voice_line,
    voice_profile,
)
from streamer.audio.file import AudioError
from streamer.commands.describe import table_of
from streamer.core.attributes import ATTRIBUTES
from streamer.core.decoding.plan import Counts
from streamer.core.description import JSON_FIELDS


@pytest.fixture
async def edge(tiny_models):
    """A describer of the tiny edge alone."""
    async with Describer.open(mode="edge", **tiny_models) as describer:
        yield describer


@pytest.mark.parametrize(("mode", "most"), [("edge", 1), ("gated", 5), ("exact", 9)])
async def test_deltas_are_the_text_and_grow(tiny_models, samples, mode, most):
    """Ids are drafted several at a time, and shown by ids, blocks and verdicts."""
    deltas = []
    async with Describer.open(mode=mode, k=4, **tiny_models) as describer:
        result = await describer.describe(samples[0], deltas.append)
        async with describer.session(16_000) as session:
            live = [e for e in await turn_of(session, speech(4, 1)) if isinstance(e, TextDelta)]
    assert result.text == "".join(delta.text for delta in deltas)
    assert result.ids == tuple(token for delta in deltas for token in delta.ids)
    assert max(len(delta.ids) for delta in [*deltas, *live]) <= most
    assert len(deltas) >= len(result.ids) / most
    assert len(live) >= 2
    assert mode != "exact" or all(delta.verified for delta in deltas)
    row = result.as_json()
    assert list(row) == list(JSON_FIELDS)
    assert set(row["attributes"]) == set(ATTRIBUTES)
    assert row["n_tokens"] == len(result.ids) > 0
    assert row["audio_s"] == pytest.approx(len(recording(0)) / RATE_HZ, abs=0.001)
    assert result.ttft_ms == next(delta.at_ms for delta in deltas if delta.text)
    assert 0 < result.prefill_ms < result.ttft_ms <= result.total_ms
    decode_ms = result.total_ms - result.prefill_ms
    assert result.tokens_per_s == pytest.approx(1000 * result.n_tokens / decode_ms)


async def test_samples_in_memory_are_described_as_the_file_is(edge, tmp_path):
    stereo = np.stack([speech(4, 1), speech(4, 2)], axis=1)
    soundfile.write(tmp_path / "stereo.wav", stereo, RATE_HZ, subtype="PCM_16")
    whole, _ = soundfile.read(tmp_path / "stereo.wav", dtype="int16")
    wanted = await edge.describe(tmp_path / "stereo.wav")
    for samples in (whole, (whole / 32768).astype(np.float32), whole / 32768):
        found = await edge.describe((samples, RATE_HZ))
        assert (found.ids, found.audio_s, found.file) == (wanted.ids, wanted.audio_s, "samples")
    for source, kind, told in (
        ((whole[:0], RATE_HZ), ValueError, "give"),
        (([1, 2], RATE_HZ), TypeError, "give"),
        ((whole.T, RATE_HZ), (TypeError, ValueError), "give"),
        ((whole.astype(np.int32), RATE_HZ), TypeError, "give"),
        ((whole, 1), AudioError, "samples: sample rate 1 Hz is outside"),
        (whole, TypeError, "sample_rate"),
        ((whole, "16000"), TypeError, "the sample rate is '16000'; give Hz as a number"),
        ((whole, float("nan")), TypeError, "the sample rate is nan; give Hz as a number"),
        (wav(tmp_path / "a.wav", np.full(9, np.nan), subtype="FLOAT"), AudioError, "bad audio"),
    ):
        with pytest.raises(kind, match=told):
            await edge.describe(source)
    assert (await edge.describe((whole, RATE_HZ))).ids == wanted.ids


CANCELLED = """
import anyio, os, streamer
async def main():
    async with streamer.Describer.open(mode="edge") as describer:
        await describer.load()
        with anyio.move_on_after(0.2):
            await describer.describe(open(os.pipe()[0], "rb"))
anyio.run(main)
"""


def test_a_program_ends_whose_pipe_stays_silent():
    ended(sys.executable, "-c", CANCELLED, check=True)


async def test_the_attributes_that_a_recording_and_a_session_ask_for(samples):
    """exact equals cloud in each; attributes that the describer leaves out are refused."""
    texts = {}
    for mode in ("cloud", "exact"):
        async with Describer.open(mode=mode, attributes="acoustic") as d:
            assert d.said == ATTRIBUTES[:-1]
            found = [await d.describe(samples[0]), await d.describe(samples[0], attributes="rate")]
            async with d.session(attributes="timbre, pitch") as session:
                found.append((await turn_of(session, recording(0)))[-1])
            named = [[n for n, level in r.attributes.items() if level is not None] for r in found]
            assert named == [list(d.said), ["rate"], ["pitch", "timbre"]]
            assert [one.stop_reason for one in found] == ["sentence"] * 3
            texts[mode] = [one.text for one in found]
            with pytest.raises(ValueError, match="'arousal'; it is left out here"):
                await d.describe(samples[0], attributes="arousal")
    assert texts["exact"] == texts["cloud"]


async def test_a_long_recording_is_described_in_parts(edge, tmp_path):
    """Its progress and where each part begins are reported; sums and measures are of all parts."""
    silence = np.zeros(59 * RATE_HZ, np.float32)
    file = wav(tmp_path / "long.wav", np.concatenate([speech(61, 1), silence, speech(10, 2)]))
    heard, begun, short = [], {}, []
    hears = (lambda d: begun.setdefault(d.from_s, d.text)), (lambda *at: heard.append(at))
    result = await edge.describe(file, *hears, measures=True)
    await edge.describe(wav(tmp_path / "short.wav", speech(4, 1)), short.append)
    parts = result.parts
    assert [round(part.audio_s) for part in parts] == [60, 60, 10]
    assert result.text == "".join(part.text for part in parts)
    assert result.n_tokens == sum(part.n_tokens for part in parts)
    assert result.audio_s == pytest.approx(130, abs=0.01)
    speech_s = sum(part.measures.speech_s for part in parts)
    assert result.measures.speech_s == pytest.approx(speech_s)
    assert begun.keys() <= {0.0, parts[0].audio_s, parts[0].audio_s + parts[1].audio_s}
    assert {delta.from_s for delta in short} == {None}
    assert [of_s for _, of_s in heard] == [pytest.approx(130, abs=0.01)] * len(heard)
    steps = np.diff([0.0, *(heard_s for heard_s, _ in heard), 130.0])
    assert (steps < 7).all()


def test_a_table_has_words_units_errors_dashes_and_warnings():
    measures = SpeechMeasures(5.0, 120.4, 2.0, 6.5, -23.04, 20.0, 0.125, 3, 0.4, -9.0, 8, 9)
    names = {"rate": [{"zh": "很慢", "en": "very slow"}], "pitch": [{"zh": "偏低", "en": "low"}]}
    said = {"text": "x", "attributes": dict.fromkeys(ATTRIBUTES) | {"rate": 0, "pitch": 0}}
    said |= {"confidence": {"rate": 0.95, "pitch": 0.7, "variation": 0.1}, "level_names": names}
    more = {"audio_s": 9.0, "file": "a", "stop_reason": "sentence", "mode": "edge"}
    found = Description(**said, **more, measures=measures, counts=Counts())
    lines = table_of(found).splitlines()
    for row, pattern in (
        (0, r"  语速  很慢  5\.0 ±0\.\d 音节/秒 +确定"),
        (1, r"  音高  偏低  120 ±\d 赫兹 +很可能"),
        (2, r"  语调  -     2\.0 ±0\.\d 半音 +不确定"),
        (4, r"  停顿  -     12 ±\d % 的时间"),
        (6, r"  情绪  -     -"),
        (7, r"  9.0 秒中说话 8.0 秒，3 次停顿，最长 0.4 秒，音高跨度.*"),
    ):
        assert re.fullmatch(pattern, lines[row])
    english = table_of(replace(found, language="en", measures=replace(measures, pause_count=1)))
    assert re.search(r"  rate       very slow  5\.0 ±0\.\d syllables/s +sure\n", english)
    assert ", 1 pause, the longest" in english
    empty = table_of(replace(found, measures=SpeechMeasures(), confidence=None))
    assert "  语速  很慢  -\n" in empty
    assert "  ! 只说了 0.0 秒" in empty


EDGE = Config.of(None, {"mode": "edge"})
FRAME = 320  # samples: 20 ms


@pytest.fixture(scope="module")
def spoken():
    return (recording(0) * 32_768).astype(np.int16)


@asynccontextmanager
async def running(voice=None):
    voice = voice or BackgroundSession(EDGE)
    async with anyio.create_task_group() as group:
        group.start_soon(voice.run)
        yield voice
        group.cancel_scope.cancel()


def say(voice, samples):
    return [
        voice.feed(samples[at : at + FRAME].tobytes(), 16_000)
        for at in range(0, len(samples), FRAME)
    ]


async def test_turn_is_that_of_a_session(spoken):
    """Two turns; silence of a minute between them belongs to neither."""
    async with Describer.open(EDGE) as describer:
        whole = await describer.describe((spoken, 16_000), measures=True)
    async with running() as voice:
        for _ in range(2):
            assert all(say(voice, np.zeros(960_000, np.int16)))
            assert await voice.end() is None
            assert voice.begin()
            assert all(say(voice, spoken))
            found = await voice.end()
            assert found.attributes == whole.attributes
            assert found.audio_s == pytest.approx(whole.audio_s + 1.5, abs=0.05)
            assert voice_line(found).startswith("The user speaks")
            assert voice_line(found, "zh").endswith(f"；情绪{found.levels['arousal']['zh']}。")
            assert set(voice_profile(found)) == set(whole.attributes)
            voice.begin()
            with anyio.fail_after(PATIENCE_S):
                assert await voice.end() is None  # no frame came
        with pytest.raises(ValueError, match="language is 'fr'; voice_line speaks en and zh"):
            voice_line(found, "fr")
        assert await voice.end() is None


async def test_frames_of_another_rate_are_converted(spoken):
    """To the rate of the first one, within a turn too, as where a telephone joins."""
    half = len(spoken) // 2
    async with running() as voice:
        found = []
        for later in (16_000, 8_000, 24_000):
            assert voice.begin()
            assert all(say(voice, spoken[:half]))
            rest = soxr.resample(spoken[half:], 16_000, later)
            for at in range(0, len(rest), later // 50):
                assert voice.feed(rest[at : at + later // 50].tobytes(), later)
            found.append(await voice.end())
    for other in found[1:]:
        assert other.audio_s == pytest.approx(found[0].audio_s, abs=0.05)
        assert other.attributes == found[0].attributes


async def test_frames_beyond_the_bound_are_left_out(spoken):
    """Nobody takes them before `run`. Where turns begin and end is kept."""
    voice = BackgroundSession(EDGE)
    assert voice.begin()
    assert say(voice, np.zeros(1_000 * FRAME, np.int16)) == [True] * 999 + [False]
    async with running(voice):
        found = await voice.end()
        assert found.audio_s == pytest.approx(999 * FRAME / 16_000)
        assert "0.0 s of audio were left out: feed frames no faster" in found.warning
        assert voice.begin()
        assert all(say(voice, spoken))
        assert (await voice.end()).warning is None  # of this turn nothing was


@pytest.mark.parametrize(
    ("frame", "rate", "says"),
    [
        (b"abc", 16_000, "3 bytes are no PCM16"),
        (bytes(2), 0, "sample_rate_hz is 0"),
        (bytes(2), 16_000.0, "give whole Hz"),
        ("abc", 16_000, "bytes-like"),
    ],
)
async def test_what_is_no_frame_is_refused_at_once(frame, rate, says):
    with pytest.raises((TypeError, ValueError), match=says):
        BackgroundSession(EDGE).feed(frame, rate)


def test_a_frame_may_be_an_array(spoken):
    voice = BackgroundSession(EDGE)
    for samples in (spoken[:161], spoken[:320:2], memoryview(spoken[:160])):
        assert voice.feed(samples, 16_000)
        voice.begin()


async def test_model_that_is_not_there_ends_waiting_calls(tmp_path):
    voice = BackgroundSession(Config.of(None, {"mode": "edge", "edge": str(tmp_path)}))
    voice.feed(bytes(640), 16_000)
    async with anyio.create_task_group() as group:
        group.start_soon(voice.end)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ModelError):
            await voice.run()
    assert await voice.end() is None

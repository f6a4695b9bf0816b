"""The public API on real files: live audio, parts of long recordings, measures."""

import re
from dataclasses import replace

import numpy as np
import pytest
import soundfile
from sessions import turn_of
from speech import RATE_HZ, recording, speech, wav

from streamer import Describer, Description, SpeechMeasures, TextDelta
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
async def test_deltas_are_the_text_and_grow_however_fast_it_is_drafted(
    tiny_models, samples, mode, most
):
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
        *(
            ((bad, RATE_HZ), (TypeError, ValueError), "give")
            for bad in (whole[:0], [1, 2], whole.T)
        ),
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
    result = await edge.describe(
        file,
        lambda d: begun.setdefault(d.from_s, d.text),
        lambda *at: heard.append(at),
        measures=True,
    )
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

"""The words follow the measures in each mode and door; how sure each level is; low and high for one
voice; sentences in Chinese and in English, by a tiny random pair that speaks both.
"""

import json
import warnings

import anyio
import numpy as np
import pytest
import soundfile
import soxr
import tiny
from far import verifying
from places import ROOT, SAMPLES
from processes import run_here
from processes import streamer as command
from speech import RATE_HZ, recording, speech, turn_of, whispered

import streamer
from pipelines.embedded.export import card
from streamer import Describer, LiveUpdate
from streamer.assembly import PromiseWarning
from streamer.audio.file import chunks_of, open_audio
from streamer.core.attributes import ATTRIBUTES, SaidToken, fused_confidence, parse
from streamer.core.measures.levels import level_chances, levels_of, opinion_of
from streamer.core.text.vocabulary import Emitter
from streamer.model.checkpoint.card import read_card
from streamer.model.listener import hear_parts
from streamer.model.scheduler import drive
from streamer.model.thinker import load

FAST, SLOW = (str(ROOT / "samples" / f"{name}.wav") for name in ("fast_loud", "slow_soft"))


async def described(file, measures=True, **options):
    async with Describer.open(**options) as describer:
        return await describer.describe(file, measures=measures)


async def test_measures_that_are_sure_decide_in_each_mode():
    """The models miss the short pause of this recording."""
    free = await described(SLOW, mode="exact", words="models")
    texts = {}
    for mode in ("edge", "gated", "exact", "cloud"):
        found = await described(SLOW, mode=mode)
        unshown = await described(SLOW, mode=mode, measures=False)
        assert (unshown.text, unshown.measures) == (found.text, None)
        assert unshown.confidence == found.confidence
        levels = {n: level for n, level in levels_of(found.measures).items() if n != "arousal"}
        assert levels.items() <= found.attributes.items()
        assert all(0.5 < sure < 1 for sure in found.confidence.values())
        texts[mode] = found.text
    assert free.attributes["pauses"] < levels["pauses"]
    assert texts["exact"] == texts["cloud"] != free.text


async def pauses_so_far(**options):
    """The level that a live update near the end of the recording says."""
    samples, rate = soundfile.read(SLOW, dtype="int16")
    due = 95 * len(samples) // 100
    async with (
        Describer.open(mode="edge", **options) as describer,
        describer.session(rate, live_update_s=due / rate) as session,
    ):
        # pieces of 100 ms are heard; more audio at once could cancel the update
        await session.feed(samples[: due + rate // 10 - 1].tobytes())
        updates = (event async for event in session.events() if isinstance(event, LiveUpdate))
        return parse((await anext(updates)).text, describer.attributes)["pauses"]


async def test_live_updates_are_held_to_the_measures_too():
    levels = levels_of((await described(SLOW, mode="edge")).measures)
    assert await pauses_so_far() == levels["pauses"]
    assert await pauses_so_far(words="models") < levels["pauses"]


async def test_every_door_says_the_same_levels(tmp_path):
    """For the socket, see tests/net/realtime/test_server.py."""
    async with Describer.open(mode="exact") as describer:
        plain = await describer.describe(FAST)
        shown = await describer.describe(FAST, measures=True)
        some = await describer.describe(FAST, attributes="rate,loudness")
        mild = await describer.describe(FAST, attributes="acoustic")
        samples, rate = soundfile.read(FAST, dtype="int16")
        async with describer.session(rate) as session:
            for piece in np.array_split(samples, 37):
                await session.feed(piece.tobytes())
            await session.commit()
            *_, live = [event async for event in session]
    assert shown.text == plain.text == live.text
    for found in (some, mild):
        named = {name: level for name, level in found.attributes.items() if level is not None}
        assert named.items() <= plain.attributes.items()
    curves, table = tmp_path / "s.json", tmp_path / "labels.jsonl"
    asked = ("--mode", "exact", "--json", "--timeline", curves)
    status, out, errors = command("describe", FAST, *asked)
    assert status == 0, errors
    assert json.loads(out)["attributes"] == plain.attributes
    assert json.loads(out)["levels"] == plain.levels
    names = plain.level_names["rate"][plain.attributes["rate"]]
    assert plain.levels["rate"] == {"level": plain.attributes["rate"], **names}
    (turn,) = json.loads(curves.read_text("utf-8"))["turns"]
    assert turn["attributes"] == plain.attributes
    assert command("label", FAST, "--mode", "exact", "--out", table)[0] == 0
    row = json.loads(table.read_text("utf-8"))
    assert {name: row[f"{name}_level"] for name in plain.attributes} == plain.attributes


async def test_a_whisper_has_no_pitch_to_speak_of():
    whisper = whispered(recording(2)), RATE_HZ
    async with Describer.open(mode="exact") as describer:
        found = await describer.describe(whisper, measures=True)
        alone = await describer.describe(whisper, attributes="pitch")
    assert found.measures.pitch_median_hz is found.measures.pitch_sd_semitones is None
    assert "whispered" in found.measures.warnings[0]
    unsaid = {name for name, level in found.attributes.items() if level is None}
    assert unsaid == {"pitch", "variation"}
    assert found.text.endswith("。")
    assert alone.attributes["pitch"] is not None
    with verifying() as (url, _):
        async with Describer.open(mode="exact", cloud=url) as describer:
            assert (await describer.describe(whisper)).ids == found.ids


async def test_voice_activity_alone_judges_whether_somebody_speaks():
    """However soft they speak, they are described; and a turn without speech has no measures."""
    voice = recording(2)
    noise = np.random.default_rng(0).standard_normal(len(voice)).astype(np.float32)
    async with Describer.open(mode="exact") as describer:
        for words in (voice, whispered(voice)):
            for dbfs in (-23, -50, -60):
                soft = words * np.float32(10 ** (dbfs / 20) / words.std())
                found = await describer.describe((soft, RATE_HZ), measures=True)
                is_heard = found.measures.speech_s > 0
                assert is_heard is (found.stop_reason != "no_speech") is (found.text != "")
                assert is_heard or dbfs < -50
                assert found.attributes["rate"] is not None or not is_heard
        for dbfs in (-20, -60):
            found = await describer.describe((noise * 10 ** (dbfs / 20), RATE_HZ), measures=True)
            assert (found.stop_reason, found.text) == ("no_speech", "")
            assert found.measures.rate_syllables_per_s is None
            assert found.measures.speech_s == 0


async def test_a_recording_too_soft_to_be_heard_is_told():
    """Not silence, nor soft parts of a loud recording."""
    voice = recording(1)
    async with Describer.open(mode="edge") as describer:
        for dbfs in (-3, -42, -60, -75):
            soft = voice * np.float32(10 ** (dbfs / 20) / np.abs(voice).max())
            soft[:3] = 0.5  # a click
            found = await describer.describe((soft, RATE_HZ))
            told = "very quiet: hardly a sample is over -35 dBFS, so speech may be missed"
            assert (told in str(found.warning)) is (dbfs < -35)
            assert found.text or dbfs <= -60
        for dbfs, noise in ((-20, True), (-50, True), (0, False)):
            samples = np.random.default_rng(0).uniform(-1, 1, 3 * RATE_HZ).astype(np.float32)
            found = await describer.describe((samples * noise * 10 ** (dbfs / 20), RATE_HZ))
            assert (found.text, found.warning is not None) == ("", dbfs == -50)
        long = np.concatenate([voice] * 16 + [1e-3 * np.tile(samples, 25)]).astype(np.float32)
        found = await describer.describe((long, RATE_HZ))
        assert (len(found.parts) > 1, found.parts[-1].text, found.warning) == (True, "", None)


def by_hand(file, ids, role, measures):
    """From all logits of the sentence, fed at once, and NumPy's softmax."""
    thinker = load("embedded", role)
    with open_audio(str(file)) as audio:
        for (listener,), _ in hear_parts([thinker], chunks_of(audio)):
            listener.sequence.extend(ids)
            logits = drive(thinker.engine, listener.feed(len(ids) + 1))[:-1].astype(np.float64)
    probable = np.exp(logits - logits.max(1, keepdims=True))
    probable /= probable.sum(1, keepdims=True)
    emitter = Emitter(thinker.vocabulary)
    pieces = [
        SaidToken(emitter.push((token,)), float(np.log(p[token])))
        for token, p in zip(ids, probable, strict=True)
    ]
    chances = level_chances(measures)
    return fused_confidence(pieces, thinker.card.attributes, chances, opinion_of(measures), True)


@pytest.mark.parametrize(("mode", "near"), [("edge", 1e-5), ("cloud", 2e-3)])
async def test_it_is_the_softmax_of_the_model_that_spoke(mode, near, samples):
    """The kernels against all logits at once; the cloud's are float16."""
    found = await described(samples[0], mode=mode)
    assert list(found.confidence) == list(ATTRIBUTES)
    wanted = by_hand(samples[0], found.ids, mode, found.measures)
    assert found.confidence == pytest.approx(wanted, abs=near)
    assert all(0 < sure < 1 for sure in found.confidence.values())


async def test_exact_is_as_sure_as_the_cloud_near_and_far(samples):
    file = samples[0]
    alone = await described(file, mode="cloud")
    assert (await described(file, mode="exact")).confidence == alone.confidence
    with verifying() as (url, _):
        for mode in ("exact", "cloud"):
            assert (await described(file, mode=mode, cloud=url)).confidence == alone.confidence


async def test_gated_takes_each_level_from_who_said_it_last(samples):
    file = samples[0]
    own = await described(file, mode="edge")
    found = await described(file, mode="gated", threshold=100.0)  # nothing is asked about
    assert (found.verified_share, found.cloud_calls) == (0.0, 0)
    assert (found.ids, found.confidence) == (own.ids, own.confidence)
    found = await described(file, mode="gated", threshold=0.0)  # all is
    cloud = await described(file, mode="cloud")
    assert found.verified_share == 1.0
    assert (found.ids, found.confidence) == (cloud.ids, cloud.confidence)


async def test_the_words_of_the_models_alone_have_none(samples, tiny_pair):
    for options in ({"words": "models"}, {"edge": str(tiny_pair[0])}):
        found = await described(samples[0], mode="edge", **options)
        assert found.confidence is None
        assert found.as_json()["confidence"] is None


CARD = card("tiny")
SOURCE = (speech(4, 3), RATE_HZ)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Keywords of a describer."""
    edge, cloud = tiny.save_bilingual(tmp_path_factory.mktemp("bilingual"))
    return {"edge": edge, "cloud": cloud}


async def test_a_session_has_a_language_of_its_own(pair):
    """Streamed as a whole recording; live updates speak it, too. Two at once on one pair."""
    pcm, found = (speech(6, 5) * 32767).astype("<i2"), {}

    async def keep(d, language):
        async with d.session(RATE_HZ, language=language, live_update_s=2) as session:
            for at in range(0, len(pcm), 10_000):
                await session.feed(pcm[at : at + 10_000].tobytes())
            await session.commit()
            events = [event async for event in session]
        for event in events:
            if text := getattr(event, "text", ""):
                assert text.isascii() == (language == "en"), text
        found[language] = events[-1]

    async with Describer.open(mode="exact", **pair) as d:
        async with anyio.create_task_group() as group:
            for language in ("zh", "en"):
                group.start_soon(keep, d, language)
        for language, one in found.items():
            whole = await d.describe((pcm, RATE_HZ), language=language)
            assert (one.text, one.language) == (whole.text, language)
        with pytest.raises(ValueError, match="language is 'de'; these models speak zh and en"):
            await d.describe(SOURCE, language="de")


async def test_a_promise_holds_for_its_language(pair, tmp_path):
    """The thresholds serve both languages; the promise is claimed for the one of its card."""
    promise = {"risk": 0.1, "confidence": 0, "signal": "entropy", "num_clips": 9}
    promise |= {"date": "2026-11-26", "cloud": "tiny"}
    gate = {"fluent": {"entropy": 0.5, "promise": promise}}
    tiny.save_tiny(tmp_path / "edge", 1, card={**CARD, "gate": gate})
    assert read_card(tmp_path / "edge").speaking("en").presets["fluent"].threshold == 0.5
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", PromiseWarning)
        async with Describer.open(edge=str(tmp_path / "edge"), cloud=pair["cloud"]) as d:
            await d.load()
            assert not told
            await d.describe(SOURCE, language="en")
    assert [str(each.message) for each in told] == [
        "the gate's promise was not made for sentences in en; "
        "leave that out, or take mode exact to be sure"
    ]


@pytest.fixture(scope="module")
def usual():
    """(samples [n], their pitch in Hz)."""
    samples = recording(2)  # the plain one
    return samples, streamer.measure_intervals((samples, RATE_HZ), [(0, 60)])[0].pitch_median_hz


@pytest.fixture(scope="module")
def higher(usual):
    """The same speech, 2.4 semitones higher."""
    return soxr.resample(usual[0], RATE_HZ, RATE_HZ / 1.15)


def test_a_reference_in_hz_changes_no_word(usual):
    samples, hz = usual
    plain = streamer.describe((samples, RATE_HZ), mode="edge")
    found = streamer.describe((samples, RATE_HZ), mode="edge", pitch_reference=hz / 1.25)
    assert plain.voice_pitch is None
    assert found.text == plain.text
    above = 12 * np.log2(found.measures.pitch_median_hz / (hz / 1.25))
    assert found.voice_pitch.semitones == pytest.approx(above, abs=1e-6)
    assert above == pytest.approx(12 * np.log2(1.25), abs=0.1)  # its frames lie elsewhere
    assert found.voice_pitch.level == 4
    assert found.as_json()["voice_pitch"]["name"] == "very high for this voice"
    assert plain.as_json()["voice_pitch"] is None


def test_auto_is_the_median_of_a_recording_s_turns(usual, higher):
    samples = np.concatenate([np.resize(usual[0], 60 * RATE_HZ), np.resize(higher, 10 * RATE_HZ)])
    found = streamer.describe((samples, RATE_HZ), mode="edge", pitch_reference="auto")
    first, last = (part.voice_pitch for part in found.parts)
    assert (first.level, last.level) == (2, 3)
    assert last.reference == "turns"
    assert last.reference_hz == pytest.approx(usual[1], rel=0.02)
    single = streamer.describe((usual[0], RATE_HZ), mode="edge", pitch_reference="auto")
    assert single.voice_pitch is None


async def test_a_session_learns_the_voice_from_its_turns_or_its_coach(usual, higher):
    samples, hz = usual
    known = streamer.Baseline(4.8, hz * 1.3, 2.5, -21, 0.1, 30, -27, 1.75, 0.25, 0.2, -0.1, 0.22)
    async with Describer.open(mode="edge") as d:
        async with d.session(RATE_HZ, measures=True, pitch_reference="auto") as session:
            turns = [(await turn_of(session, each))[-1] for each in (samples, samples, higher)]
        coach = streamer.Coach(baseline=known)
        options = {"measures": True, "pitch_reference": "auto", "coach": coach}
        async with d.session(RATE_HZ, **options) as session:
            coached = (await turn_of(session, samples))[-1].voice_pitch
        with pytest.raises(ValueError, match="needs measures"):
            async with d.session(RATE_HZ, pitch_reference=180.0):
                pass
    first, second, third = (each.voice_pitch for each in turns)
    assert first is None
    assert (second.level, third.level) == (2, 3)
    assert (coached.reference, coached.level) == ("baseline", 0)


def test_the_command_tells_it_beside_the_sentence():
    def told(*words):
        return run_here("describe", SAMPLES[0], "--mode", "edge", "--language", "en", *words)

    _, line = told("--pitch-reference", "auto")[1].splitlines()
    assert line.strip().startswith("pitch for this voice unknown: no pitch is heard, or auto")
    assert "pitch very high for this voice: +" in told("--pitch-reference", "100")[1]
    assert "pitch compared with all voices" in told("--measures")[1]
    for wrong in ("high", "5", "nan"):
        status, _, err = told("--pitch-reference", wrong)
        assert (status, err.count("\n"), "30 to 1000 Hz, or auto" in err) == (2, 1, True)

"""Training data: voices apart, labels of known signals, recordings of people, syllables."""

import random
import shutil

import numpy as np
import pytest
from people import SENTENCES, clone_into

from pipelines.embedded.labels import measured
from pipelines.embedded.recordings import clips, decoded, held_out
from pipelines.embedded.speak import SAMPLE_RATE, Voice, voices
from pipelines.embedded.syllables import count
from pipelines.embedded.synthesis import session

pytestmark = pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs espeak-ng")
VOICE = Voice("espeak", "cmn", "m3")


def tone(f0, seconds=2.0, gain=0.1, pauses=()):
    """A voiced sound of harmonics; `pauses` in seconds (from, to) are silent."""
    t = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    sound = sum(np.sin(2 * np.pi * f0 * k * t) / k for k in range(1, 20)) * gain
    for start, end in pauses:
        sound[int(start * SAMPLE_RATE) : int(end * SAMPLE_RATE)] = 0
    return sound.astype(np.float32)


def test_training_never_hears_a_held_out_voice():
    train, held = ({(v.engine, v.variant) for v in voices(side)} for side in (False, True))
    assert train.isdisjoint(held)
    assert {engine for engine, _ in held} == {"espeak", "flite"}


def test_synthesis_repeats_for_a_seed():
    first, again = (session(VOICE, random.Random(3), num_phrases=2) for _ in range(2))
    np.testing.assert_array_equal(first[0], again[0])
    assert first[1] == again[1]
    assert not np.array_equal(first[0], session(VOICE, random.Random(4), num_phrases=2)[0])


@pytest.mark.parametrize("f0", [90, 140, 220, 300])
def test_pitch_is_that_of_the_tone(f0):
    assert measured(tone(f0), 10).pitch == pytest.approx(f0, rel=0.02)


def test_loudness_pauses_and_rate_are_what_was_made():
    quiet, loud = (measured(tone(150, gain=gain), 10) for gain in (0.02, 0.2))
    assert loud.loudness - quiet.loudness == pytest.approx(20.0, abs=0.1)
    rms_db = 10 * np.log10(np.mean(tone(150, gain=0.2) ** 2))
    assert loud.loudness == pytest.approx(rms_db, abs=0.5)
    paused = measured(tone(150, 4.0, pauses=((1.0, 1.5), (2.0, 2.5))), syllables=15)
    assert paused.pauses == pytest.approx(0.25, abs=0.03)
    assert paused.rate == pytest.approx(5.0, rel=0.05), "syllables over speech, pauses left out"
    assert measured(tone(150, 4.0, pauses=((1.0, 1.1),)), 10).pauses == 0.0, (
        "100 ms is a stop consonant"
    )


def test_silence_has_no_labels():
    with pytest.raises(ValueError, match="no voiced speech"):
        measured(np.random.default_rng(0).normal(0, 0.01, 32_000).astype(np.float32), 10)


@pytest.fixture(scope="module")
def cloned(tmp_path_factory):
    return clone_into(tmp_path_factory.mktemp("clones"))


def test_clips_come_from_the_commit_with_their_facts(cloned):
    clones, source = cloned
    found = clips(clones, source)
    assert len(found) == 24
    assert {clip.speaker for clip in found} == {f"person{i}" for i in range(8)}
    first = next(clip for clip in found if clip.path.endswith("/1_0.mp3"))
    assert (first.said.text, first.said.sex, first.said.language) == (SENTENCES[0], "f", "zh-CN")
    usable = list(decoded(found))
    assert len(usable) == 22, "the pointer and the one that is too soft are left out"
    assert all(samples.dtype == np.float32 and len(samples) > SAMPLE_RATE for _, samples in usable)


def test_speakers_are_on_one_side_each(cloned):
    clones, source = cloned
    sides = {}
    for clip in clips(clones, source):
        assert sides.setdefault(clip.speaker, clip.held) == clip.held
    people = [f"person{i}" for i in range(2000)]
    share = np.mean([held_out(who, source) for who in people])
    assert share == pytest.approx(1 / 7, abs=0.03)
    assert held_out("anyone", {**source, "side": "held"})
    assert not held_out("anyone", {**source, "side": "train"})


@pytest.mark.parametrize(
    ("text", "language", "syllables"),
    [
        ("今天天气很好。", "zh-CN", 6),
        ("一会儿去那儿找儿子", "zh-CN", 7),
        ("這是什麼？", "zh-TW", 4),
        ("我有3个", "zh-CN", None),
        ("A little water.", "en", 5),
        ("WE CALL IT BEAR", "en", 4),
        ("Guten Morgen, Frau Müller", "de", 7),
        ("buenos días", "es", 4),
        ("мама мыла раму", "ru", 6),
        ("سلام", "fa", None),
        ("", "en", None),
    ],
)
def test_syllables_are_counted_where_they_can_be(text, language, syllables):
    assert count(text, language) == syllables

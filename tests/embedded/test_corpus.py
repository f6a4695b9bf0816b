"""Training data: voices apart, labels of known signals, recordings of people, syllables."""

import numpy as np
import pytest
from people import SENTENCES, clone_into

from pipelines.embedded.labels import measured
from pipelines.embedded.phones import NUM_NUCLEI, phones
from pipelines.embedded.recordings import clips, decoded, held_out
from pipelines.embedded.speak import SAMPLE_RATE, voices
from pipelines.embedded.syllables import count


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


def test_pitch_loudness_pauses_and_rate_are_what_was_made():
    assert measured(tone(220), 10).pitch == pytest.approx(220, rel=0.02)
    quiet, loud = (measured(tone(150, gain=gain), 10) for gain in (0.02, 0.2))
    assert loud.loudness - quiet.loudness == pytest.approx(20.0, abs=0.1)
    paused = measured(tone(150, 4.0, pauses=((1.0, 1.5), (2.0, 2.5))), syllables=15)
    assert paused.pauses == pytest.approx(0.25, abs=0.03)
    assert paused.rate == pytest.approx(5.0, rel=0.05), "syllables over speech, pauses left out"
    with pytest.raises(ValueError, match="no voiced speech"):
        measured(np.random.default_rng(0).normal(0, 0.01, 32_000).astype(np.float32), 10)


@pytest.fixture(scope="module")
def cloned(tmp_path_factory):
    return clone_into(tmp_path_factory.mktemp("clones"))


def test_clips_come_from_the_commit_with_their_facts_and_a_speaker_is_on_one_side(cloned):
    clones, source = cloned
    found = clips(clones, source)
    assert len(found) == 24
    assert {clip.speaker for clip in found} == {f"person{i}" for i in range(8)}
    first = next(clip for clip in found if clip.path.endswith("/1_0.mp3"))
    assert (first.said.text, first.said.sex, first.said.language) == (SENTENCES[0], "f", "zh-CN")
    usable = list(decoded(found))
    assert len(usable) == 22, "the pointer and the one that is too soft are left out"
    assert all(samples.dtype == np.float32 and len(samples) > SAMPLE_RATE for _, samples in usable)

    sides = {}
    for clip in found:
        assert sides.setdefault(clip.speaker, clip.held) == clip.held
    share = np.mean([held_out(f"person{i}", source) for i in range(2000)])
    assert share == pytest.approx(1 / 7, abs=0.03)


@pytest.mark.parametrize(
    ("text", "language", "syllables"),
    [
        ("一会儿去那儿找儿子", "zh-CN", 7),
        ("快点，比赛马上就要开始了", "zh-CN", 11),
        ("這是什麼？", "zh-TW", 4),
        ("我有3个", "zh-CN", None),
        ("A little water.", "en", 5),
        ("The little boy could not hear every bottle of water.", "en", 14),
        ("Guten Morgen, Frau Müller", "de", 7),
        ("Wir haben keine neue Idee.", "de", 9),
        ("buenos días", "es", 4),
        ("Я считаю", "ru", 4),
        ("Võimalus kaitseb head meest.", "et", 7),
        ("Dažniausiai reikia vaiko.", "lt", 7),
        ("Una storia di noi, ma che paura!", "it", 11),
        ("Có khi nào nó theo thật", "vi", 6),
        ("muli mutya ssebo", "lg", 6),
        ("سلام", "fa", None),
        ("", "en", None),
    ],
)
def test_syllables_are_counted_where_they_can_be_and_each_has_its_nucleus(
    text, language, syllables
):
    assert count(text, language) == syllables
    if syllables and "儿" not in text:  # such texts have no phones
        found = phones(text, language)
        assert sum(index <= NUM_NUCLEI for index in found) == syllables
        assert 0 not in found

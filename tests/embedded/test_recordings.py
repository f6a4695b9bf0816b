"""People's recordings: taken from a clone by commit, filtered, split by speaker, and told
in one line if missing; syllables of a text."""

import shutil

import numpy as np
import pytest
from people import FILTERS, SENTENCES

from pipelines.embedded.recordings import clips, decoded, held_out
from pipelines.embedded.speak import SAMPLE_RATE
from pipelines.embedded.syllables import count

pytestmark = pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs espeak-ng")


def test_clips_come_from_the_commit_with_their_facts(cloned):
    clones, source = cloned
    found = clips(clones, source)
    assert len(found) == 24
    assert {clip.speaker for clip in found} == {f"person{i}" for i in range(8)}
    first = next(clip for clip in found if clip.path.endswith("/1_0.mp3"))
    assert (first.said.text, first.said.sex, first.said.language) == (SENTENCES[0], "f", "zh-CN")
    usable = list(decoded(found, FILTERS))
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

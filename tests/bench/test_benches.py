"""The benches: their tables of people count by hand, and every one says what it is."""

import dataclasses
import importlib
import json
import math
import sys

import numpy as np
import pytest
import soundfile
import speech
import torch
from places import ROOT
from scipy.signal import correlate
from speech import SAMPLES

from bench.people import (
    against,
    attribute,
    gap_rows,
    language_rows,
    noise_rows,
    speaker,
    table_rows,
)
from bench.people_changes import CHANGES, Heard
from bench.people_clips import Clip, recordings, truth
from bench.sentence_quality import Quality, measure, num_repeats
from bench.vs_transformers import BASES, MODES, make_arms
from pipelines.embedded.labels import Measures
from streamer.core.text.vocabulary import Vocabulary

RATE_HZ = 16_000
MIDDLE = Measures(4.9, 140.0, 1.8, -25.0, 0.1, -9.0, 0.0)


def clip(index=0, **changed):
    given = {"name": f"{index}.wav", "speaker": "a", "source": "s", "language": "en", "sex": "f", "syllables": 20,
             "samples": speech.recording(index), "measures": MIDDLE, "length": "3 to 6 s"}  # fmt: skip
    return Clip(**{**given, **changed})


def manifest(folder, *rows):
    (folder / "manifest.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")


@pytest.fixture(scope="module")
def say():
    """Real descriptions by the shipped edge."""
    return speaker(edge="embedded", cloud="embedded")


@pytest.fixture(scope="module")
def described(say):
    return say("edge", [speech.recording(i) for i in range(4)], "")


def saying(description, **levels):
    return dataclasses.replace(description, attributes={**description.attributes, **levels})


def test_recordings_come_with_their_own_truth(tmp_path):
    for i in range(2):
        soundfile.write(tmp_path / f"{i}.wav", speech.recording(i), RATE_HZ, subtype="FLOAT")
    soundfile.write(tmp_path / "quiet.wav", np.zeros(RATE_HZ, np.float32), RATE_HZ)
    known = {"file": "0.wav", "speaker": "x", "language": "zh", "syllables": 20}
    manifest(tmp_path, known, {"wav": "1.wav", "kind": "joined-10"}, {"file": "quiet.wav"})
    first, second = recordings(tmp_path, None)
    assert first.measures == truth(speech.recording(0), 20)
    assert first.levels == first.measures.levels()
    assert (first.speaker, first.language, first.source) == ("x", "zh", "unknown")
    assert not first.is_joined
    assert second.length == "10 s, joined"
    assert set(first.levels) - set(second.levels) == {"rate", "arousal"}, "its text is unknown"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, r"manifest\.jsonl is not there"),
        ("nonsense\n", "line 1: no JSON object"),
        ('{"speaker": "a"}\n', "line 1: no JSON object"),
        ("[1]\n", "line 1: no JSON object"),
        ('{"file": "gone.wav"}\n', r"line 1: gone\.wav is not in"),
        ("", "names no recording"),
    ],
)
def test_a_folder_that_cannot_be_used_is_told_in_a_line(tmp_path, text, told):
    if text is not None:
        (tmp_path / "manifest.jsonl").write_text(text, "utf-8")
    with pytest.raises(SystemExit, match=told) as error:
        recordings(tmp_path, None)
    assert "\n" not in str(error.value)


def test_an_attribute_that_is_not_said_is_wrong_and_has_no_bias():
    found = attribute([(1, 1), (1, 2), (1, 3), (0, None)])
    assert found == {"n": 4, "exact": 0.25, "within": 0.5, "bias": 1.0, "constant": 0.75}
    assert attribute([])["exact"] is None


def test_the_table_counts_groups_and_gaps(described):
    right = described[0]
    clips = [clip(i % 4, speaker=str(i), language="zh" if i < 40 else "en") for i in range(75)]
    clips.append(clip(0, length="30 s, joined", speaker="0"))
    levels = MIDDLE.levels()
    cloud = [saying(right, **levels)] * len(clips)
    edge = [
        saying(right, **levels | {"rate": 0} if i % 3 == 0 else levels) for i in range(len(clips))
    ]
    rows = table_rows(clips, {"edge": edge, "cloud": cloud})
    found = {(row["mode"], row["by"], row["group"]): row for row in rows}
    assert found["edge", "all", "all"]["rate"]["exact"] == pytest.approx(2 / 3)
    assert found["edge", "all", "all"]["mean"] == pytest.approx((6 + 2 / 3) / 7)
    assert found["cloud", "all", "all"]["mean"] == 1.0
    assert found["edge", "all", "all"]["speakers"] == found["edge", "all", "all"]["clips"] == 75
    assert [group for mode, by, group in found if by == "language" and mode == "edge"] == [
        "en",
        "zh",
    ]
    assert found["edge", "length", "30 s, joined"]["clips"] == 1
    gap = next(row for row in gap_rows(clips, {"edge": edge, "cloud": cloud}) if row["by"] == "all")
    assert gap["mean"] == pytest.approx(1 / 21)
    deviation = math.sqrt(75 / 74 * (1 / 3) * (2 / 3)) / 7
    assert gap["se"] == pytest.approx(deviation / math.sqrt(75))


def heard(index=0):
    samples = speech.recording(index)
    others = [speech.recording(i) for i in range(4) if i != index]
    return Heard(samples, truth(samples, None).loudness, others, np.random.default_rng(index))


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_sound_is_the_same_speech(name):
    clean = heard()
    changed = CHANGES[name](clean)
    assert changed.dtype == np.float32
    assert np.abs(changed).max() <= 1
    assert abs(len(changed) - len(clean.samples)) <= 2 * RATE_HZ
    assert not np.array_equal(changed[: len(clean.samples)], clean.samples[: len(changed)])
    piece = clean.samples[RATE_HZ : 2 * RATE_HZ]
    lag = correlate(changed[: 6 * RATE_HZ], piece, "valid", "fft").argmax() - RATE_HZ
    assert -141 <= lag <= RATE_HZ


def test_levels_are_counted_that_change(described):
    clean = described[:2]
    changed = [saying(clean[0], rate=None), saying(clean[1], rate=clean[1].attributes["rate"])]
    row = against([clip(0), clip(1)], clean, changed)
    assert (row["levels changed"], row["rate"], row["pitch"]) == (0.5, 0.5, 0.0)


def test_both_languages_say_the_same_levels():
    for row in language_rows([clip(0), clip(1)]):
        assert (row["clips"], row["levels changed"], row["all equal"]) == (2, 0.0, 1.0)


def test_noises_are_told_apart_from_speech(tmp_path, say):
    for folder, sound in (
        ("hiss", np.random.default_rng(0).standard_normal(3 * RATE_HZ) * 0.05),
        ("people", speech.recording(0)),
    ):
        (tmp_path / folder).mkdir()
        soundfile.write(tmp_path / folder / "a.wav", sound, RATE_HZ)
    rows = noise_rows(tmp_path, say)
    found = {row["noise"]: row["no speech"] for row in rows if row["mode"] == "edge"}
    assert found == {"all": 0.5, "hiss": 1.0, "people": 0.0}
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="--noise takes"):
        noise_rows(tmp_path / "empty", say)


BENCHES = sorted((ROOT / "bench").glob("*.py"))
PROGRAMS = [file.stem for file in BENCHES if "options_of(parser)" in file.read_text("utf-8")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_says_what_it_is(name, monkeypatch, capsys):
    module = importlib.import_module(f"bench.{name}")
    monkeypatch.setattr(sys, "argv", [f"bench.{name}", "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("usage: bench.")
    assert module.__doc__.splitlines()[0] in told


# text -> density, repeated pairs and triples, neighbours that repeat, whether it is one sentence
MEASURED = {
    "说话人语速缓慢，声音微微低沉，情绪平静。": (3 / 20, 0, 0, 0, True),
    "语速较慢，音色音色中，音色中，音色中": (3 / 18, 6, 4, 0, False),
    "慢慢慢，音音": (1 / 6, 1, 0, 3, False),
    "aa，，": (1 / 2, 0, 0, 0, False),
    "慢！ ": (1 / 3, 0, 0, 0, True),
    "慢。快。": (1 / 2, 0, 0, 0, False),
    "慢。。": (2 / 3, 0, 0, 0, False),
    "": (0, 0, 0, 0, False),
}


@pytest.mark.parametrize("text", MEASURED)
def test_a_sentence_is_measured(text):
    characters = sorted(set("".join(MEASURED)))
    end = len(characters)
    vocabulary = Vocabulary.build([*(c.encode() for c in characters), b"<eos>"], [end], [end])
    ids = [*(characters.index(c) for c in text), end]
    assert measure(vocabulary, ids) == Quality(*MEASURED[text])


def test_repeats_are_counted_beyond_the_first():
    assert num_repeats("abab", 2) == 1
    assert num_repeats("aaaa", 2) == 2
    assert num_repeats("abc", 2) == num_repeats("", 2) == num_repeats("a", 3) == 0


def test_its_arms_run():
    samples, rate = soundfile.read(SAMPLES[0], dtype="float32")
    assert rate == 16_000
    threads = torch.get_num_threads()
    chosen = [MODES[0]]
    try:
        found = {name: arm(np.array(samples)) for name, arm in make_arms(1, chosen).items()}
    finally:
        torch.set_num_threads(threads)
    assert found.keys() == {*BASES, *chosen}
    for name, timing in found.items():
        assert 0 < timing.first_s <= timing.total_s, name
        assert timing.num_ids > 5, name

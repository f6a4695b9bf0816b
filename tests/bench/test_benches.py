"""The benches: their tables of people count by hand, and every one says what it is."""

import dataclasses
import importlib
import math
import sys

import numpy as np
import pytest
import soundfile
import speech
import torch
from places import ROOT
from speech import SAMPLES

from bench.people import attribute, gap_rows, speaker, table_rows
from bench.people_clips import Clip
from bench.sentence_quality import Quality, measure
from bench.vs_transformers import BASES, MODES, make_arms
from pipelines.embedded.labels import Measures
from streamer.core.text.vocabulary import Vocabulary

MIDDLE = Measures(4.9, 140.0, 1.8, -25.0, 0.1, -9.0, 0.0)


def clip(index=0, **changed):
    given = {"name": f"{index}.wav", "speaker": "a", "source": "s", "language": "en", "sex": "f", "syllables": 20,
             "samples": speech.recording(index), "measures": MIDDLE, "length": "3 to 6 s"}  # fmt: skip
    return Clip(**{**given, **changed})


def saying(description, **levels):
    return dataclasses.replace(description, attributes={**description.attributes, **levels})


def test_an_attribute_that_is_not_said_is_wrong_and_has_no_bias():
    found = attribute([(1, 1), (1, 2), (1, 3), (0, None)])
    assert found == {"n": 4, "exact": 0.25, "within": 0.5, "bias": 1.0, "constant": 0.75}
    assert attribute([])["exact"] is None


def test_the_table_counts_groups_and_gaps():
    (right,) = speaker(edge="embedded", cloud="embedded")("edge", [speech.recording(0)], "")
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

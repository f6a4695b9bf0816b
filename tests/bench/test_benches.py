"""The benches: each says what it is; sentences are measured; arms beside transformers run."""

import importlib
import sys

import pytest
import torch
from places import ROOT
from speech import recording

from bench.sentence_quality import Quality, measure
from bench.vs_transformers import BASES, MODES, make_arms
from streamer.core.text.vocabulary import Vocabulary

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
    vocabulary = Vocabulary([*(c.encode() for c in characters), b"<eos>"], [end], [end])
    ids = [*(characters.index(c) for c in text), end]
    assert measure(vocabulary, ids) == Quality(*MEASURED[text])


def test_its_arms_run():
    threads, chosen = torch.get_num_threads(), [MODES[0]]
    try:
        found = {name: arm(recording(0)) for name, arm in make_arms(1, chosen).items()}
    finally:
        torch.set_num_threads(threads)
    assert found.keys() == {*BASES, *chosen}
    for name, timing in found.items():
        assert 0 < timing.first_s <= timing.total_s, name
        assert timing.num_ids > 5, name

"""The whole recipe in miniature."""

import importlib
import json
import sys

import numpy as np
import pytest
import torch
from people import FILTERS, clone_into

from pipelines.embedded import people, recordings, synthesis, train
from pipelines.embedded.people_held import half
from pipelines.embedded.rate_fit import is_apart
from streamer.core.measures.density import WEIGHTS
from streamer.model.thinker import load


def names(wanted, num):
    """The first `num` speakers of whom this holds."""
    found = (f"speaker{i}" for i in range(10_000))
    return [name for name in found if wanted(name)][:num]


@pytest.fixture
def clones(tmp_path, monkeypatch):
    """People of the training side, one of them kept apart, and two of each half that is held out."""
    apart = names(lambda name: is_apart({"speaker": name}), 1)
    learnt = names(lambda name: not is_apart({"speaker": name}), 3)
    others = names(lambda name: name not in (*apart, *learnt), 12)
    held = [name for part in (0, 1) for name in [n for n in others if half(n) == part][:2]]
    folder, source = clone_into(tmp_path / "clones", [*learnt, *apart, *held])
    rows = {**source, "id": "common-voice-zh", "held_speakers": held, "licence": "CC0-1.0"}
    rows |= {"singles": 6, "gate_singles": 4, "joins": True}
    rows = "\n".join(f"{k} = {json.dumps(v)}" for k, v in (rows | {"credit": "nobody"}).items())
    filters = "\n".join(f"{name} = {value}" for name, value in FILTERS.items())
    table = tmp_path / "recordings.toml"
    table.write_text(f"noise = []\n\n[filters]\n{filters}\n\n[[source]]\n{rows}\n", "utf-8")
    monkeypatch.setattr(recordings, "TABLE", table)
    return folder


@pytest.fixture
def done(monkeypatch):
    """The stages as they are asked for, in this process; what they change of it is put back."""
    told = []

    def run(module, *arguments):
        told.append(module)
        monkeypatch.setattr(sys, "argv", [module, *map(str, arguments)])
        name = module if "." in module else f"pipelines.embedded.{module}"
        importlib.import_module(name).main()
        torch.set_default_dtype(torch.float32)

    monkeypatch.setattr(train, "run", run)
    for module, name, value in (
        (train, "LENGTHS_S", (3,)),
        (synthesis, "SESSIONS_PER_SHARD", 2),
        (people, "SESSIONS_PER_SHARD", 4),
    ):
        monkeypatch.setattr(module, name, value)
    return told


@pytest.mark.long
def test_the_recipe_from_nothing(clones, done, tmp_path):
    measures = tmp_path / "measures"
    measures.mkdir()
    tiny = {"shards": 1, "people_shards": 1, "workers": 1, "rate_minutes": 0.02}
    tiny |= {"audio_s": 6, "steps": 2, "speakers": 8}
    tiny |= {"clips": 2, "risk": 0.9, "confidence": 0}
    tiny |= {"cache": tmp_path / "cache", "out": tmp_path / "out", "measures": measures}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in tiny.items()]
    args = train.options([*words, f"--clones={clones}"])
    train.train(args)
    first = list(done)
    for role in ("edge", "cloud"):
        model = load(str(args.out / role), role)
        assert model.card.gate
        assert set(model.card.promises) == {"fluent", "quality"}
    with np.load(measures / "density.npz") as made, np.load(WEIGHTS) as shipped:
        assert {n: made[n].shape for n in made.files} == {n: shipped[n].shape for n in made.files}
    assert set(json.loads((measures / "level_errors.json").read_text())) == {
        "features", "errors", "arousal", "opinion"
    }  # fmt: skip
    page = (args.out / "MODEL_CARD.md").read_text("utf-8")
    assert all(title in page for title in ("voices never", "recorded people", "The gate", "nobody"))
    kept = {file: file.stat().st_mtime_ns for file in args.cache.rglob("*.json*")}
    kept = {file: at for file, at in kept.items() if file.parent.name != "report"}
    train.train(args)
    assert len(done) < 2 * len(first), "finished stages are skipped"
    assert {file: file.stat().st_mtime_ns for file in kept} == kept, "finished work is kept"

"""The converted form on disk: the same bits, checked when it is read, never half there."""

import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest

from streamer.cli import main
from streamer.extras.large.prepared import Prepared
from streamer.model.checkpoint import layout
from streamer.model.checkpoint.layout import shapes_of, weight_bytes
from streamer.model.checkpoint.weights import ModelError, ModelWarning
from streamer.model.engines.engine import Row
from streamer.model.thinker import load


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(tiny_pair):
    return tiny_pair[0]


def prepared_of(model, engine="int8"):
    return Prepared(model, shapes_of(model), engine)


def logits_of(model, engine):
    loaded = load(str(model), "edge", num_slots=1, engine=engine).engine
    row = Row(loaded.open(), len(loaded.prompt_ids), [7, 8, 9], num_logits=3)
    return loaded.step([row])[0]


@pytest.mark.parametrize("engine", ["int8", "int4"])
def test_it_is_the_same_bits(model, home, engine, capsys):
    wanted = logits_of(model, engine)
    assert main(["warm", "--cloud", str(model), "--engine", engine]) == 0
    at = prepared_of(model, engine).at
    assert capsys.readouterr().out.endswith(f" GB in {at}\n")
    assert list(at.parent.iterdir()) == [at]
    size = sum(file.stat().st_size for file in at.iterdir())
    # each file has a header, and panels are filled up, which a large model does not see
    assert 0 < size - weight_bytes(shapes_of(model), engine) < 3_000 * len(list(at.iterdir()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ModelWarning)
        assert np.array_equal(logits_of(model, engine), wanted)


def cut(file):
    file.write_bytes(file.read_bytes()[:-5])


@pytest.mark.parametrize(("name", "harm"), [("head", cut), ("text.0", lambda file: file.unlink())])
def test_a_damaged_one_is_told_and_not_used(model, home, name, harm):
    wanted = logits_of(model, "int8")
    prepared = prepared_of(model)
    prepared.write(lambda done, total: None)
    harm(prepared.at / name)
    with pytest.warns(ModelWarning, match=f"{name} cannot be read .*streamer warm") as told:
        assert np.array_equal(logits_of(model, "int8"), wanted)
    assert "\n" not in str(told[0].message)


def test_no_room_is_told_before_any_work(model, home, monkeypatch, capsys):
    usage = shutil.disk_usage(home.parent)._replace(free=1_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert main(["warm", "--cloud", str(model), "--engine", "int8"]) == 1
    told = capsys.readouterr().err
    assert "GB are needed" in told
    assert "STREAMER_CACHE" in told
    assert told.count("\n") == 1
    assert not [path for path in home.rglob("*") if path.is_file()]


def test_of_a_run_that_is_killed_nothing_is_used_and_nothing_stays(model, home):
    prepared = prepared_of(model)
    killed = """import os, sys
from pathlib import Path
from streamer.extras.large.prepared import Prepared
from streamer.model.checkpoint.layout import shapes_of
model = Path(sys.argv[1])
Prepared(model, shapes_of(model), "int8").write(lambda done, total: done < 3 or os.abort())"""
    assert subprocess.run([sys.executable, "-c", killed, str(model)]).returncode < 0
    assert not prepared.at.exists()
    assert list(prepared.at.parent.iterdir())
    prepared.at.with_name(prepared.at.name[:-1] + "0").mkdir()
    for _ in range(2):  # once over the one that is there
        prepared.write(lambda done, total: None)
        assert list(prepared.at.parent.iterdir()) == [prepared.at]


def test_too_little_memory_is_told(model, monkeypatch):
    shapes = shapes_of(model)
    needed = weight_bytes(shapes, "fast") * layout.PEAK
    monkeypatch.setattr(layout, "free_bytes", lambda: needed)
    layout.check_memory(model, shapes, "fast", 0)
    with pytest.raises(ModelError, match=r"are needed, .* GB are free; take a machine with more"):
        layout.check_memory(model, shapes, "fast", 1)

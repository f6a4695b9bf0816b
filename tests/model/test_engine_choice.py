"""The choice of an engine is measured once per machine and shape, kept, and made again where what
was kept is broken."""

import json

import pytest

from streamer.commands.models import describe_model
from streamer.model import engine_choice as measured
from streamer.model.checkpoint.shapes import TextShape
from streamer.model.engine_choice import MARGIN, MOST_PARAMS, STEPS, Choice, choose, known
from streamer.model.engines.text import TextModel
from streamer.model.kernels.text import FastText
from streamer.model.thinker import load, resolve

SHAPE = TextShape(64, 2, 4, 2, 16, 96, 100, 10_000.0, 1e-6, 4096, True)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The file it is kept in, empty at first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "streamer" / "engines.json"


def forbidden(*_):
    raise AssertionError("measured again")


def test_measured_once_and_kept(kept, monkeypatch):
    assert known(SHAPE, 100_000, True) is None
    found = choose(SHAPE, 100_000, True)
    assert set(found.ratios) == set(STEPS)
    assert all(ratio > 0 for ratio in found.ratios.values())
    monkeypatch.setattr(measured, "measure", forbidden)
    assert choose(SHAPE, 100_000, True) == known(SHAPE, 100_000, True) == found


@pytest.mark.parametrize(
    "broken", ["", "{", "[]", "7", "{key: null}", '{"%s": {"1 id": "x"}}', '{"%s": {}}']
)
def test_what_is_broken_is_measured_again(kept, broken):
    kept.parent.mkdir()
    kept.write_text(broken.replace("%s", measured._key(SHAPE, True)))
    assert known(SHAPE, 100_000, True) is None
    assert choose(SHAPE, 100_000, True).ratios
    assert known(SHAPE, 100_000, True) is not None
    assert isinstance(json.loads(kept.read_text()), dict)


def test_a_place_that_cannot_be_written_to(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert choose(SHAPE, 100_000, False).ratios
    assert known(SHAPE, 100_000, False) is None


def test_each_shape_and_each_kind_of_weights_for_itself(kept):
    choose(SHAPE, 100_000, True)
    assert known(SHAPE, 100_000, False) is None


def test_torch_has_to_be_clearly_faster():
    assert measured._chosen(dict.fromkeys(STEPS, 1.0)).is_compiled
    assert measured._chosen(dict.fromkeys(STEPS, 1.01 / MARGIN)).is_compiled
    assert not measured._chosen(dict.fromkeys(STEPS, 0.99 / MARGIN)).is_compiled


def test_the_largest_are_not_measured(kept, monkeypatch):
    monkeypatch.setattr(measured, "measure", forbidden)
    assert choose(SHAPE, MOST_PARAMS + 1, True) == Choice(False, {})


@pytest.mark.parametrize(("ratio", "kind"), [(5.0, FastText), (0.2, TextModel)])
def test_load_takes_the_faster_one_and_models_tells(kept, monkeypatch, ratio, kind):
    monkeypatch.setattr(
        measured, "measure", lambda *_: measured._chosen(dict.fromkeys(STEPS, ratio))
    )
    directory = resolve("embedded", "edge")
    assert describe_model("embedded", "edge", directory)["engine"] == "measured at the first load"
    assert isinstance(load("embedded", "edge").engine.text, kind)
    told = describe_model("embedded", "edge", directory)
    assert told["engine"] == ("compiled kernels" if kind is FastText else "torch")
    assert told["torch_over_kernels"] == dict.fromkeys(STEPS, ratio)

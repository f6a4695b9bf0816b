"""The API in Python as a notebook meets it: a Description's faces, typed options, names."""

import json
import subprocess
import sys
from dataclasses import fields, replace
from inspect import signature
from typing import get_type_hints

import pytest
from places import ROOT

import streamer
from streamer import Config, Description
from streamer.core.attributes import ATTRIBUTES
from streamer.core.measures.levels import MEASURES
from streamer.options import Options

PLAIN = str(ROOT / "samples" / "plain.wav")


@pytest.fixture(scope="module")
def plain() -> Description:
    return streamer.describe(PLAIN)


def test_a_description_reads_as_its_sentence(plain):
    assert str(plain) == plain.text
    assert repr(plain).startswith(f"Description({plain.text!r}, rate={plain.levels['rate'].name}, ")
    assert repr(plain).endswith(f"{plain.audio_s:.1f} s)")
    assert len(repr(plain)) < 200
    assert [field.name for field in fields(Description)][:3] == ["text", "attributes", "measures"]


def test_levels_have_names_in_the_sentence_s_language(plain):
    level = plain.levels["rate"]
    assert (level.level, level.name) == (plain.attributes["rate"], level["zh"])
    assert replace(plain, language="en").levels["rate"].name == level["en"]


def test_it_becomes_plain_types_and_a_frame(plain, monkeypatch):
    assert (
        json.loads(json.dumps(plain.to_dict()))["levels"]["rate"]["level"]
        == plain.attributes["rate"]
    )
    made = []
    fake = type(sys)("pandas")
    fake.DataFrame = made.append
    monkeypatch.setitem(sys.modules, "pandas", fake)
    plain.to_frame()
    assert [row["attribute"] for row in made[0]] == list(ATTRIBUTES)
    rate = made[0][0]
    assert rate["unit"] == "syllables/s"
    assert rate["value"] == plain.measures.rate_syllables_per_s
    assert 0 < rate["error"] < rate["value"]
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match="pandas or polars"):
        plain.to_frame()


def test_a_notebook_shows_sentence_gauges_numbers_and_curves(plain):
    shown = plain._repr_html_()
    assert plain.text in shown
    assert "rate medium, pitch high, " in shown
    assert shown.count("<tr>") == len(ATTRIBUTES)
    assert shown.count(" ±") == len(MEASURES)
    assert "<svg" in shown
    assert "<script" not in shown
    silent = replace(plain, text="", file="<b>", measures=None, curves=None, warning="<i>")
    bare = silent._repr_html_()
    assert "<b>" not in bare
    assert "<i>" not in bare
    assert "no speech" in bare


def test_an_open_describer_needs_no_async(plain):
    with streamer.open(mode="edge") as describer:
        first = describer.describe(PLAIN)
        found, missing = describer.describe_many([PLAIN, "none.wav"], jobs=2)
    assert first.mode == "edge"
    assert found.ids == first.ids
    assert isinstance(missing, streamer.AudioError)
    with pytest.raises(streamer.ConfigError, match="did you mean mode"), streamer.open(mdoe="edge"):
        pass


def test_keywords_are_the_fields_of_config():
    hints = get_type_hints(Config)
    assert get_type_hints(Options) == {each.name: hints[each.name] for each in fields(Config)}


def test_a_type_checker_refuses_a_wrong_option(tmp_path):
    (tmp_path / "snippet.py").write_text(
        "import streamer\n"
        'streamer.describe("a.wav", mode="exact", k=4)\n'
        'streamer.describe("a.wav", mode="foo")\n'
        'streamer.Describer.open(mdoe="edge")\n'
        'with streamer.open(mode="foo") as d:\n'
        '    print(d.describe("a.wav").text)\n'
    )
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    wrong = [line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line]
    assert wrong == ["3", "4", "5"], done.stdout


def test_the_public_names_and_nothing_else_are_listed():
    assert set(dir(streamer)) == set(streamer.__all__)
    assert all(getattr(streamer, name) is not None for name in streamer.__all__)
    assert streamer.__doc__.splitlines()[2].strip() == "import streamer"


@pytest.mark.parametrize("name", ["describe", "describe_many", "open"])
def test_a_signature_tells_every_option_with_its_default(name):
    """A notebook completes from it, and `help` shows it."""
    told = signature(getattr(streamer, name)).parameters
    assert {*get_type_hints(Options)} <= told.keys()
    assert (told["mode"].default, told["k"].default) == ("gated", Config().k)
    assert not any(each.kind is each.VAR_KEYWORD for each in told.values())

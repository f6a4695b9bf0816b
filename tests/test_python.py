"""The API as a script and a notebook meet it: without async, faces, typed options, names."""

import inspect
import json
import pickle
import sys
from dataclasses import fields, replace
from typing import get_type_hints

import pytest
from places import ROOT
from processes import ended

import streamer
from streamer import AudioError, Config, ConfigError, Description
from streamer.config import Options
from streamer.core.attributes import ATTRIBUTES, readings_of
from streamer.core.measures.levels import MEASURES

PLAIN = str(ROOT / "samples" / "plain.wav")


@pytest.fixture(scope="module")
def plain():
    return streamer.describe(PLAIN)


@pytest.mark.parametrize("kind", [AudioError, streamer.ModelError])
def test_an_error_survives_pickling(kind):
    """Else one missing file hangs a pool of processes."""
    error = kind("a.wav", "no such file")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error))


@pytest.fixture(scope="module")
def options(tiny_models):
    return tiny_models | {"mode": "exact"}


async def test_one_line_gives_the_describer_s_result(options, samples):
    found = streamer.describe(samples[0], **options)
    async with streamer.Describer.open(**options) as describer:
        wanted = await describer.describe(samples[0])
    assert (found.ids, found.text, found.file) == (wanted.ids, wanted.text, str(samples[0]))
    assert streamer.describe(samples[0], Config(**options), measures=False).measures is None


def test_many_keep_their_order_and_one_s_failure(options, samples, tmp_path):
    files = [samples[0], tmp_path / "none.wav", samples[1], samples[0]]
    one, none, two, again = streamer.describe_many(files, jobs=2, **options)
    assert (one.file, two.file) == (str(samples[0]), str(samples[1]))
    assert isinstance(none, AudioError)
    assert again.ids == one.ids
    with streamer.open(mode="edge") as describer:
        first = describer.describe(PLAIN)
        found, missing = describer.describe_many([PLAIN, "none.wav"], jobs=2)
    assert (first.mode, found.ids) == ("edge", first.ids)
    assert isinstance(missing, AudioError)


def test_impossible_calls_raise(options, samples, tmp_path):
    with pytest.raises(AudioError, match="no such file"):
        streamer.describe(tmp_path / "none.wav", **options)
    with pytest.raises(ConfigError, match="unknown option 'mdoe'; known are attributes, "):
        streamer.describe("a.wav", mdoe="edge")
    for name in ("channel", "track"):
        with pytest.raises(AudioError, match=f"there is no {name} '0'"):
            streamer.describe(samples[0], **options, **{name: "0"})
    with pytest.raises(ConfigError, match="jobs is 0; it may be 1 to 64"):
        streamer.describe_many(["a.wav"], jobs=0)
    with pytest.raises(streamer.ModelError, match=r"config\.json"):
        streamer.describe("a.wav", edge=str(tmp_path))


# While a daemon thread describes, with the describer that stays open or one of its own.
DAEMON = """
import functools, io, streamer, threading
is_read = threading.Semaphore(0)
class File(io.BytesIO):
    def read(self, size=-1):
        is_read.release()
        return super().read(size)
sound, describe = open({sample!r}, "rb").read(), DESCRIBE
def work():
    while True: describe(File(sound))
threading.Thread(target=work, daemon=True).start()
for _ in range(6): is_read.acquire()  # twice in each file: its bytes, its end
"""
CLOSED = """
import io, streamer, sys
with streamer.open(**{options!r}) as describer: pass
try: describer.describe({sample!r})
except RuntimeError as error: print("closed" if "was closed" in str(error) else error)
sys.stdin = io.StringIO("x")
try: streamer.describe("-", **{options!r})
except streamer.AudioError as error: print("closed" if "text or a terminal" in str(error) else error)
"""
# Such as a process of a pool: the thread that described stays with the first process.
FORK = """
import os, sys, streamer
say = lambda: print(streamer.describe({sample!r}, **{options!r}).text, flush=True)
say()
for uses in (True, False):
    child = os.fork()
    if child == 0:
        if uses: say()
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
say()
"""
# As programs with windows start.
NO_CONSOLE = """
import os, sys
sys.stderr = sys.stdout = None
import streamer
os.write(1, streamer.describe({sample!r}, **{options!r}).stop_reason.encode())
"""
PROGRAMS = [
    (DAEMON.replace("DESCRIBE", "functools.partial(streamer.describe, **{options!r})"), 0),
    (DAEMON.replace("DESCRIBE", "streamer.open(**{options!r}).describe"), 0),
    *((FORK, 3), (CLOSED, 2), (NO_CONSOLE, 1)),
]


@pytest.mark.parametrize(("code", "num_lines"), PROGRAMS)
def test_a_program_ends_however_it_describes(options, samples, code, num_lines):
    code = code.format(sample=str(samples[0]), options=options)
    done = ended(sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert (len(lines), len(set(lines)) <= 1) == (num_lines, True)


def test_a_description_reads_as_its_sentence(plain):
    assert str(plain) == plain.text
    assert repr(plain).startswith(f"Description({plain.text!r}, rate={plain.levels['rate'].name}, ")
    assert repr(plain).endswith(f"{plain.audio_s:.1f} s)")
    assert [field.name for field in fields(Description)][:3] == ["text", "attributes", "measures"]
    level = plain.levels["rate"]
    assert (level.level, level.name) == (plain.attributes["rate"], level["zh"])
    assert replace(plain, language="en").levels["rate"].name == level["en"]
    assert json.loads(json.dumps(plain.to_dict()))["levels"]["rate"]["level"] == level.level


def test_no_word_is_sure_beside_a_warning_that_its_measure_is_wrong(plain):
    for changed, unsure in (
        ({}, set()),
        ({"speech_s": 1.0}, set(ATTRIBUTES)),
        ({"clipped_share": 0.1}, {"loudness", "timbre", "arousal"}),
        ({"snr_db": 5.0}, {"rate", "variation", "pauses", "timbre", "arousal"}),
        ({"level_dbfs": -60.0}, {"loudness"}),  # a number of another level
        ({"rate_syllables_per_s": 1.2}, {"rate", "arousal"}),
        ({"snr_db": None}, set()),
    ):
        readings = readings_of(replace(plain, measures=replace(plain.measures, **changed)))
        assert {each.attribute for each in readings if each.certainty == "unsure"} == unsure


def test_it_becomes_a_frame(plain, monkeypatch):
    made, fake = [], type(sys)("pandas")
    fake.DataFrame = made.append
    monkeypatch.setitem(sys.modules, "pandas", fake)
    plain.to_frame()
    assert [row["attribute"] for row in made[0]] == list(ATTRIBUTES)
    assert made[0][0]["value"] == plain.measures.rate_syllables_per_s
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="pandas or polars"):
        plain.to_frame()


def test_a_notebook_shows_sentence_gauges_numbers_and_curves(plain):
    shown = plain._repr_html_()
    assert plain.text in shown
    assert (shown.count("<tr>"), shown.count(" ±")) == (len(ATTRIBUTES), len(MEASURES))
    assert "<svg" in shown
    assert "<script" not in shown
    silent = replace(plain, text="", file="<b>", measures=None, curves=None, warning="<i>")
    bare = silent._repr_html_()
    assert [part in bare for part in ("<b>", "<i>", "没有人说话")] == [False, False, True]


def test_keywords_are_the_fields_of_config():
    hints = get_type_hints(Config)
    assert get_type_hints(Options) == {each.name: hints[each.name] for each in fields(Config)}


def test_notebooks_complete_every_option():
    for function in (streamer.describe, streamer.describe_many, streamer.open):
        known = inspect.signature(function).parameters
        assert get_type_hints(Options).keys() <= known.keys()
        assert known["mode"].default == "gated"
    assert inspect.signature(streamer.describe).parameters["measures"].default is True


def test_a_type_checker_refuses_a_wrong_option(tmp_path):
    (tmp_path / "snippet.py").write_text(
        "import streamer\n"
        'streamer.describe("a.wav", mode="exact", k=4, measures=False)\n'
        'streamer.describe("a.wav", mode="foo")\n'
        'streamer.Describer.open(mdoe="edge")\n'
        'with streamer.open(mode="foo") as d:\n'
        '    print(d.describe("a.wav").text)\n'
    )
    done = ended(sys.executable, "-m", "mypy", "--follow-imports=silent", tmp_path, cwd=ROOT)
    wrong = [line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line]
    assert wrong == ["3", "4", "5"], done.stdout


def test_the_public_names_and_nothing_else_are_listed():
    assert set(dir(streamer)) == set(streamer.__all__)
    assert all(getattr(streamer, name) is not None for name in streamer.__all__)
    assert streamer.__doc__.splitlines()[2].strip() == "import streamer"

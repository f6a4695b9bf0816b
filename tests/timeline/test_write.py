"""`describe --timeline`: JSON, captions and a picture of real recordings, with a Chinese font and
without one; what cannot be written is one line."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import anyio.from_thread
import jsonschema
import numpy as np
import pytest
import soundfile
import webvtt
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager, image
from places import ROOT
from speech import RATE_HZ, recording, speech

import streamer
from streamer import Describer, write_timeline
from streamer.cli import main
from streamer.config import ConfigError
from streamer.timeline.plot import FAMILIES, USUAL, _clock, font_for

SCHEMA = json.loads((ROOT / "docs/timeline.schema.json").read_text("utf-8"))
TEXT = "".join(chr(c) for c in range(0x4E00, 0xA000)) + "，。"


@pytest.fixture
def options(tiny_pair):
    return {"mode": "edge", "edge": str(tiny_pair[0]), "cloud": str(tiny_pair[1])}


@pytest.fixture
def without_chinese(monkeypatch):
    """As on a machine whose fonts have no Chinese characters."""
    kept = [font for font in font_manager.fontManager.ttflist if font.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", kept)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)


@pytest.fixture
def with_chinese(tmp_path, without_chinese):
    """A font whose every Chinese character is a box."""
    pen = TTGlyphPen(None)
    pen.moveTo((100, 0))
    for point in ((100, 700), (800, 700), (800, 0)):
        pen.lineTo(point)
    pen.closePath()
    builder = FontBuilder(1000)
    builder.setupGlyphOrder([".notdef", "box"])
    builder.setupCharacterMap({ord(c): "box" for c in TEXT})
    builder.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "box": pen.glyph()})
    builder.setupHorizontalMetrics({".notdef": (1000, 0), "box": (1000, 100)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": FAMILIES[0], "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(tmp_path / "boxes.ttf")
    font_manager.fontManager.addfont(tmp_path / "boxes.ttf")


async def described(options, source):
    async with Describer.open(**options) as describer:
        return await describer.describe(source, measures=True)


async def test_json_and_captions_of_a_recording(options, samples, tmp_path):
    found = await described(options, samples[1])
    for kind in ("json", "vtt"):
        assert write_timeline(found, tmp_path / f"s.{kind}") is None
    row = json.loads((tmp_path / "s.json").read_text("utf-8"))
    jsonschema.validate(row, SCHEMA)
    (turn,) = row["turns"]
    assert turn["text"] == found.text
    assert turn["measures"] == json.loads(json.dumps(found.measures.as_json()))
    assert len(row["f0_hz"]) == len(row["level_dbfs"]) == round(found.measures.audio_s * 100)
    assert len(row["pauses"]) == found.measures.pause_count > 0
    longest = max(each["end_s"] - each["start_s"] for each in row["pauses"])
    assert longest == pytest.approx(found.measures.longest_pause_s, abs=1e-3)
    voiced = [hz for hz in row["f0_hz"] if hz is not None]
    assert np.median(voiced) == pytest.approx(found.measures.pitch_median_hz, rel=0.05)
    (cue,) = webvtt.read(tmp_path / "s.vtt").captions
    assert cue.raw_text.splitlines()[0] == found.text.strip()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.json", "s.vtt"]


async def test_a_long_recording_has_its_parts_one_behind_the_other(options):
    voice = speech(70, 3)
    found = await described(options, (voice, RATE_HZ))
    assert len(found.parts) == 2
    timeline = found.timeline
    assert [turn.start_s for turn in timeline.turns] == [0, 60]
    assert timeline.turns[1].end_s == timeline.duration_s == pytest.approx(70)
    assert len(timeline.curves) == 7_000
    alone = await described(options, (voice[60 * RATE_HZ :], RATE_HZ))
    # The filter of 0 Hz knows 256 ms more of the sound before: few frames differ by a hertz.
    off = np.abs(timeline.curves.f0_hz[6_000:] - alone.timeline.curves.f0_hz)
    assert (off < 1).mean() > 0.98
    assert "curves" not in found.as_json()


async def test_what_was_not_measured_has_no_timeline(options, samples, tmp_path):
    async with Describer.open(**options) as describer:
        found = await describer.describe(samples[0])
    assert found.timeline is None
    with pytest.raises(ValueError, match="describe it with measures=True"):
        write_timeline(found, tmp_path / "s.json")


async def test_a_picture_shows_the_sentence_where_a_font_has_it(with_chinese, tmp_path):
    found = await described({"mode": "edge"}, (recording(1), RATE_HZ))
    assert write_timeline(found, tmp_path / "s.png") is None
    drawn = image.imread(tmp_path / "s.png")
    assert (drawn.shape[1], drawn.shape[2]) == (1320, 4)
    below = drawn[-60:, :, :3]
    assert (below < 0.5).all(2).sum() > 1_000  # the boxes of the sentence


async def test_without_a_font_the_sentence_is_left_out_and_told(without_chinese, tmp_path):
    assert font_for("说") is None
    found = await described({"mode": "edge"}, (recording(1), RATE_HZ))
    told = write_timeline(found, tmp_path / "s.png")
    assert "no font here has the sentences' characters" in told
    assert image.imread(tmp_path / "s.png").shape[0] > 600


@pytest.mark.parametrize("name", ["plain.wav", "привет.wav", "中文 😀.wav", "a$b_{x}$.wav"])
def test_a_font_is_missed_only_by_sentences_that_need_it(without_chinese, tmp_path, name, options):
    """Not where nobody speaks, whatever the file is called; no glyph is missing (warnings are
    errors)."""
    soundfile.write(tmp_path / name, np.zeros(RATE_HZ), RATE_HZ)
    with anyio.from_thread.start_blocking_portal() as portal:
        found = portal.call(described, options, tmp_path / name)
    assert found.text == ""
    assert write_timeline(found, tmp_path / "s.png") is None


def test_a_name_that_is_no_utf_8_stands_in_json_as_text(tmp_path, options, samples):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.wav")
    shutil.copy(samples[0], odd)
    found = streamer.describe(odd, measures=True, **options)
    for kind in ("json", "vtt", "png"):
        write_timeline(found, tmp_path / f"s.{kind}")
    told = json.loads((tmp_path / "s.json").read_text("utf-8"))["file"]
    assert told == odd.encode(errors="backslashreplace").decode()


def test_what_could_not_be_written_leaves_nothing(tmp_path, options, samples):
    found = streamer.describe(samples[0], measures=True, **options)
    (tmp_path / "s.json").mkdir()
    with pytest.raises(ConfigError, match="cannot be written there"):
        write_timeline(found, tmp_path / "s.json")
    broken = replace(found, attributes={"rate": object()})
    with pytest.raises(TypeError):
        write_timeline(broken, tmp_path / "t.json")
    assert [path.name for path in tmp_path.iterdir()] == ["s.json"]


def test_the_command_writes_it(tmp_path, capsys):
    out = tmp_path / "s.vtt"
    clip = str(ROOT / "samples/plain.wav")
    assert main(["describe", clip, "--mode", "edge", "--quiet", "--timeline", str(out)]) == 0
    said = capsys.readouterr().out
    assert webvtt.read(out).captions[0].raw_text.splitlines()[0] == said.strip()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a.wav", "--timeline", "s.svg"], "give a name in .json, .vtt, .TextGrid or .png"),
        (["a.wav", "b.wav", "--timeline", "s.json"], "2 are given: give one recording"),
        (["a.wav", "--timeline", "nowhere/s.json"], "there is no directory nowhere"),
    ],
)
def test_bad_usage_is_one_line(arguments, told, capsys):
    assert main(["describe", *arguments]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_a_picture_without_matplotlib_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"needs matplotlib; .*pip install .*\[plot\]"):
        streamer.timeline.write.check_target(tmp_path / "s.png")
    streamer.timeline.write.check_target(tmp_path / "s.vtt")


def test_neither_import_nor_captions_need_matplotlib():
    code = "import sys, streamer.commands.describe; print('matplotlib' in sys.modules)"
    told = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, timeout=60)
    assert told == b"False\n"


def test_a_font_is_found_that_came_after_the_list(monkeypatch, tmp_path):
    """matplotlib keeps its list of fonts for good."""
    file = font_manager.findfont(USUAL)
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [])
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    assert font_for("abc") is None
    files = [str(tmp_path / "broken.ttf"), file]
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: files)
    assert font_for("abc") == USUAL


@pytest.mark.parametrize(
    ("seconds", "shown"), [(7.5, "7.5"), (59.999999999, "1:00"), (60.0, "1:00"), (3600, "1:00:00")]
)
def test_times_on_the_axis(seconds, shown):
    assert _clock(seconds) == shown

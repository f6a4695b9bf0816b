"""`describe --timeline`: JSON, captions, a TextGrid, a picture; what cannot be written is told."""

import json
from dataclasses import replace

import jsonschema
import numpy as np
import parselmouth
import pytest
import webvtt
from matplotlib import font_manager, image
from parselmouth.praat import call
from places import ROOT
from speech import RATE_HZ, speech

import streamer
from streamer import write_timeline
from streamer.config import ConfigError
from streamer.timeline_plot import chinese_fonts

SCHEMA = json.loads((ROOT / "docs/timeline.schema.json").read_text("utf-8"))


@pytest.fixture
def options(tiny_models):
    return tiny_models | {"mode": "edge"}


@pytest.fixture(scope="module")
def found(samples):
    return streamer.describe(samples[1], mode="edge")


@pytest.fixture
def without_chinese(monkeypatch):
    """As on a machine whose fonts have no Chinese characters."""
    kept = [font for font in font_manager.fontManager.ttflist if font.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", kept)


def test_json_and_captions_of_a_recording(found, tmp_path):
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


def test_praat_reads_the_tiers(found, tmp_path):
    """A quote in a sentence is doubled."""
    quoted = replace(found, text='so "loud"')
    assert write_timeline(quoted, tmp_path / "s.TextGrid") is None
    grid = parselmouth.read(str(tmp_path / "s.TextGrid"))
    assert call(grid, "Get number of tiers") == 3

    def labels(tier):
        places = range(1, 1 + call(grid, "Get number of intervals", tier))
        return [call(grid, "Get label of interval", tier, i) for i in places]

    speech, sentence = labels(1), labels(3)
    num_pauses = found.measures.pause_count
    assert (speech.count("pause"), speech.count("speech")) == (num_pauses, num_pauses + 1)
    assert 'so "loud"' in sentence
    assert call(grid, "Get total duration") == pytest.approx(found.audio_s, abs=1e-3)
    num = call(grid, "Get number of points", 2)
    wanted = found.measures.rate_syllables_per_s * found.measures.speech_s
    assert num == pytest.approx(wanted, abs=1)
    times = [call(grid, "Get time of point", 2, i + 1) for i in range(num)]
    assert times == sorted(set(times))


def test_a_long_recording_has_its_parts_one_after_the_other(options):
    voice = speech(70, 3)
    found = streamer.describe((voice, RATE_HZ), **options)
    assert len(found.parts) == 2
    timeline = found.timeline
    assert [turn.start_s for turn in timeline.turns] == [0, 60]
    assert timeline.turns[1].end_s == timeline.duration_s == pytest.approx(70)
    assert len(timeline.curves) == 7_000
    alone = streamer.describe((voice[60 * RATE_HZ :], RATE_HZ), **options)
    # The filter of 0 Hz knows 256 ms more of the sound before: few frames differ by a hertz.
    off = np.abs(timeline.curves.f0_hz[6_000:] - alone.timeline.curves.f0_hz)
    assert (off < 1).mean() > 0.98
    assert "curves" not in found.as_json()


def test_a_picture_has_the_sentence_if_a_font_has_it_else_a_line_says_so(
    without_chinese, found, tmp_path
):
    def dark(sentence):
        told = write_timeline(replace(found, text=sentence), tmp_path / "s.png")
        drawn = image.imread(tmp_path / "s.png")
        assert (drawn.shape[1], drawn.shape[2]) == (1320, 4)
        return told, (drawn[-60:, :, :3] < 0.5).all(2).sum()

    assert chinese_fonts() == []
    told, without = dark(found.text)
    assert "no font here has the sentences' characters" in told
    none, with_sentence = dark("The speaker is slow, deep and calm.")
    assert none is None
    assert with_sentence > without + 200


def test_a_failed_write_leaves_nothing(tmp_path, found):
    (tmp_path / "s.json").mkdir()
    with pytest.raises(ConfigError, match="cannot be written there"):
        write_timeline(found, tmp_path / "s.json")
    with pytest.raises(TypeError):
        write_timeline(replace(found, attributes={"rate": object()}), tmp_path / "t.json")
    plain = replace(found, measures=None, curves=None)
    assert plain.timeline is None
    with pytest.raises(ValueError, match="describe it with measures=True"):
        write_timeline(plain, tmp_path / "u.json")
    with pytest.raises(ValueError, match="no description is given"):
        write_timeline([], tmp_path / "u.json")
    assert [path.name for path in tmp_path.iterdir()] == ["s.json"]

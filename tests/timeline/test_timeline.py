"""`describe --timeline`: JSON, captions, a TextGrid, a picture; of the channels of a call, too."""

import json
from dataclasses import replace

import jsonschema
import numpy as np
import parselmouth
import pytest
import soundfile
import webvtt
from matplotlib import font_manager, image
from parselmouth.praat import call as praat
from places import ROOT, SAMPLES
from speech import RATE_HZ, speech

import streamer
from streamer import write_timeline
from streamer.cli import main
from streamer.config import ConfigError
from streamer.timeline import chinese_fonts

SCHEMA = json.loads((ROOT / "docs/timeline.schema.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def found(samples):
    return streamer.describe(samples[1], mode="edge")


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
    assert praat(grid, "Get number of tiers") == 3

    def labels(tier):
        places = range(1, 1 + praat(grid, "Get number of intervals", tier))
        return [praat(grid, "Get label of interval", tier, i) for i in places]

    speech, sentence = labels(1), labels(3)
    num_pauses = found.measures.pause_count
    assert (speech.count("pause"), speech.count("speech")) == (num_pauses, num_pauses + 1)
    assert 'so "loud"' in sentence
    assert praat(grid, "Get total duration") == pytest.approx(found.audio_s, abs=1e-3)
    num = praat(grid, "Get number of points", 2)
    wanted = found.measures.rate_syllables_per_s * found.measures.speech_s
    assert num == pytest.approx(wanted, abs=1)
    times = [praat(grid, "Get time of point", 2, i + 1) for i in range(num)]
    assert times == sorted(set(times))


def test_a_long_recording_has_its_parts_one_after_the_other(tiny_models):
    voice = speech(70, 3)
    found = streamer.describe((voice, RATE_HZ), mode="edge", **tiny_models)
    assert len(found.parts) == 2
    timeline = found.timeline
    assert [turn.start_s for turn in timeline.turns] == [0, 60]
    assert timeline.turns[1].end_s == timeline.duration_s == pytest.approx(70)
    assert len(timeline.curves) == 7_000
    alone = streamer.describe((voice[60 * RATE_HZ :], RATE_HZ), mode="edge", **tiny_models)
    # The filter of 0 Hz knows 256 ms more of the sound before: few frames differ by a hertz.
    off = np.abs(timeline.curves.f0_hz[6_000:] - alone.timeline.curves.f0_hz)
    assert (off < 1).mean() > 0.98
    assert "curves" not in found.as_json()


def test_a_picture_has_the_sentence_if_a_font_has_it_else_a_line_says_so(
    monkeypatch, found, tmp_path
):
    """On a machine whose fonts have no Chinese characters."""
    kept = [font for font in font_manager.fontManager.ttflist if font.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", kept)

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


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """The first speaks, then the second, 3 s after the end of the first recording."""
    (first, rate), (second, _) = (soundfile.read(SAMPLES[i], dtype="int16") for i in (0, 1))
    begin = len(first) + 3 * rate
    sound = np.zeros((begin + len(second), 2), np.int16)
    sound[: len(first), 0] = first
    sound[begin:, 1] = second
    path = tmp_path_factory.mktemp("calls") / "call.wav"
    soundfile.write(path, sound, rate)
    return path


def test_the_command_tells_the_call_and_its_timeline(call, tmp_path, capsys):
    words = ["describe", str(call), "--channels", "apart", "--mode", "edge", "--json"]
    timeline = tmp_path / "s.json"
    assert main([*words, "--measures", "--jobs", "2", "--timeline", str(timeline)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (whole,) = [row for row in rows if "conversation" in row]
    texts = {row["channel"]: row["text"] for row in rows if "text" in row}
    found = whole["conversation"]
    assert whole["file"] == str(call)
    assert (found["turns"], found["interruptions"]) == ([1, 1], [0, 0])
    assert found["gap_median_s"] == pytest.approx(3, abs=1)
    assert sum(found["talk_share"]) == pytest.approx(1, abs=0.01)
    told = json.loads(timeline.read_text("utf-8"))
    jsonschema.validate(told, SCHEMA)
    assert [each["channel"] for each in told["channels"]] == [0, 1]
    assert [each["turns"][0]["text"] for each in told["channels"]] == [texts[0], texts[1]]
    assert all(any(each["f0_hz"]) for each in told["channels"])
    assert told["conversation"] == found
    (dead,) = told["between"]
    assert dead["kind"] == "dead air"
    assert dead["end_s"] - dead["start_s"] == pytest.approx(found["dead_air_s"], abs=0.01)
    assert main(words) == 0  # without measures there is none
    assert all("conversation" not in row for row in capsys.readouterr().out.splitlines())


def test_other_kinds_hold_both_channels_too(call, tmp_path):
    """Overlap: the same channels, the second one moved to 1 s after the first one's begin."""
    both, rate = soundfile.read(call, dtype="float32")
    both[:, 1] = np.roll(both[:, 1], rate - np.flatnonzero(both[:, 1])[0])
    channels = [streamer.describe((both, rate), mode="edge", channel=i) for i in (0, 1)]
    for kind in ("TextGrid", "vtt"):
        streamer.write_timeline(channels, tmp_path / f"s.{kind}")
    grid = parselmouth.read(str(tmp_path / "s.TextGrid"))
    names = [praat(grid, "Get tier name", i + 1) for i in range(7)]
    tiers = ("speech", "syllables", "sentence")
    assert names == [*(f"{name} {i}" for i in (0, 1) for name in tiers), "between"]
    shared = sum(
        praat(grid, "Get end time of interval", 7, i + 1)
        - praat(grid, "Get start time of interval", 7, i + 1)
        for i in range(praat(grid, "Get number of intervals", 7))
        if praat(grid, "Get label of interval", 7, i + 1) == "overlap"
    )
    share = shared / praat(grid, "Get total duration")
    assert 0.05 < share < streamer.conversation(channels).overlap_share
    cues = webvtt.read(tmp_path / "s.vtt").captions
    assert [cue.voice for cue in cues] == ["channel 0", "channel 1"]

"""`describe --channels apart`: what is between the channels of a call, as numbers and over time."""

import json

import jsonschema
import numpy as np
import parselmouth
import pytest
import soundfile
import webvtt
from matplotlib import image
from parselmouth.praat import call as praat
from places import ROOT, SAMPLES

import streamer
from streamer.cli import main


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


def test_json_has_an_object_of_the_call(call, capsys):
    arguments = ["describe", str(call), "--channels", "apart", "--mode", "edge"]
    assert main([*arguments, "--measures", "--json"]) == 0
    *channels, whole = map(json.loads, capsys.readouterr().out.splitlines())
    assert [row["channel"] for row in channels] == [0, 1]
    assert whole["file"] == str(call)
    found = whole["conversation"]
    assert found["turns"] == [1, 1]
    assert found["interruptions"] == [0, 0]
    assert found["dead_air_count"] == 1
    assert found["gap_median_s"] == pytest.approx(3, abs=1)
    assert sum(found["talk_share"]) == pytest.approx(1, abs=0.01)
    assert main([*arguments, "--json"]) == 0  # without measures there is none
    assert all("conversation" not in row for row in capsys.readouterr().out.splitlines())


def test_a_call_that_is_given_twice_is_described_twice(call, capsys):
    arguments = ["describe", str(call), str(call), "--channels", "apart", "--mode", "edge"]
    assert main([*arguments, "--measures", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    first, second = (row["conversation"] for row in rows if "conversation" in row)
    assert first == second
    assert first["turns"] == [1, 1]
    assert len(rows) == 6


def test_the_timeline_holds_each_channel_and_what_is_between(call, tmp_path, capsys):
    arguments = ["describe", str(call), "--channels", "apart", "--mode", "edge", "--json"]
    assert main([*arguments, "--timeline", str(tmp_path / "s.json"), "--jobs", "2"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = json.loads((tmp_path / "s.json").read_text("utf-8"))
    jsonschema.validate(told, json.loads((ROOT / "docs/timeline.schema.json").read_text("utf-8")))
    first, second = told["channels"]
    assert [first["channel"], second["channel"]] == [0, 1]
    texts = {row["channel"]: row["text"] for row in rows}
    assert [each["turns"][0]["text"] for each in (first, second)] == [texts[0], texts[1]]
    assert any(first["f0_hz"])
    assert any(second["f0_hz"])
    assert told["conversation"]["dead_air_count"] == 1
    (dead,) = told["between"]
    assert dead["kind"] == "dead air"
    length_s = dead["end_s"] - dead["start_s"]
    assert length_s == pytest.approx(told["conversation"]["dead_air_s"], abs=0.01)


def test_other_kinds_hold_both_channels_too(call, tmp_path):
    """Overlap: the same channels, the second one moved to 1 s after the first one's begin."""
    both, rate = soundfile.read(call, dtype="float32")
    both[:, 1] = np.roll(both[:, 1], rate - np.flatnonzero(both[:, 1])[0])
    channels = [
        streamer.describe((both, rate), mode="edge", measures=True, channel=i) for i in (0, 1)
    ]
    for kind in ("TextGrid", "vtt", "png"):
        streamer.write_timeline(channels, tmp_path / f"s.{kind}")
    grid = parselmouth.read(str(tmp_path / "s.TextGrid"))
    names = [praat(grid, "Get tier name", i + 1) for i in range(7)]
    tiers = ("speech", "syllables", "sentence")
    assert names == [*(f"{name} {i}" for i in (0, 1) for name in tiers), "between"]
    num = praat(grid, "Get number of intervals", 7)
    marks = [praat(grid, "Get label of interval", 7, i + 1) for i in range(num)]
    lengths = [
        praat(grid, "Get end time of interval", 7, i + 1)
        - praat(grid, "Get start time of interval", 7, i + 1)
        for i in range(num)
    ]
    shared = sum(s for s, mark in zip(lengths, marks, strict=True) if mark == "overlap")
    assert shared == pytest.approx(streamer.conversation(channels).overlap_s, abs=0.01)
    assert shared > 0.5
    cues = webvtt.read(tmp_path / "s.vtt").captions
    assert [cue.voice for cue in cues] == ["channel 0", "channel 1"]
    streamer.write_timeline(channels[0], tmp_path / "one.png")
    heights = [image.imread(tmp_path / f"{name}.png").shape[0] for name in ("s", "one")]
    assert heights[0] > 1.9 * heights[1]


def test_no_channel_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no description is given"):
        streamer.write_timeline([], tmp_path / "s.json")

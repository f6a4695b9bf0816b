"""`describe --channels apart`: numbers between the channels of a call, and over time."""

import json

import jsonschema
import numpy as np
import parselmouth
import pytest
import soundfile
import webvtt
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
    jsonschema.validate(told, json.loads((ROOT / "docs/timeline.schema.json").read_text("utf-8")))
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

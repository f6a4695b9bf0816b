"""`describe --channels apart --measures`: what is between the channels of a call."""

import json

import numpy as np
import pytest
import soundfile
from places import SAMPLES

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

"""Plug-ins of voice agents in the real programs, in an environment that has those."""

import json
import os

import pytest
from places import ROOT, SAMPLES, SUPPORT
from processes import ended

import streamer

HOME = ROOT / ".cache" / "plugins"  # made by `make test`
WITHIN_S = 600


@pytest.fixture(scope="module")
def run():
    """Runs a script beside the plug-ins: the last line that it prints."""
    python = HOME / "bin" / "python"
    if not (HOME / ".ready").exists():
        pytest.skip("the programs are not installed; `make plugins` installs them")
    ours = [ROOT / "plugins" / name for name in ("livekit", "pipecat")]
    path = os.pathsep.join(map(str, [*ours, ROOT]))

    def run(script):
        env = {**os.environ, "PYTHONPATH": path}
        done = ended(python, script, SAMPLES[0], env=env, timeout=WITHIN_S)
        assert done.returncode == 0, done.stderr[-4_000:]
        return done.stdout.splitlines()[-1]

    return run


@pytest.fixture(scope="module")
def found_here():
    """The recording, as `describe` hears it."""
    return streamer.describe(SAMPLES[0], mode="edge", measures=True)


def labels(profile):
    return {name: of["label"] for name, of in profile.items()}


def test_livekit(run, found_here):
    wanted = labels(streamer.voice_profile(found_here))
    found = json.loads(run(SUPPORT / "plugins" / "livekit_voice.py"))
    assert found["texts"] == ["words", "words"]
    for metadata in found["metadata"]:
        assert labels(metadata["voice_profile"]) == wanted
        assert metadata["own"] == 1
        assert metadata["voice_line"] == found["instructions"]
    kinds = ["start_of_speech", "final_transcript", "end_of_speech", "recognition_usage"]
    assert found["kinds"] == 2 * kinds
    assert found["num_metrics"] == 2
    assert found["inner"] == [["term"], 7]
    assert found["failing_model"] == [["words", {"own": 1}]]


def test_pipecat(run, found_here):
    wanted = labels(streamer.voice_profile(found_here, "zh"))
    found = json.loads(run(SUPPORT / "plugins" / "pipecat_voice.py"))
    assert [labels(profile) for profile in found["profiles"]] == [wanted, wanted]
    assert all(found["texts"])
    assert all(line.startswith("用户") for line in found["lines"])
    assert [message["content"] for message in found["messages"]] == found["lines"]
    passed, sent = found["num_audio"]
    assert passed == sent


def test_the_example_of_pipecat_prints_a_line(run):
    line = run(ROOT / "plugins" / "pipecat" / "examples" / "print_voice.py")
    assert line.startswith("The user speaks")

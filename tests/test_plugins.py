"""Plug-ins of voice agents in the real programs, with people's audio; in an environment of their
own, which has those programs."""

import json
import os
import subprocess
import sys
import venv

import pytest
from places import ROOT, SAMPLES, SUPPORT

import streamer

PACKAGES = ("livekit-agents>=1.8,<2", "pipecat-ai>=1.14,<2")
HOME = ROOT / ".cache" / "plugins"
WITHIN_S = 600
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def run():
    """Runs a script beside the plug-ins: what it prints."""
    python = HOME / "bin" / "python"
    if not (HOME / "is_ready").exists():
        venv.create(HOME, with_pip=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
        subprocess.run(pip, check=True, timeout=WITHIN_S)
        (HOME / "is_ready").touch()
    ours = [ROOT / "plugins" / name for name in ("livekit", "pipecat")]
    packages = [path for path in sys.path if path.endswith("site-packages")]
    path = os.pathsep.join(map(str, [*ours, ROOT, *packages]))

    def run(name):
        script = SUPPORT / "plugins" / f"{name}_voice.py"
        command = [python, script, SAMPLES[0]]
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=WITHIN_S, env=environment
        )
        assert done.returncode == 0, done.stderr[-4_000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="module")
def wanted():
    """The profile of the recording, as `describe` hears it."""
    found = streamer.describe(SAMPLES[0], mode="edge", measures=True)
    return {name: of["label"] for name, of in streamer.voice_profile(found).items()}


def labels(profile):
    return {name: of["label"] for name, of in profile.items()}


def test_livekit(run, wanted):
    """Both final transcripts have their profile; metadata of the inner STT stays."""
    found = run("livekit")
    assert found["texts"] == ["words", "words"]
    for metadata in found["metadata"]:
        assert labels(metadata["voice_profile"]) == wanted
        assert metadata["own"] == 1
        assert metadata["voice_line"] == found["instructions"]
    assert found["kinds"] == 2 * ["start_of_speech", "final_transcript", "end_of_speech"]


def test_pipecat(run, wanted):
    """A profile for each utterance, a line for the LLM, and every frame of audio passes."""
    found = run("pipecat")
    assert [labels(profile) for profile in found["profiles"]] == [wanted, wanted]
    assert all(found["texts"])
    assert [message["content"] for message in found["messages"]] == found["lines"]
    passed, sent = found["num_audio"]
    assert passed == sent

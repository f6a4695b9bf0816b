"""Plug-ins of voice agents in the real programs, with people's audio; in an environment of their
own, which has those programs."""

import json
import os
import re
import subprocess
import sys
import venv

import pytest
from places import ROOT, SAMPLES, SUPPORT

import streamer

PACKAGES = ("livekit-agents>=1.8,<2", "pipecat-ai>=1.14,<2")
HOME = ROOT / ".cache" / "plugins"
WITHIN_S = 600
NUMBERS = re.compile(r" \(.*?\)")  # of another turn's end
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def run():
    """Runs a script beside the plug-ins: the last line that it prints."""
    python = HOME / "bin" / "python"
    if not (HOME / "is_ready").exists():
        venv.create(HOME, with_pip=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
        subprocess.run(pip, check=True, timeout=WITHIN_S)
        (HOME / "is_ready").touch()
    ours = [ROOT / "plugins" / name for name in ("livekit", "pipecat")]
    packages = [path for path in sys.path if path.endswith("site-packages")]
    path = os.pathsep.join(map(str, [*ours, ROOT, *packages]))

    def run(script):
        command = [python, script, SAMPLES[0]]
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=WITHIN_S, env=environment
        )
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
    """Both final transcripts have their profile; metadata of the inner STT stays. The example's
    agent hears the same."""
    wanted, found = (
        labels(streamer.voice_profile(found_here)),
        json.loads(run(SUPPORT / "plugins" / "livekit_voice.py")),
    )
    assert found["texts"] == ["words", "words"]
    for metadata in found["metadata"]:
        assert labels(metadata["voice_profile"]) == wanted
        assert metadata["own"] == 1
        assert metadata["voice_line"] == found["instructions"]
    words, *others = (NUMBERS.sub("", line) for line in (found["instructions"], *found["example"]))
    assert others == [words, words]
    assert found["kinds"] == 2 * ["start_of_speech", "final_transcript", "end_of_speech"]


def test_pipecat(run, found_here):
    """A profile for each utterance, in Chinese, a line for the LLM, and every frame passes."""
    wanted, found = (
        labels(streamer.voice_profile(found_here, "zh")),
        json.loads(run(SUPPORT / "plugins" / "pipecat_voice.py")),
    )
    assert [labels(profile) for profile in found["profiles"]] == [wanted, wanted]
    assert all(found["texts"])
    assert all(line.startswith("用户") for line in found["lines"])
    assert [message["content"] for message in found["messages"]] == found["lines"]
    passed, sent = found["num_audio"]
    assert passed == sent


def test_the_example_of_pipecat_prints_a_line(run):
    """With voice activity of the real package."""
    line = run(ROOT / "plugins" / "pipecat" / "examples" / "print_voice.py")
    assert line.startswith("The user speaks")

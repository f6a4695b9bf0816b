"""onnxruntime without its telemetry: a process of our own leaves no trace of it, wherever its HOME
is."""

import os
import subprocess
import sys

import pytest

CODE = (
    "import os, numpy as np; from streamer.model.audio.vad import VoiceActivity;"
    "VoiceActivity().push(np.zeros(16000, np.float32));"
    "print(1)"
)


@pytest.mark.parametrize("home", ["empty", "unwritable"])
def test_voice_activity_tells_nobody(tmp_path, home):
    """What its telemetry does first: a device id under HOME, or a line on stderr where that cannot
    be written."""
    folder = tmp_path / "home"
    # below a file nobody can write, root neither
    folder.mkdir() if home == "empty" else folder.touch()
    unset = {"ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"}
    env = {name: value for name, value in os.environ.items() if name not in unset} | {
        "HOME": str(folder)
    }
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=env, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert list(folder.rglob("*")) == []

"""Clients of other programs, unmodified, in environments of their own with their own versions."""

import json
import os
import shutil
import subprocess
import venv

import numpy as np
import pytest
import soundfile
import soxr
from places import ROOT, SAMPLES, SUPPORT
from processes import ended
from wire import certificate, serving

PACKAGES = ("livekit-plugins-openai>=1.8,<2", "openai-agents>=0.24,<0.30", "pipecat-ai>=1.14,<2")
OF_NPM = ("openai@7.57.0", "openai-realtime-api@1.0.8", "ws@8")
CACHE = ROOT / ".cache"
SCRIPTS = SUPPORT / "other_clients"
WITHIN_S = 600
pytestmark = pytest.mark.long


def installed(home, *command):
    """The folder, in which this command has run once."""
    if not (home / "is_ready").exists():
        home.mkdir(parents=True, exist_ok=True)
        subprocess.run(command, cwd=home, check=True, timeout=WITHIN_S)
        (home / "is_ready").touch()
    return home


def run(command, **environment):
    """The object that a client's script prints."""
    done = ended(*command, timeout=WITHIN_S, env=os.environ | environment)
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["errors"] == []
    assert all(found["texts"])
    return found


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """A sentence at 24 kHz, and silence after it."""
    samples, rate = soundfile.read(SAMPLES[0], dtype="float32")
    spoken = np.pad(soxr.resample(samples, rate, 24_000), (0, 36_000))
    file = tmp_path_factory.mktemp("clients") / "speech.wav"
    soundfile.write(file, spoken, 24_000, subtype="PCM_16")
    return file


@pytest.fixture(scope="module")
def python(recording):
    """Runs a client in an environment with PACKAGES."""
    home = CACHE / "clients"
    if not home.exists():
        venv.create(home, with_pip=True)
    program = home / "bin" / "python"
    installed(home, program, "-m", "pip", "install", "--quiet", *PACKAGES)
    return lambda name, server: run([program, SCRIPTS / f"{name}_client.py", server, recording])


@pytest.fixture(scope="module")
def node(recording):
    """Runs a client with OF_NPM."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    npm = ("npm", "install", "--silent", "--no-audit", "--no-fund", *OF_NPM)
    home = installed(CACHE / "npm", *npm)

    def run_node(name, server, **environment):
        script = shutil.copy(SCRIPTS / f"{name}_client.mjs", home)  # beside its packages
        return run(["node", script, server, recording], **environment)

    return run_node


def test_livekit(python, server):
    found = python("livekit", server)
    first, second = found["texts"]
    assert (first, found["empty"]) == (second, [])
    items = [item for _, item in found["chain"]]
    assert [previous for previous, _ in found["chain"]] == [None, *items[:-1]]
    assert len(items) == 4


@pytest.mark.parametrize(("name", "empty"), [("pipecat", [""]), ("agents", [])])
def test_a_turn_by_voice_activity(python, server, name, empty):
    found = python(name, server)
    assert (len(found["texts"]), found["empty"]) == (1, empty)


def test_npm_openai(node, tmp_path):
    chain, key, authority = certificate(tmp_path)
    with serving("--mode", "edge", "--cert", chain, "--key", key) as (url, _):
        assert len(node("openai", url, NODE_EXTRA_CA_CERTS=str(authority))["texts"]) == 1


def test_npm_openai_realtime_api(node, server):
    """It speaks the beta of the protocol."""
    assert len(node("beta", server)["texts"]) == 2

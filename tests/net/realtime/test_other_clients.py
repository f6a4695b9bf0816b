"""Clients of other programs, unmodified, in an environment of their own: they pin what we do not."""

import json
import subprocess
import venv

import pytest
from places import ROOT, SAMPLES, SUPPORT

PACKAGES = (
    *("livekit-plugins-openai>=1.8,<2", "openai-agents>=0.24,<0.30", "pipecat-ai>=1.14,<2"),
    *("soundfile", "soxr"),
)
HOME = ROOT / ".cache" / "clients"
WITHIN_S = 600
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def python():
    """The interpreter of an environment that has them."""
    found = HOME / "bin" / "python"
    if not (HOME / "is_ready").exists():
        venv.create(HOME, with_pip=True)
        pip = [found, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
        subprocess.run(pip, check=True, timeout=WITHIN_S)
        (HOME / "is_ready").touch()
    return found


def run(python, client, server):
    """What a client's script prints."""
    command = [python, SUPPORT / "other_clients" / f"{client}_client.py", server, SAMPLES[0]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 0, done.stderr[-4_000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_livekit(python, server):
    """Replies that it asks for come with its metadata; its history has the order of the talk."""
    found = run(python, "livekit", server)
    assert found["errors"] == []
    assert found["texts"][0]
    assert found["texts"][0] == found["texts"][1]
    assert found["empty"] == []
    items = [item for _, item in found["chain"]]
    assert [previous for previous, _ in found["chain"]] == [None, *items[:-1]]
    assert len(items) == 4


def test_pipecat(python, server):
    """Initial messages and a run without audio end nothing; the turn is answered."""
    found = run(python, "pipecat", server)
    assert (found["errors"], found["empty"]) == ([], [""])
    assert found["texts"][0]


def test_openai_agents(python, server):
    found = run(python, "agents", server)
    assert found["errors"] == []
    assert found["texts"][0]

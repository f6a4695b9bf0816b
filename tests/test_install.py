"""The core runs with the packages that it declares, and with nothing else that is installed here;
plug-ins of voice agents in the real programs, in an environment that has those.
"""

import json
import os
import re
import sys
import tomllib
import urllib.request
from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from patience import PATIENCE_S
from places import ROOT, SAMPLES, SUPPORT
from processes import ended, started

import streamer

MOST_PACKAGES = 13  # that `pip install .` brings
# Refuses every module of another distribution, as if it were not installed.
REFUSE = """
import sys
from importlib.metadata import packages_distributions
allowed, owners = set({allowed!r}), packages_distributions()
class Refuse:
    def find_spec(self, name, path=None, target=None):
        found = {{one.lower().replace("_", "-") for one in owners.get(name.partition(".")[0], ())}}
        if found and not found & allowed:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
from streamer.cli import main
raise SystemExit(main(sys.argv[1:]))
"""


def needed(requirements, known):
    """`known`, and the distributions that these requirements bring, without extras."""
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        is_asked = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_asked and name not in known:
            known.add(name)
            needed(distribution(name).requires or (), known)
    return known


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CORE = needed(PROJECT["dependencies"], set())
COMMAND = (sys.executable, "-uc", REFUSE.format(allowed=sorted({"streamer-speech", *CORE})))


def test_the_core_brings_few_packages():
    assert len(CORE) <= MOST_PACKAGES, sorted(CORE)
    assert not {"torch", "transformers", "tokenizers", "onnxruntime"} & CORE


def test_the_command_describes_with_its_numbers():
    done = ended(*COMMAND, "describe", SAMPLES[0], "--measures")
    assert (done.returncode, done.stderr) == (0, "")
    assert "音节" in done.stdout


def test_serve_shows_the_page():
    with started("serve", "--port", "0", program=COMMAND) as server:
        address = re.search(r"http://[\w.:]+", server.stdout.readline())[0]
        with urllib.request.urlopen(f"{address}/", timeout=PATIENCE_S) as answer:
            assert b"<html" in answer.read()


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        ("--engine int8", 1, "needs torch; in a clone of streamer: pip install '.[torch]'"),
        ("--edge owner/name", 1, "needs huggingface_hub; in a clone"),
        ("--timeline a.png", 2, "needs matplotlib; in a clone of streamer: pip install '.[plot]'"),
    ],
)
def test_a_missing_package_is_named_in_one_line(words, status, told):
    done = ended(*COMMAND, "describe", SAMPLES[0], "--quiet", *words.split())
    assert (done.stdout, done.returncode, done.stderr.count("\n")) == ("", status, 1)
    assert told in done.stderr


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

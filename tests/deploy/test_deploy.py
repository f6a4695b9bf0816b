"""deploy/: each file is well-formed by its own tool, and names only options and metrics of ours. The
core runs with the packages that it declares, and with nothing else that is installed here; plug-ins
of voice agents in the real programs, in an environment that has those. The benches: each says what it
is; sentences are measured; arms beside transformers run.
"""

import importlib
import json
import os
import re
import shlex
import shutil
import sys
import tomllib
import urllib.request
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace

import anyio
import kubernetes_validate
import pytest
import torch
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from places import ROOT, SAMPLES, SUPPORT
from processes import PATIENCE_S, ended, started
from speech import recording
from toy_parts import MODEL

import streamer
from bench.sentence_quality import Quality, measure
from bench.vs_transformers import BASES, MODES, make_arms
from streamer.cli import build_parser
from streamer.core.text.vocabulary import Vocabulary
from streamer.extras.fleet.director import TARGETS, Director
from streamer.net.link.client import watch_link
from streamer.net.link.server import VerifierServer
from streamer.net.realtime.server import RealtimeServer
from streamer.net.service.admission import Admission

DEPLOY = ROOT / "deploy"
VERSION = "1.32"  # of Kubernetes


def loaded(name):
    return yaml.safe_load((DEPLOY / name).read_text("utf-8"))


MANIFESTS = {file.name: file for file in (DEPLOY / "kubernetes").glob("*.yaml")}
del MANIFESTS["kustomization.yaml"]
OBJECTS = [one for file in MANIFESTS.values() for one in yaml.safe_load_all(file.read_text())]
SERVICES = loaded("compose.yaml")["services"]
RECIPE = (DEPLOY / "Dockerfile").read_text("utf-8")


def objects(kind):
    return {one["metadata"]["name"]: one for one in OBJECTS if one["kind"] == kind}


# name -> spec of its pods
PODS = {
    name: one["spec"]["template"]["spec"]
    for name, one in (objects("StatefulSet") | objects("Deployment")).items()
}


@pytest.fixture(scope="module")
def metric_names():
    """Names of all series of a server with a link, a verifier and a director."""
    admission = Admission((), 7)
    services = [RealtimeServer(None, admission), VerifierServer(None, MODEL, admission)]
    watch_link(SimpleNamespace(is_linked=True, is_up=True, rtt_s=0.1), services[0].metrics)
    for service in services:
        service.metrics.build("1.2.3")
        service.start(SimpleNamespace(start_soon=lambda *_: None))
    services.append(Director({}, None))

    async def told():  # the tasks are those of a loop
        return [service.metrics.text().decode() for service in services]

    return {name for text in anyio.run(told) for name in re.findall(r"^(\w+)[{ ]", text, re.M)}


def test_manifests_are_of_their_schemas():
    assert sorted(loaded("kubernetes/kustomization.yaml")["resources"]) == sorted(MANIFESTS)
    for one in OBJECTS:
        kubernetes_validate.validate(one, VERSION, strict=True)  # raises if it is not


BESIDE = f"{Path(sys.executable).parent}:/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin"
COMPOSE_SPEC = ("-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (sys.executable, [*COMPOSE_SPEC, DEPLOY / "compose.yaml"]),
        ("hadolint", [DEPLOY / "Dockerfile"]),
        ("haproxy", ["-c", "-f", DEPLOY / "haproxy.cfg"]),
    ],
)
def test_a_file_is_well_formed_by_its_own_tool(program, words):
    if (found := shutil.which(program, path=BESIDE)) is None:
        pytest.skip(f"{program} is not installed")
    done = ended(found, *words)
    told = done.stdout + done.stderr
    assert (done.returncode, "WARN" in told.upper()) == (0, False), told


def commands():
    """(where, arguments of `streamer`) in compose, manifests and the image's recipe."""
    for name, service in SERVICES.items():
        if service.get("image") == "streamer":
            yield f"compose {name}", service["command"]
    for name, spec in PODS.items():
        yield f"kubernetes {name}", spec["containers"][0]["args"]
    yield "CMD", json.loads(re.search(r"^CMD (.*)$", RECIPE, re.M)[1])
    yield "RUN", shlex.split(re.search(r"^RUN streamer ([^&]*)", RECIPE, re.M)[1])


def test_every_command_is_one(capsys):
    for where, words in commands():
        found, unknown = build_parser().parse_known_args(words)
        assert (found.command, unknown) == (words[0], []), where
        assert capsys.readouterr().err == ""


def test_pods_are_probed_drained_and_found_at_their_ports():
    for name, spec in PODS.items():
        (container,) = spec["containers"]
        port = container["ports"][0]["containerPort"]
        service = objects("Service")[name]["spec"]["ports"][0]
        assert (service["port"], service["name"]) == (port, "ws")
        assert container["readinessProbe"]["httpGet"]["path"] in ("/readyz", "/healthz")
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "ws"}
        if name != "director":
            sleep_s = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
            assert spec["terminationGracePeriodSeconds"] > 30 + sleep_s + 2
            assert container["args"][3:5] == ["--name", "$(POD_NAME)"]
        (rule,) = objects("NetworkPolicy")[name]["spec"]["ingress"]
        assert rule["ports"] == [{"port": port}]


def test_scaling_is_by_our_metrics_to_places_that_the_director_knows(metric_names):
    args, metrics = PODS["director"]["containers"][0]["args"], set()
    for name, one in objects("HorizontalPodAutoscaler").items():
        assert sum(f".{name}:" in word for word in args) == one["spec"]["maxReplicas"]
        metrics |= {metric["pods"]["metric"]["name"] for metric in one["spec"]["metrics"]}
    assert metrics == {"streamer_sessions", "streamer_audio_lag_seconds"} & metric_names


def test_the_board_shows_our_metrics_and_prometheus_asks_the_director(metric_names):
    (source,) = loaded("grafana/sources.yaml")["datasources"]
    panels = json.loads((DEPLOY / "grafana" / "streamer.json").read_text("utf-8"))["panels"]
    assert len(panels) > 10
    for panel in panels:
        assert panel["datasource"]["uid"] == source["uid"]
        for target in panel["targets"]:
            names = set(re.findall(r"\b(?:streamer|process)_\w+", target["expr"]))
            assert names, panel["title"]
            assert names <= metric_names, panel["title"]
    jobs = loaded("prometheus.yaml")["scrape_configs"]
    urls = [sd["url"] for job in jobs for sd in job.get("http_sd_configs", ())]
    assert urls == [f"http://director:8764{TARGETS}"]


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


BENCHES = sorted((ROOT / "bench").glob("*.py"))
PROGRAMS = [file.stem for file in BENCHES if "options_of(parser)" in file.read_text("utf-8")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_says_what_it_is(name, monkeypatch, capsys):
    module = importlib.import_module(f"bench.{name}")
    monkeypatch.setattr(sys, "argv", [f"bench.{name}", "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("usage: bench.")
    assert module.__doc__.splitlines()[0] in told


# text -> density, repeated pairs and triples, neighbours that repeat, whether it is one sentence
MEASURED = {
    "说话人语速缓慢，声音微微低沉，情绪平静。": (3 / 20, 0, 0, 0, True),
    "语速较慢，音色音色中，音色中，音色中": (3 / 18, 6, 4, 0, False),
    "慢慢慢，音音": (1 / 6, 1, 0, 3, False),
    "aa，，": (1 / 2, 0, 0, 0, False),
    "慢！ ": (1 / 3, 0, 0, 0, True),
    "慢。快。": (1 / 2, 0, 0, 0, False),
    "慢。。": (2 / 3, 0, 0, 0, False),
    "": (0, 0, 0, 0, False),
}


@pytest.mark.parametrize("text", MEASURED)
def test_a_sentence_is_measured(text):
    characters = sorted(set("".join(MEASURED)))
    end = len(characters)
    vocabulary = Vocabulary([*(c.encode() for c in characters), b"<eos>"], [end], [end])
    ids = [*(characters.index(c) for c in text), end]
    assert measure(vocabulary, ids) == Quality(*MEASURED[text])


def test_its_arms_run():
    threads, chosen = torch.get_num_threads(), [MODES[0]]
    try:
        found = {name: arm(recording(0)) for name, arm in make_arms(1, chosen).items()}
    finally:
        torch.set_num_threads(threads)
    assert found.keys() == {*BASES, *chosen}
    for name, timing in found.items():
        assert 0 < timing.first_s <= timing.total_s, name
        assert timing.num_ids > 5, name

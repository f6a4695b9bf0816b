"""deploy/: each file is well-formed by its own tool, and names only options and metrics of ours."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import kubernetes_validate
import pytest
import yaml
from places import ROOT
from processes import ended
from toy_parts import MODEL

from streamer.cli import build_parser
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
    link = SimpleNamespace(is_linked=True, is_up=True, rtt_s=0.1)
    watch_link(link, services[0].metrics)
    for service in services:
        service.metrics.build("1.2.3")
        service.start(SimpleNamespace(start_soon=lambda *_: None))
    services.append(Director({}, None, None))
    texts = [service.metrics.text().decode() for service in services]
    return {name for text in texts for name in re.findall(r"^(\w+)[{ ]", text, re.M)}


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
    args = PODS["director"]["containers"][0]["args"]
    metrics = set()
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

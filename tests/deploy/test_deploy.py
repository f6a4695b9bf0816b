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
from streamer.extras.fleet.director import PATHS, TARGETS, Director, Roster
from streamer.extras.fleet.options import read
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
COMPOSE = loaded("compose.yaml")
SERVICES = COMPOSE["services"]
BOARD = json.loads((DEPLOY / "grafana" / "streamer.json").read_text("utf-8"))
HAPROXY = (DEPLOY / "haproxy.cfg").read_text("utf-8")
RECIPE = (DEPLOY / "Dockerfile").read_text("utf-8")


def objects(kind):
    return {one["metadata"]["name"]: one for one in OBJECTS if one["kind"] == kind}


# name -> spec of its pods
PODS = {
    name: one["spec"]["template"]["spec"]
    for name, one in (objects("StatefulSet") | objects("Deployment")).items()
}


def metric_names():
    """Names of all series of a server with a link, a verifier and a director."""
    admission = Admission((), 7)
    services = [RealtimeServer(None, admission), VerifierServer(None, MODEL, admission)]
    link = SimpleNamespace(is_linked=True, is_up=True, rtt_s=0.1, num_in_flight=0, num_cuts=0)
    watch_link(link, services[0].metrics)
    for service in services:
        service.metrics.build("1.2.3")
        service.start(None)
    services.append(Director(Roster(), None, None))
    texts = [service.metrics.text().decode() for service in services]
    return {name for text in texts for name in re.findall(r"^(\w+)[{ ]", text, re.M)}


def test_manifests_are_of_their_schemas():
    assert sorted(loaded("kubernetes/kustomization.yaml")["resources"]) == sorted(MANIFESTS)
    for one in OBJECTS:
        kubernetes_validate.validate(one, VERSION, strict=True)  # raises if it is not


def checkers():
    """name -> command that checks a file, or None if its program is not installed."""
    compose = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    yield "compose", [sys.executable, *compose, DEPLOY / "compose.yaml"]
    beside = str(Path(sys.executable).parent)
    hadolint = shutil.which("hadolint", path=beside) or shutil.which("hadolint")
    yield "hadolint", hadolint and [hadolint, DEPLOY / "Dockerfile"]
    haproxy = shutil.which("haproxy")
    yield "haproxy", haproxy and [haproxy, "-c", "-f", DEPLOY / "haproxy.cfg"]


@pytest.mark.parametrize(("name", "command"), list(checkers()), ids=lambda value: str(value)[:10])
def test_a_file_is_well_formed_by_its_own_tool(name, command):
    if command is None:
        pytest.skip(f"{name} is not installed")
    done = ended(*command)
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


@pytest.mark.parametrize(("where", "words"), list(commands()), ids=lambda value: str(value)[:20])
def test_every_command_is_one(where, words, capsys):
    found, unknown = build_parser().parse_known_args(words)
    assert unknown == [], where
    assert found.command == words[0]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", PODS)
def test_pods_are_probed_drained_unprivileged_and_behind_a_policy(name):
    spec, policies = PODS[name], objects("NetworkPolicy")
    (container,) = spec["containers"]
    port = container["ports"][0]["containerPort"]
    service = objects("Service")[name]["spec"]["ports"][0]
    assert (service["port"], service["name"]) == (port, "ws")
    assert container["readinessProbe"]["httpGet"]["path"] in ("/readyz", "/healthz")
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "ws"}
    assert spec["securityContext"]["runAsNonRoot"] is True
    closed = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
    assert container["securityContext"] == closed | {"capabilities": {"drop": ["ALL"]}}
    assert spec["automountServiceAccountToken"] is False
    assert [volume["mountPath"] for volume in container["volumeMounts"]] == ["/tmp"]
    assert {"requests", "limits"} <= container["resources"].keys()
    if name != "director":
        sleep_s = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
        assert spec["terminationGracePeriodSeconds"] > 30 + sleep_s + 2
        assert container["args"][3:5] == ["--name", "$(POD_NAME)"]
    closed = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert policies["nothing-else"]["spec"] == closed
    assert policies[name]["spec"]["podSelector"] == {"matchLabels": {"app": name}}
    ingress = policies[name]["spec"]["ingress"]
    assert [rule["ports"] for rule in ingress] == [[{"port": port}]]


def test_scaling_is_by_our_metrics_to_places_that_the_director_knows():
    args, known = PODS["director"]["containers"][0]["args"], metric_names()
    scalers = objects("HorizontalPodAutoscaler")
    metrics = set()
    for name, one in scalers.items():
        addresses = [word for word in args if f".{name}:" in word]
        assert len(addresses) == one["spec"]["maxReplicas"]
        metrics |= {metric["pods"]["metric"]["name"] for metric in one["spec"]["metrics"]}
    assert metrics == {"streamer_sessions", "streamer_audio_lag_seconds"} & known


def test_the_board_shows_our_metrics_and_its_panels_do_not_overlap():
    (source,) = loaded("grafana/sources.yaml")["datasources"]
    known, taken = metric_names(), set()
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 10
    for panel in panels:
        assert panel["datasource"]["uid"] == source["uid"]
        for target in panel["targets"]:
            names = set(re.findall(r"\b(?:streamer|process)_\w+", target["expr"]))
            assert names, panel["title"]
            assert names <= known, panel["title"]
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_prometheus_asks_the_director_for_its_targets():
    jobs = loaded("prometheus.yaml")["scrape_configs"]
    urls = [sd["url"] for job in jobs for sd in job.get("http_sd_configs", ())]
    assert urls == [f"http://director:8764{TARGETS}"]
    assert "director" in SERVICES
    assert set(PATHS) == {"/v1/realtime", "/v1/verify"}


def test_haproxy_s_ports_and_names_are_the_fleet_s():
    there = dict(re.findall(r"^ +server (\S+) 127\.0\.0\.1:(\d+) check$", HAPROXY, re.M))
    kinds = read(ROOT / "pipelines" / "fleet.toml").kinds
    assert there == {
        f"{name}-{i + 1}": str(kind.placing.port + i)
        for name, kind in kinds.items()
        for i in range(kind.placing.most)
    }
    servers = [name for name in there if name.startswith("server")]
    rule = r"use-server (\S+) if \{ urlp\(resume\) -m beg sess_\1\. \}"
    assert re.findall(rule, HAPROXY) == servers
    assert not re.search(r"^ +bind (?!127\.0\.0\.1:)", HAPROXY, re.M)

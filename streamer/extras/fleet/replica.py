"""One replica: `streamer serve` or `streamer verifier`, and the host that restarts it.

The host is an actor of Ray (on_ray.py). If the host dies, the kernel ends its server, and Ray
starts the host anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

START_S = 120.0  # to load a model; a large one comes from a disk
LEAST_LIFE_S = 1.0  # between two starts: a server that dies at once must not fill a core
COMMANDS = {"server": "serve", "verifier": "verifier"}
SECRETS = {"api_key": "STREAMER_API_KEY", "cloud_key": "STREAMER_CLOUD_KEY"}
# prctl's PR_SET_PDEATHSIG, SIGKILL: the server ends with its host
CHILD = """import ctypes, sys
ctypes.CDLL(None).prctl(1, 9)
from streamer.cli import main
sys.exit(main())
"""


class ReplicaLost(Exception):
    """A replica could not be started. Its text is one line."""


@dataclass(frozen=True)
class ReplicaPlan:
    """Options of one replica.

    kind: server or verifier. given: options of its command as in fleet.toml, with host, port and
    name. shown_host: host in its address; empty: the node's own.
    """

    kind: str
    given: dict[str, Any]
    shown_host: str

    def words(self) -> list[str]:
        """The command and its options; keys are in `environment`, since others see a command."""
        return [COMMANDS[self.kind], *self._flags()]

    def environment(self) -> dict[str, str]:
        return {SECRETS[name]: value for name, value in self.given.items() if name in SECRETS}

    def address(self) -> str:
        """ws://HOST:PORT, or wss://."""
        from streamer.commands.serve import shown_host

        s = "s" if self.given.get("cert") else ""
        return f"ws{s}://{shown_host(self.shown_host or _node_host())}:{self.given['port']}"

    def _flags(self) -> Iterator[str]:
        for name, value in self.given.items():
            if name in SECRETS:
                continue
            flag = f"--{name.replace('_', '-')}"
            for one in value if isinstance(value, list | tuple) else [value]:
                yield f"{flag}={one}"


class ReplicaHost:
    """The actor. It never raises where it is made: Ray would retry it for ever."""

    def __init__(self, plan: ReplicaPlan) -> None:
        self._plan = plan
        self._process: subprocess.Popen[str] | None = None
        self._trouble = ""  # why it cannot be started
        self._is_serving = self._is_draining = False
        self._lock = threading.Lock()  # around a start, a kill and a drain
        self._keeper = threading.Thread(target=self._keep, name="streamer-replica", daemon=True)
        self._keeper.start()

    def __repr__(self) -> str:
        """Prefix of each line that Ray prints for it."""
        return str(self._plan.given["name"])

    def address(self) -> str:
        """The address; empty while the server starts. Raises RuntimeError if it cannot start."""
        if self._trouble:
            raise RuntimeError(self._trouble)
        return self._plan.address() if self._is_serving else ""

    def revive(self, pid: int) -> None:
        """Kill the server if it is still this process, which hangs."""
        with self._lock:
            if self._process is not None and self._process.pid == pid:
                self._is_serving = False
                self._process.kill()

    def drain(self) -> None:
        """Accept no more clients, answer what was said, end. Returns when that is done."""
        with self._lock:
            self._is_draining = True
            if self._process is not None:
                self._process.terminate()
        self._keeper.join()

    def _keep(self) -> None:
        """Run one server after another, until drained or one cannot be started."""
        while not self._trouble:
            began = time.monotonic()
            with self._lock:
                if self._is_draining:
                    return
                self._process = process = self._start()
            has_served, last = False, "it died"
            with process:  # waits, and closes the pipe
                for line in process.stdout or ():
                    if line.startswith("listening on "):
                        self._is_serving = has_served = True
                    last = line.strip()
                    print(last, file=sys.stderr, flush=True)
            self._is_serving = False
            if not has_served and process.returncode > 0:  # the next start would fail as well
                self._trouble = last
            elif not self._is_draining:
                time.sleep(max(0.0, began + LEAST_LIFE_S - time.monotonic()))

    def _start(self) -> subprocess.Popen[str]:
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.Popen(
            [sys.executable, "-c", CHILD, *self._plan.words()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | path | self._plan.environment(),
            text=True,
            errors="backslashreplace",
            start_new_session=True,  # ^C is for the fleet's command, which drains it
        )


def _node_host() -> str:
    import ray.util

    return str(ray.util.get_node_ip_address())

"""One replica: a server process, and the host that restarts it at its address when it dies.

The host is an actor of Ray (on_ray.py). If the host dies, its server ends too, and Ray starts the
host anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamer.commands.service_options import ServeOptions, VerifierOptions
    from streamer.config import Config

START_S = 120.0  # to load a model; a large one comes from a disk
LEAST_LIFE_S = 1.0  # between two starts: a server that dies at once must not fill a core
TROUBLE = 3  # exit status of a server that cannot be started
CHILD = "from streamer.extras.fleet.replica import main; main()"


class ReplicaLost(Exception):
    """A replica could not be started. Its text is one line."""


@dataclass(frozen=True)
class ReplicaPlan:
    """Options of one replica.

    kind: server or verifier. given: options of `streamer serve` or `streamer verifier` as in
    fleet.toml, with host, port and name. shown_host: host in its address; empty: the node's own.
    """

    kind: str
    given: dict[str, Any]
    shown_host: str

    def options(self) -> ServeOptions | VerifierOptions:
        """Raises ConfigError."""
        from streamer.commands.service_options import ServeOptions, VerifierOptions
        from streamer.core.declare import taken

        owner: Any = ServeOptions if self.kind == "server" else VerifierOptions
        options: ServeOptions | VerifierOptions = owner(**taken(owner, self.given))
        return options

    def config(self) -> Config:
        """A server's. Raises ConfigError."""
        from streamer.commands.serve import config_of
        from streamer.config import Config
        from streamer.core.declare import taken

        options: Any = self.options()
        return config_of(options, taken(Config, self.given))

    def address(self) -> str:
        """ws://HOST:PORT, or wss://."""
        from streamer.commands.serve import shown_host

        s = "s" if self.given.get("cert") else ""
        return f"ws{s}://{shown_host(self.shown_host or _node_host())}:{self.given['port']}"


class ReplicaHost:
    """The actor. Its constructor waits for the server's first start; if that fails, `address` says
    why. (Ray would retry an actor whose constructor raises, for ever.)"""

    def __init__(self, plan: ReplicaPlan) -> None:
        self._plan = plan
        self._address = plan.address()
        self._process: subprocess.Popen[bytes] | None = None
        self._trouble = ""
        self._is_serving = self._is_draining = False
        self._changed = threading.Condition()
        self._keeper = threading.Thread(target=self._keep, name="streamer-replica", daemon=True)
        self._keeper.start()
        with self._changed:
            self._changed.wait_for(lambda: self._is_serving or self._trouble, START_S)
        if not (self._is_serving or self._trouble):
            self._trouble = f"it has not started within {START_S:g} s"
            self.drain()

    def __repr__(self) -> str:
        """Prefix of each line that Ray prints for it."""
        return str(self._plan.given["name"])

    def address(self) -> str:
        """The address; empty while the server restarts. Raises RuntimeError if it cannot start."""
        if self._trouble:
            raise RuntimeError(self._trouble)
        return self._address if self._is_serving else ""

    def revive(self, pid: int) -> str:
        """Kill the server if it is still this process, which hangs. Returns the address."""
        with self._changed:
            if self._process is not None and self._process.pid == pid:
                self._is_serving = False
                self._process.kill()
        return self.address()

    def drain(self) -> None:
        """Accept no more clients, answer what was said, end. Returns when that is done."""
        with self._changed:
            self._is_draining = True
            if self._process is not None:
                self._process.terminate()
        self._keeper.join()

    def _keep(self) -> None:
        """Run one server after another, until drained or one cannot be started."""
        while not self._trouble:
            began = time.monotonic()
            with self._changed:
                if self._is_draining:
                    return
                self._process = self._start()
            with self._process as process:  # waits, and closes the pipes
                said = process.stdout.readline().decode() if process.stdout else ""
                self._set(is_serving=said.startswith("serving"))
                code = process.wait()
            # a plan that cannot be started now cannot be started the next time either
            self._set(False, said.strip() or "it died" if code == TROUBLE else "")
            if not self._is_draining:
                time.sleep(max(0.0, began + LEAST_LIFE_S - time.monotonic()))

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            stdin=subprocess.PIPE,  # its end tells the server that the host is gone
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # ^C is for the fleet's command, which drains it
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(asdict(self._plan)).encode() + b"\n")
        process.stdin.flush()
        return process

    def _set(self, is_serving: bool, trouble: str = "") -> None:
        with self._changed:
            self._is_serving, self._trouble = is_serving, trouble
            self._changed.notify_all()


def main() -> None:
    """The server's process: a plan on stdin, "serving" or the reason why not on stdout."""
    import anyio

    plan = ReplicaPlan(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_host, daemon=True).start()
    try:
        anyio.run(serve, plan, lambda port: print("serving", flush=True))
    except Exception as error:
        print(str(error) or type(error).__name__, flush=True)
        sys.exit(TROUBLE)


def _end_with_host() -> None:
    sys.stdin.read()
    os._exit(1)


async def serve(plan: ReplicaPlan, ready: Callable[[int], None]) -> None:
    """As `streamer serve` or `streamer verifier`, until SIGTERM. Raises the reason why not."""
    from streamer.commands.serve import cannot_listen, door_of, open_server
    from streamer.commands.verifier import open_verifier
    from streamer.config import ConfigError
    from streamer.net.service.service import Address

    options: Any = plan.options()
    tls, key = door_of(options)
    is_server = plan.kind == "server"
    opened: Any = (
        open_server(options, plan.config(), key) if is_server else open_verifier(options, key)
    )
    try:
        async with opened as server:
            await server.run(Address(options.host, options.port, tls), ready)
    except OSError as error:
        raise ConfigError(cannot_listen(options, error, plan.kind)) from None


def _node_host() -> str:
    import ray.util

    return str(ray.util.get_node_ip_address())

"""One replica: our own server in a process of Ray's. In: options. Out: a port that is served.

Ray calls the methods; the server runs in a thread beside them, with its own loop. No audio goes
through Ray. Where the process dies, Ray starts it anew with the same arguments: the same port,
another incarnation.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

START_S = 120.0  # to load a model; a large one comes from a disk


@dataclass(frozen=True)
class ReplicaPlan:
    """What a replica runs. given: the options of `streamer serve` or `streamer verifier`, as in
    fleet.toml, with host, port and name."""

    kind: str
    given: dict[str, Any]
    shown_host: str  # in its address; nothing: the node's own


class ReplicaHost:
    """What Ray makes an actor of. Raises RuntimeError where the server cannot start."""

    def __init__(self, plan: ReplicaPlan) -> None:
        self._plan = plan
        self._host = plan.shown_host or _node_host()
        self._started = threading.Event()
        self._trouble = ""
        self._is_draining = False
        self._port = 0
        self._stop: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._serve, name="streamer-replica", daemon=True)
        self._thread.start()
        if not self._started.wait(START_S) or self._trouble:
            raise RuntimeError(self._trouble or f"it has not started within {START_S:g} s")

    def address(self) -> str:
        """ws://HOST:PORT, or wss://."""
        s = "s" if self._plan.given.get("cert") else ""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"ws{s}://{host}:{self._port}"

    def drain(self) -> None:
        """Nobody new; what was said is answered. Returns when that is done."""
        self._is_draining = True
        self._stop()
        self._thread.join()

    def _serve(self) -> None:
        import anyio

        try:
            anyio.run(self._run)
        except Exception as error:
            self._trouble = str(error) or type(error).__name__
        if self._started.is_set() and not self._is_draining:
            os._exit(1)  # a process without its server is of no use; Ray starts another one
        self._started.set()

    async def _run(self) -> None:
        import asyncio

        from streamer.commands.options import ServeOptions, VerifierOptions
        from streamer.commands.serve import config_of, door_of, open_server
        from streamer.commands.verifier import open_verifier
        from streamer.config import Config
        from streamer.net.service.service import Address
        from streamer.options import taken

        loop = asyncio.get_running_loop()
        given = self._plan.given
        owner: Any = ServeOptions if self._plan.kind == "server" else VerifierOptions
        options = owner(**taken(owner, given))
        tls, key = door_of(options)
        opened: Any = (
            open_server(options, config_of(options, taken(Config, given)), key)
            if self._plan.kind == "server"
            else open_verifier(options, key)
        )
        async with opened as server:

            def ready(port: int) -> None:
                self._port = port
                self._stop = partial(loop.call_soon_threadsafe, server.stop)
                self._started.set()

            await server.run(Address(options.host, options.port, tls), ready)


def _node_host() -> str:
    import ray.util

    return str(ray.util.get_node_ip_address())

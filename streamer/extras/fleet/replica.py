"""One replica, as Ray sees it. In: a plan. Out: an address, and a server that comes back.

Ray calls the methods. The server is a process of its own. A nursery (nursery.py) starts it again at
once where it dies: the same port, another incarnation. Where the nursery dies, this process ends,
and Ray starts it anew with the same arguments.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from contextlib import suppress

from streamer.extras.fleet.nursery import Drain, Kill, State
from streamer.extras.fleet.served import ReplicaPlan

START_S = 120.0  # to load a model; a large one comes from a disk
NURSERY = "from streamer.extras.fleet.nursery import main; main()"


class ReplicaHost:
    """What Ray makes an actor of. Where the server cannot start, `address` says why: an actor that
    fails while it is made is tried for ever, with a traceback each time."""

    def __init__(self, plan: ReplicaPlan) -> None:
        self._plan = plan
        self._host = plan.shown_host or _node_host()
        self._state = State(0)
        self._changed = threading.Condition()
        self._has_started = self._is_draining = False
        self._pipe, theirs = multiprocessing.Pipe()
        self._nursery = subprocess.Popen(
            [sys.executable, "-c", NURSERY, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # ^C is for who started the fleet, and drains it
        )
        theirs.close()
        self._pipe.send(plan)
        threading.Thread(target=self._follow, name="streamer-nursery", daemon=True).start()
        self._wait()

    def __repr__(self) -> str:
        """Before each line that Ray hands on from it."""
        return str(self._plan.given["name"])

    def address(self) -> str:
        """ws://HOST:PORT, or wss://; nothing while the server is started again. Raises RuntimeError
        where it never was."""
        if not self._has_started:
            raise RuntimeError(self._state.trouble or f"it has not started within {START_S:g} s")
        port = self._state.port
        if not port:
            return ""
        s = "s" if self._plan.given.get("cert") else ""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"ws{s}://{host}:{port}"

    def revive(self, pid: int) -> str:
        """The address. A server that is still this process is killed first: it hangs."""
        with self._changed:
            if self._state.pid == pid:
                self._set(State(0))
                self._pipe.send(Kill(pid))
        return self.address()

    def drain(self) -> None:
        """Nobody new; what was said is answered. Returns when that is done."""
        self._is_draining = True
        with suppress(OSError):  # one that never started
            self._pipe.send(Drain())
        self._nursery.wait()

    def _wait(self) -> None:
        """For the first server."""
        with self._changed:
            self._changed.wait_for(lambda: self._state.port or self._state.trouble, START_S)
            self._has_started = bool(self._state.port)
        if not self._has_started:
            self._nursery.kill()  # its server ends with it
            self._nursery.wait()

    def _follow(self) -> None:
        """What is said of the server, until the nursery is gone."""
        try:
            while True:
                self._set(self._pipe.recv())
        except (EOFError, OSError):
            if self._has_started and not self._is_draining:
                os._exit(1)  # without it this process is of no use; Ray starts another one
            self._set(State(0, trouble=self._state.trouble or "it died while it was starting"))

    def _set(self, state: State) -> None:
        with self._changed:
            self._state = state
            self._changed.notify_all()


def _node_host() -> str:
    import ray.util

    return str(ray.util.get_node_ip_address())

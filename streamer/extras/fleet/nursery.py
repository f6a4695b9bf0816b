"""Keeps one server alive: a process that has everything loaded forks the one that serves. In: a
plan, and a pipe to its host (replica.py). Out: a port that is served, and what became of it.

A fork has the modules and the compiled kernels at once: it serves after 0.3 s of a core's time,
where a process of its own needs 2.5 s and an actor of Ray's 3.3 s (2026-11). Their memory is
shared, so a fork costs what it writes.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from streamer.extras.fleet.served import ReplicaPlan, serve

LEAST_LIFE_S = 1.0  # from one start to the next: a server that dies at once costs no more than that
TROUBLE = 3  # exit status of a server that cannot be started, and could not be the next time
# Elsewhere the system's own libraries do not bear a fork: there each server loads everything anew.
_context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")


@dataclass(frozen=True)
class State:
    """To the host, of the server that there is now. port: 0 while it starts. trouble: why it cannot
    be started, and the nursery ends."""

    pid: int
    port: int = 0
    trouble: str = ""


@dataclass(frozen=True)
class Kill:
    """From the host: this server hangs. Nothing happens where there is another one by now."""

    pid: int


@dataclass(frozen=True)
class Drain:
    """From the host: what was said is answered; then server and nursery end."""


class Nursery:
    """`run` it on the main thread."""

    def __init__(self, plan: ReplicaPlan, host: Connection) -> None:
        self._plan = plan
        self._host = host
        self._is_ending = False

    def run(self) -> None:
        """Until it is told to drain, the host is gone, or a server cannot be started."""
        self._plan.preheat()
        gc.collect()
        gc.freeze()  # a collection would write to all of it, and what is written is copied
        while not self._is_ending:
            began = time.monotonic()
            process = _context.Process(target=_serve, args=(self._plan, self._host), daemon=True)
            process.start()
            try:
                self._watch(process)
            finally:
                process.kill()
                process.join()
            self._is_ending |= process.exitcode == TROUBLE
            if not self._is_ending:
                time.sleep(max(0.0, began + LEAST_LIFE_S - time.monotonic()))

    def _watch(self, process: Any) -> None:
        """Until it has ended, or the host is gone."""
        while process.sentinel not in wait([self._host, process.sentinel]):
            try:
                told = self._host.recv()
            except (EOFError, OSError):
                self._is_ending = True
                return
            if isinstance(told, Drain):
                self._is_ending = True
                process.terminate()  # a service drains then
            elif told.pid == process.pid:
                process.kill()


def _serve(plan: ReplicaPlan, host: Connection) -> None:
    """In the forked process. It writes to the host itself; nobody else does while it lives."""
    import anyio

    threading.Thread(target=_end_with_the_nursery, daemon=True).start()
    pid = os.getpid()
    host.send(State(pid))
    try:
        anyio.run(serve, plan, lambda port: host.send(State(pid, port)))
    except Exception as error:
        host.send(State(pid, trouble=str(error) or type(error).__name__))
        sys.exit(TROUBLE)


def _end_with_the_nursery() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def main() -> None:
    """Of the process that the host starts: argv is the pipe's number, and the plan comes first."""
    host = Connection(int(sys.argv[1]))
    Nursery(host.recv(), host).run()

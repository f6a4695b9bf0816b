"""Processes of ours beside a bench: servers, verifiers, a bad link. In: a module and its arguments.
Out: the line that it says when it is ready."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def started(*command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that says one line when it is ready, and that line."""
    run = [sys.executable, "-m", *command]
    process = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(40)


@contextmanager
def serving(*command: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server: (the address that its line names, its process)."""
    with started(*command) as (process, line):
        yield line.split()[2], process


def metric(url: str, name: str) -> float:
    """One value of the /metrics of a server or verifier; NaN if it is not there."""
    page = url.replace("ws", "http", 1).removesuffix("/v1/realtime") + "/metrics"
    with urllib.request.urlopen(page, timeout=60) as answer:
        found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.M)
    return float(found[1]) if found else float("nan")


class BadLink:
    """A proxy's process (bench/proxy.py) at `url`: `set` how bad it is from now on."""

    def __init__(self, process: subprocess.Popen[str], port: str) -> None:
        self._process = process
        self.url = f"ws://127.0.0.1:{port}"

    def set(self, rtt_ms: float, mbit: float) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{rtt_ms} {mbit}\n")
        self._process.stdin.flush()
        self._process.stdout.readline()


@contextmanager
def linked(*verifier: str) -> Iterator[tuple[str, BadLink]]:
    """A verifier's process, begun by this command, and a link to it: (the verifier's address, the
    link)."""
    with serving(*verifier) as (url, _), started("bench.proxy", url.rsplit(":", 1)[1]) as link:
        yield url, BadLink(*link)

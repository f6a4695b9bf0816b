"""Verifiers elsewhere, for tests of the link: real processes, and edges that speak to them."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile

from wire import ENVIRONMENT


@contextlib.contextmanager
def verifying(*options, port=0, **environment):
    """A verifier process: (its address, the process). It says what it loads, and complains of nothing."""
    command = [sys.executable, "-m", "streamer", "verifier", "--port", str(port), *map(str, options)]
    with tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True, env=ENVIRONMENT | environment)
        try:
            line = process.stdout.readline()
            if line:
                yield line.split()[2], process
        finally:
            process.kill()
            process.communicate()
            complaints.seek(0)
            told = complaints.read()
        assert line.startswith("listening on "), told
        assert re.fullmatch(r"loading .+ \.\.\.\n", told), told


def describe(*arguments, **environment):
    """(exit status, rows of JSON, stderr) of `streamer describe --json`."""
    command = [sys.executable, "-m", "streamer", "describe", "--json", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, env=ENVIRONMENT | environment, timeout=120)
    rows = [json.loads(row) for row in done.stdout.decode().splitlines()]
    return done.returncode, rows, done.stderr.decode()


def free_port():
    """One that nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]

"""Programs of ours as processes of their own, for tests: services that listen, and what `streamer
describe` says."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


@contextlib.contextmanager
def listening(*arguments, **environment):
    """`streamer` with these arguments: (its address, the process). It says what it loads, and
    complains of nothing of its own."""
    command = [sys.executable, "-m", "streamer", *map(str, arguments)]
    with tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            env=ENVIRONMENT | environment,
        )
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
        assert re.fullmatch(
            r"loading .+ \.\.\.\n(streamer: (refused|the verifier at|the gate's promise) .+\n)*",
            told,
        ), told


def describe(*arguments, **environment):
    """(exit status, rows of JSON, stderr) of `streamer describe --json`."""
    command = [sys.executable, "-m", "streamer", "describe", "--json", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, env=ENVIRONMENT | environment, timeout=300)
    rows = [json.loads(row) for row in done.stdout.decode().splitlines()]
    return done.returncode, rows, done.stderr.decode()

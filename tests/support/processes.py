"""Our programs as processes: services that listen, and what `describe` says; waits for expected events:
safety nets against hangs, no measurements.
"""

import asyncio
import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import anyio

from streamer.cli import main

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", "COLUMNS": "100"}
WITHIN_S = 300  # no command in a test takes as long


def ended(*command, **options):
    """A program that has ended, with its output and errors as text. options: of subprocess.run."""
    usual = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    usual |= {"env": ENVIRONMENT, "timeout": WITHIN_S}
    return subprocess.run([*map(str, command)], **usual | options)


def streamer(*arguments, stdin=None):
    """(exit status, stdout, stderr) of `streamer` with these arguments."""
    done = ended(sys.executable, "-m", "streamer", *arguments, input=stdin, text=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def python(code, *arguments, **options):
    """stdout of a program that ends well. options: of subprocess.run."""
    return ended(sys.executable, "-c", code, *arguments, stderr=None, check=True, **options).stdout


@contextlib.contextmanager
def started(*arguments, program=(sys.executable, "-m", "streamer"), **options):
    """`streamer` in a session of its own, as a terminal starts it; killed in the end."""
    command = [*program, *map(str, arguments)]
    usual = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    usual |= {"env": ENVIRONMENT, "start_new_session": True}
    with subprocess.Popen(command, **usual | options) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def listening(*arguments, **environment):
    """`streamer` with these arguments: (its address, the process). It complains of nothing."""
    with tempfile.TemporaryFile("w+") as complaints:
        with started(*arguments, stderr=complaints, env=ENVIRONMENT | environment) as process:
            if line := process.stdout.readline():
                yield line.split()[2], process
        complaints.seek(0)
        told = complaints.read()
        assert line.startswith("listening on "), told
        own = r"streamer: (refused|answering|the verifier at|the gate's promise) .+\n"
        assert re.fullmatch(rf"loading .+ \.\.\.\n({own})*", told), told


def memory_mb(process):
    """Resident now."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def begin(function, *arguments):
    """The Future of what it returns, on a thread that no end waits for."""
    found = Future()

    def work():
        try:
            found.set_result(function(*arguments))
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return found


def run_here(*arguments):
    """(exit status, stdout, stderr) of a command in this process, which saves two seconds."""
    words, is_in_loop = [*map(str, arguments)], asyncio._get_running_loop() is not None
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = begin(main, words).result(WITHIN_S) if is_in_loop else main(words)
        except SystemExit as end:  # bad usage, as argparse reports it
            status = end.code
    return status, out.getvalue(), err.getvalue()


def describe(*arguments):
    """(exit status, rows of JSON, stderr) of `streamer describe --json`, so run."""
    status, out, err = run_here("describe", "--json", *arguments)
    return status, [json.loads(row) for row in out.splitlines()], err


PATIENCE_S = 120.0  # long enough for a test on a busy machine
EXIT_S = 25.0  # for a server that ends: below the 30 s after which it cuts those who still speak


async def until(condition, within_s=PATIENCE_S):
    """Wait until `condition()` is true."""
    with anyio.fail_after(within_s):
        while not condition():
            await anyio.sleep(0.01)


def wait_for(condition, within_s=PATIENCE_S):
    """The same where there is no loop."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)

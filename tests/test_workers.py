"""Processes that work on a list end with what began them, however it ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

from streamer.workers import Workers

HANGS = """
import os, sys, time
from streamer.workers import Workers

def work(folder):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    time.sleep(3600)

if __name__ == "__main__":
    with Workers(2) as pool:
        for _ in range(6):
            pool.submit(work, sys.argv[1])
        time.sleep(3600)
"""
PATIENCE_S = 120


def is_there(process):
    """A process that ended and is not yet waited for counts as gone."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(holds):
    end = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    assert holds()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="tells processes by /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_is_left(tmp_path, how):
    (tmp_path / "hangs.py").write_text(HANGS)
    seen = tmp_path / "seen"
    seen.mkdir()
    command = [sys.executable, str(tmp_path / "hangs.py"), str(seen)]
    first = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until(lambda: len(list(seen.iterdir())) == 2)
    first.send_signal(how)
    first.wait(PATIENCE_S)  # what is waited for in the list is not begun
    until(lambda: not any(is_there(path.name) for path in seen.iterdir()))
    assert len(list(seen.iterdir())) == 2


def test_results_come_back():
    with Workers(2) as pool:
        assert list(pool.map(abs, range(-3, 0))) == [3, 2, 1]

"""Ctrl-C ends a command at once, without a traceback, and says how to go on."""

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import soundfile
from patience import PATIENCE_S, wait_for
from places import SAMPLES
from processes import ended, started

from streamer.commands.label import ENDED
from streamer.commands.process import END_S

# The signal comes as a module is looked for, whatever the machine is busy with.
AT_IMPORT = """
import os, runpy, signal, sys

class Interrupts:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

module = sys.argv[1]
sys.meta_path.insert(0, Interrupts)
runpy.run_module("streamer", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["streamer.cli", "numpy", "streamer.commands.process"])
def test_while_modules_are_imported(module):
    done = ended(sys.executable, "-c", AT_IMPORT, module, "--help")
    assert (done.returncode, done.stderr) == (130, "")


@pytest.fixture
def waiting(tmp_path):
    """`streamer describe` inside a library's call that never returns, here PyAV's."""
    begun = tmp_path / "begun"
    code = f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(1000)\n"
    (tmp_path / "av.py").write_text(code)
    env = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    with started("describe", SAMPLES[0], "--mode", "edge", env=env) as process:
        wait_for(begun.exists)
        yield process


@pytest.mark.parametrize("times", [1, 2])
def test_what_never_returns_holds_nothing_up(waiting, times):
    """Once is enough, after some seconds; twice ends at once."""
    for _ in range(times):
        waiting.send_signal(signal.SIGINT)
        time.sleep(0.5)  # a second signal of a kind would be the same one
    if times == 2:
        assert waiting.wait(END_S - 1) == 130
    assert waiting.wait(PATIENCE_S) == 130
    assert "Traceback" not in waiting.stderr.read()


@pytest.fixture(scope="module")
def hour(tmp_path_factory):
    """A recording that takes minutes."""
    path = tmp_path_factory.mktemp("long") / "hour.flac"
    audio, rate = soundfile.read(SAMPLES[0], dtype="int16")
    with soundfile.SoundFile(path, "w", rate, 1) as long:
        for _ in range(3600 * rate // len(audio)):
            long.write(audio)
    return path


@pytest.fixture
def folder(tmp_path, hour):
    """Two short recordings, and between them, by name, one that takes minutes."""
    for name in ("a.wav", "zz.wav"):
        shutil.copy(SAMPLES[0], tmp_path / name)
    os.link(hour, tmp_path / "z.flac")
    return tmp_path


def begun(folder, process):
    """The worker that has the long recording in hand."""
    wait_for(lambda: reading(process.pid, "z.flac"))
    return reading(process.pid, "z.flac").pop()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_label_leaves_no_process_and_says_how_to_go_on(folder, number):
    """Ctrl-C reaches all its processes, other signals the first one alone."""
    out = folder / "labels.jsonl"
    with started("label", folder, "--out", out, "--jobs", 1) as process:
        worker = begun(folder, process)
        wait_for(lambda: out.read_text("utf-8").count("\n"))  # the first row is there
        send = os.killpg if number == signal.SIGINT else os.kill
        send(process.pid, number)
        _, err = process.communicate(timeout=PATIENCE_S)
        wait_for(lambda: not Path(f"/proc/{worker}/fd/0").exists())
    if number == signal.SIGKILL:
        assert process.returncode == -number
    else:
        assert process.returncode == 128 + number
        told = f"streamer: interrupted: 1 of 3 are in {out}; run it again to go on\n"
        assert err == told


def test_a_recording_that_ends_its_process_is_a_row_with_an_error(folder):
    """It is tried twice. The next one, which waited in the same process, is labelled."""
    out = folder / "labels.jsonl"
    with started("label", folder, "--out", out, "--jobs", 1) as process:
        killed = set()
        for _ in range(2):
            wait_for(lambda: reading(process.pid, "z.flac") - killed)
            (worker,) = reading(process.pid, "z.flac") - killed
            os.kill(worker, signal.SIGKILL)
            killed.add(worker)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    found = {Path(row["file"]).name: row["error"] for row in rows}
    assert found == {"a.wav": None, "z.flac": ENDED, "zz.wav": None}
    told = f"2 of 3 recordings are labelled in {out}; 1 could not be: their rows have `error`\n"
    assert err.endswith(told)


def children_of(parent):
    lists = Path(f"/proc/{parent}/task").glob("*/children")
    return " ".join(each.read_text() for each in lists).split()


def reading(parent, name):
    """Processes of this one that have a file of this name open."""
    found = set()
    for child in children_of(parent):
        with contextlib.suppress(OSError):
            opened = [
                os.path.basename(os.readlink(fd)) for fd in Path(f"/proc/{child}/fd").iterdir()
            ]
            if name in opened:
                found.add(int(child))
    return found

"""Output on a terminal: bars, parts, Ctrl-C."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from patience import PATIENCE_S
from processes import ENVIRONMENT, WITHIN_S, begin

from streamer.cli import main


def long_of(file, samples, seconds):
    audio, rate = soundfile.read(samples[0], dtype="int16")
    soundfile.write(file, np.resize(audio, seconds * rate), rate)
    return file


def test_parts_are_lines_that_say_when_they_begin(here, models, samples, tmp_path):
    long = long_of(tmp_path / "long.wav", samples, 70)
    status, out, err = here("describe", long, "-v", "--mode", "edge", *models)
    assert status == 0
    assert [line[:7] for line in out.splitlines()] == ["[0:00] ", "[1:00] "]
    assert re.fullmatch(r"  \S+long.wav: 70.0 s, 2 parts, \d+ tokens, 0% verified \[edge\]\n", err)
    _, quiet, _ = here("describe", long, "--mode", "edge", "--quiet", *models)
    assert [line[7:] for line in out.splitlines()] == quiet.splitlines()


def test_ctrl_c_keeps_the_parts_that_are_done_and_says_where_it_was(models, samples, tmp_path):
    long = long_of(tmp_path / "long.wav", samples, 1800)
    command = [sys.executable, "-m", "streamer", "describe", long, "--mode", "edge", *models]
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    )
    # it is whole as the next one begins
    assert process.stdout.readline().startswith(b"[0:00] ")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert out.endswith(b"\n"), "the line in hand is closed"
    assert re.fullmatch(
        r"streamer: \S+long.wav: interrupted after \d+:\d\d of 30:00; what is said so far stands\n",
        err.decode(),
    )


def shown_by(leader):
    """The output of a terminal, to its end."""
    shown = b""
    with contextlib.suppress(OSError):  # its other end is closed
        while piece := os.read(leader, 4096):
            shown += piece
    os.close(leader)
    return shown.decode()


@pytest.fixture
def on_a_terminal(monkeypatch):
    """Runs a command in this process: (exit status, stdout where it is no terminal, what the
    terminal shows). stderr is a real pseudo-terminal."""
    for name, value in (("TERM", "xterm"), ("COLUMNS", "100")):
        monkeypatch.setenv(name, value)

    def run(*args, stdout=None):
        leader, follower = pty.openpty()
        shown = begin(shown_by, leader)
        with (
            open(follower, "w") as terminal,
            contextlib.redirect_stderr(terminal),
            contextlib.redirect_stdout(stdout or terminal),
        ):
            status = begin(main, [*map(str, args)]).result(WITHIN_S)
        said = stdout.getvalue() if isinstance(stdout, io.StringIO) else ""
        return status, said, shown.result(WITHIN_S)

    return run


@pytest.mark.parametrize("option", ["--preset=fluent", "--quiet", "--json"])
def test_a_bar_on_the_terminal_leaves_stdout_alone(
    models, samples, tmp_path, option, on_a_terminal
):
    """`> out.txt` and `| cmd` get the sentence, and the terminal the bar."""
    long = long_of(tmp_path / "long.wav", samples, 20)
    args = ("describe", long, option, "--mode", "edge", *models)
    status, out, shown = on_a_terminal(*args, stdout=io.StringIO())
    assert status == 0
    assert out.count("\n") == 1
    assert len(out) > 2
    assert "\x1b" not in out
    assert re.search(r"describing .*0:\d\d of 0:20 .*left", shown)
    assert out.strip() not in shown


def test_a_terminal_gets_a_bar_and_whole_lines(
    here, models, samples, tmp_path, on_a_terminal, monkeypatch
):
    """Parts of a long recording: each line stands whole between the bar's frames."""
    long = long_of(tmp_path / "long.wav", samples, 70)
    monkeypatch.setenv("NO_COLOR", "1")
    status, _, shown = on_a_terminal("describe", long, "--mode", "edge", *models)
    _, plain, _ = here("describe", long, "--mode", "edge", *models)
    assert status == 0
    assert "describing" in shown
    seen = [line.rpartition("\r")[2] for line in shown.replace("\r\n", "\n").split("\n")]
    seen = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in seen]
    for line in plain.splitlines():
        assert line in seen


def test_errors_and_warnings_stand_on_lines_of_their_own(models, samples, tmp_path, on_a_terminal):
    """No bar stands before them."""
    soundfile.write(tmp_path / "silent.wav", np.zeros(16_000, np.int16), 16_000)
    files = [tmp_path / "gone.wav", tmp_path / "silent.wav", samples[0]]
    status, _, shown = on_a_terminal("describe", *files, "--mode", "edge", "-v", *models)
    assert status == 1
    told = [line for line in re.split(r"\r\n|\r\x1b\[K", shown) if "streamer: " in line]
    assert [line.partition(" ")[0] for line in told] == ["streamer:"] * 2
    assert "describing" in shown

"""Output on a terminal: bars, parts, Ctrl-C."""

import contextlib
import io
import os
import pty
import re
import signal

import numpy as np
import pytest
import soundfile
from patience import PATIENCE_S
from processes import WITHIN_S, begin, started

from streamer.cli import main


def long_of(file, samples, seconds):
    audio, rate = soundfile.read(samples[0], dtype="int16")
    soundfile.write(file, np.resize(audio, seconds * rate), rate)
    return file


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
    for name, value in (("TERM", "xterm"), ("COLUMNS", "100"), ("NO_COLOR", "1")):
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


def test_parts_are_lines_that_begin_with_their_time(here, models, samples, tmp_path, on_a_terminal):
    """On a terminal each line stands whole between the bar's frames."""
    words = ("describe", long_of(tmp_path / "long.wav", samples, 70), "--mode", "edge", *models)
    status, out, err = here(*words, "-v")
    assert status == 0
    assert [line[:7] for line in out.splitlines()] == ["[0:00] ", "[1:00] "]
    assert re.fullmatch(r"  \S+long.wav: 70.0 s, \d+ tokens, 0% verified \[edge\]\n", err)
    assert here(*words, "--quiet")[1].splitlines() == [line[7:] for line in out.splitlines()]
    status, _, shown = on_a_terminal(*words)
    assert status == 0
    assert "describing" in shown
    seen = [line.rpartition("\r")[2] for line in shown.replace("\r\n", "\n").split("\n")]
    seen = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in seen]
    assert set(out.splitlines()) <= set(seen)


def test_ctrl_c_keeps_the_parts_that_are_done(models, samples, tmp_path):
    long = long_of(tmp_path / "long.wav", samples, 1800)
    with started("describe", long, "--mode", "edge", *models) as process:
        assert process.stdout.readline().startswith("[0:00] ")  # whole as the next one begins
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert out.endswith("\n"), "the line in hand is closed"
    told = r"interrupted after \d+:\d\d of 30:00; what is said so far stands"
    assert re.fullmatch(rf"streamer: \S+long.wav: {told}\n", err)


@pytest.mark.parametrize("option", ["--preset=fluent", "--quiet", "--json"])
def test_a_bar_leaves_stdout_alone(models, samples, tmp_path, option, on_a_terminal):
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


def test_errors_and_warnings_stand_on_lines_of_their_own(models, samples, tmp_path, on_a_terminal):
    """No bar stands before them."""
    soundfile.write(tmp_path / "silent.wav", np.zeros(16_000, np.int16), 16_000)
    files = [tmp_path / "gone.wav", tmp_path / "silent.wav", samples[0]]
    status, _, shown = on_a_terminal("describe", *files, "--mode", "edge", *models)
    assert status == 1
    told = [line for line in re.split(r"\r\n|\r\x1b\[K", shown) if "streamer: " in line]
    assert [line.partition(" ")[0] for line in told] == ["streamer:"] * 2
    assert "describing" in shown

"""Ctrl-C ends a command at once, without a traceback, and says how to go on."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import soundfile
from places import SAMPLES

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


def heeds_ctrl_c() -> None:
    """A shell's background jobs ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("module", ["streamer.cli", "numpy", "streamer.commands.table"])
def test_while_modules_are_imported(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_IMPORT, module, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=heeds_ctrl_c,
    )
    assert (done.returncode, done.stderr) == (130, "")


def test_label_leaves_the_recording_in_hand_and_says_how_to_go_on(tmp_path: Path) -> None:
    """The long recording would take minutes, and its row would be lost all the same."""
    audio, rate = soundfile.read(SAMPLES[0], dtype="int16")
    with soundfile.SoundFile(tmp_path / "z.flac", "w", rate, 1) as long:
        for _ in range(3600 * rate // len(audio)):
            long.write(audio)
    soundfile.write(tmp_path / "a.wav", audio, rate)
    out = tmp_path / "labels.jsonl"
    words = ("label", tmp_path, "--out", out, "--jobs", 1)
    process = subprocess.Popen(
        [sys.executable, "-m", "streamer", *map(str, words)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heeds_ctrl_c,
        start_new_session=True,
    )
    try:
        while process.poll() is None and not (out.exists() and out.read_text("utf-8")):
            time.sleep(0.05)  # until the first row is there
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert re.fullmatch(
        rf"streamer: interrupted: 1 of 2 are in {out}; run it again to go on\n", err
    ), err

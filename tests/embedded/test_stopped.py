"""A training that is stopped, or lacks its data, says so in one line: it is resumed, not
debugged."""

import os
import shutil
import signal
import subprocess
import sys

import pytest
from training import training

from pipelines.embedded import evaluate


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs espeak-ng")
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_ctrl_c_stops_all_of_it_in_one_line(tmp_path, number):
    """Sent to the whole group, as a terminal does, while two processes synthesise."""
    command = training(tmp_path, shards=1, held_shards=1, workers=1)
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as train:
        told = ""
        while told.count("shards:") < 2:  # a progress bar each: both are at work
            told += train.stderr.read(1)
        os.killpg(train.pid, number)
        told += train.stderr.read()  # ends when nobody holds the pipe: no process is left
    assert train.returncode == 130
    assert "Traceback" not in told
    assert told.endswith("\nstopped; run it again to go on\n")
    assert not (tmp_path / "out").exists()


def test_no_shards_are_told_with_the_command_that_makes_them(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["evaluate", "--data", str(tmp_path / "nosuch")])
    with pytest.raises(SystemExit) as end:
        evaluate.main()
    assert end.value.code == f"no shards in {tmp_path / 'nosuch'}; run make train first"

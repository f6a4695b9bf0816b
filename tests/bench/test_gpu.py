"""bench/gpu.py: its code runs at toy size without a GPU, and says one line where it needs one."""

import subprocess
import sys

import pytest
import torch


def run(*options):
    command = [sys.executable, "-m", "bench.gpu", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_toy_sizes_on_a_cpu():
    done = run("--device", "cpu", "--models", "toy", "--rounds", "2", "--contexts", "40", "300")
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("| toy")]
    assert [[int(cell) for cell in row[1:4]] for row in rows] == [
        [context, rows, q] for context in (40, 300) for rows in (1, 4, 16, 64) for q in (1, 5)
    ]
    assert all(float(cell) > 0 for row in rows for cell in row[4:])


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells that there is no GPU")
def test_without_a_gpu_one_line_and_status_2():
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "no GPU" in done.stderr

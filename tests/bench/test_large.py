"""bench/large.py: it runs at toy size on a CPU, and says one line where it needs a GPU."""

import subprocess
import sys

import pytest
import torch

from bench.large import STEPS


def run(*options):
    command = [sys.executable, "-m", "bench.large", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_toy_sizes_on_a_cpu():
    done = run("--models", "toy", "--rounds", "2")
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("| toy")]
    assert [(int(row[2]), int(row[3])) for row in rows] == list(STEPS)
    assert all(float(cell) > 0 for row in rows for cell in row[4:])


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells that there is no GPU")
def test_without_a_gpu_one_line_and_status_2():
    done = run("--device", "cuda")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "no GPU" in done.stderr

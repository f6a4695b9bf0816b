"""bench/large.py: it runs at toy size on a CPU, and says one line where it needs a GPU."""

import sys

import pytest
import torch

from bench import large


def run(monkeypatch, capsys, *options):
    monkeypatch.setattr(sys, "argv", ["bench.large", *options])
    return large.main(), capsys.readouterr()


def test_toy_sizes_on_a_cpu(monkeypatch, capsys):
    monkeypatch.setattr(large, "CONTEXT", 30)
    before = torch.get_num_threads()
    try:  # more threads than free cores spend their time on waiting
        status, told = run(
            monkeypatch, capsys, "--models", "toy", "--rounds", "2", "--threads", "1"
        )
    finally:
        torch.set_num_threads(before)
    assert status == 0
    rows = [line.split("|")[1:-1] for line in told.out.splitlines() if line.startswith("| toy")]
    assert [(int(row[2]), int(row[3])) for row in rows] == list(large.STEPS)
    assert all(float(cell) > 0 for row in rows for cell in row[4:])


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells that there is no GPU")
def test_without_a_gpu_one_line_and_status_2(monkeypatch, capsys):
    status, told = run(monkeypatch, capsys, "--device", "cuda")
    assert (status, told.out) == (2, "")
    assert told.err.count("\n") == 1
    assert "no GPU" in told.err

"""bench/llama.py: ours at toy size, and one line where llama.cpp is not there."""

import sys
import time
from argparse import Namespace

import numpy as np
import pytest

from bench import llama, llama_side, shapes


@pytest.mark.filterwarnings("ignore")  # of gguf's and llama.cpp's own
def test_toy_sizes_beside_llama_cpp(monkeypatch):
    pytest.importorskip("llama_cpp")
    monkeypatch.setitem(llama.KINDS, 8, ("Q8_0",))
    options = Namespace(threads=1, rounds=1, python=sys.executable)
    rows = llama.measured(shapes.SIZES["toy"], 8, options)
    assert [row["arm"] for row in rows] == ["int8", "Q8_0"]


def test_without_llama_cpp_one_line_and_status_2(monkeypatch, capsys, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "argv", ["bench.llama", "--python", str(python)])
    assert llama.main() == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert "pip install llama-cpp-python" in told.err


@pytest.mark.parametrize("engine", ["int8", "int4"])
def test_ours_at_toy_size(engine):
    arms = llama.ours(shapes.SIZES["toy"], engine, time.perf_counter)
    assert all(arm() > 0 for arm in arms.values())
    found = llama.row_of(engine, {"first": 900.0, "one": 50.0, "block": 60.0, "window": 2_200.0})
    assert found["first token s"] == pytest.approx(0.9 + 3.0)  # it lags by a tenth of the turn
    assert found["tokens/s"] == 20
    assert (
        llama.row_of("Q8_0", {"first": 900.0, "one": 50.0, "block": 60.0})["first token s"] == 0.9
    )


@pytest.mark.parametrize("kind", llama_side.KINDS)
def test_blocks_have_the_sizes_of_the_format(kind):
    """By ggml's own names: 34, 18, 144, 210 bytes, whose scale is a half float."""
    of = llama_side.KINDS[kind]
    rows = llama_side.blocks(kind, 3, 512)
    assert rows.shape == (3, 512 // of.weights * of.size)
    at = of.scale_at
    scales = rows.reshape(3, -1, of.size)[..., at : at + 2].copy().view(np.float16)
    assert scales.astype(float) == pytest.approx(512**-0.5 / of.spread, rel=0.1)

"""Threads that share a product in few bits give the same bits in any order."""

import subprocess
import sys
import threading

import pytest
import torch

from streamer.extras.large import products as kernel
from streamer.extras.large.matrix import FORMS, pack


def drawn(*size):
    return torch.randn(size, generator=torch.Generator().manual_seed(1))


def test_callers_at_once_get_what_each_gets_alone(monkeypatch):
    """Products of several sizes and forms, one after the other, from four threads with two helpers
    each."""
    sizes = [(1_000, 96, "int8"), (70, 1_300, "int4"), (16, 40, "int8"), (3, 64, "int4")]
    cases = [(pack(drawn(n, k), FORMS[f]), drawn(i + 1, k)) for i, (n, k, f) in enumerate(sizes)]
    monkeypatch.setattr(kernel, "num_threads", lambda: 1)
    alone = [matrix.times(x) for matrix, x in cases]
    monkeypatch.setattr(kernel, "num_threads", lambda: 3)
    monkeypatch.setattr(kernel, "WORTH", 1)
    right = []

    def ask():
        for _ in range(200):
            found = [matrix.times(x) for matrix, x in cases]
            right.append(all(map(torch.equal, found, alone)))

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert right == [True] * 800


FORKED = """import os
import torch
from streamer.extras.large.matrix import FORMS, pack
from streamer.extras.large import products as kernel
kernel.num_threads, kernel.WORTH = lambda: 3, 1
matrix, x = pack(torch.randn(900, 96), FORMS["int8"]), torch.randn(2, 96)
wanted = matrix.times(x)
child = os.fork()
if not child:
    os._exit(0 if all(torch.equal(matrix.times(x), wanted) for _ in range(50)) else 1)
assert torch.equal(matrix.times(x), wanted)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_child_has_helpers_of_its_own():
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "0\n", done.stderr

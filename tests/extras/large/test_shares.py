"""Threads that share a product in few bits: the same bits, whoever comes; asleep where none comes."""

import subprocess
import sys
import threading
import time

import pytest
import torch

from streamer.extras.large import products as kernel
from streamer.extras.large.matrix import FORMS, pack

THREADS = 3


def drawn(*size):
    return torch.randn(size, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def shared(monkeypatch):
    monkeypatch.setattr(kernel, "num_threads", lambda: THREADS)
    monkeypatch.setattr(kernel, "WORTH", 1)


@pytest.fixture(scope="module")
def products():
    """Of other sizes and forms, each with what it gives alone."""
    sizes = [(1_000, 96, "int8"), (70, 1_300, "int4"), (16, 40, "int8"), (3, 64, "int4")]
    found = []
    for i, (out, inner, name) in enumerate(sizes):
        matrix, x = pack(drawn(out, inner), FORMS[name]), drawn(i + 1, inner)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel, "num_threads", lambda: 1)
            found.append((matrix, x, matrix.times(x)))
    return found


def test_one_after_another_they_are_what_each_is_alone(products):
    """A helper that is late for one must not take part in the next as if it were the last."""
    for _ in range(500):
        for matrix, x, alone in products:
            assert torch.equal(matrix.times(x), alone)


def test_who_asks_while_the_helpers_are_taken_works_alone(products):
    """Four threads at once, of which one at a time has help."""
    right = []

    def ask():
        right.append(
            all(torch.equal(m.times(x), alone) for _ in range(200) for m, x, alone in products)
        )

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert right == [True] * 4


def test_helpers_sleep_where_nothing_comes_and_come_again(products):
    """They look for the next job for under a millisecond; then they cost nothing."""
    matrix, x, alone = products[0]
    for _ in range(3):
        assert torch.equal(matrix.times(x), alone)
        begun = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - begun < 0.15


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

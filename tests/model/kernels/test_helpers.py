"""Threads that share a step or a window: the same bits as alone, however many come; nobody waits
for who does not."""

import itertools
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.model.engines.engine import Engine, Row
from streamer.model.engines.load import load_weights
from streamer.model.engines.text import TextModel
from streamer.model.kernels.helpers import WORTH, Crew, num_running
from streamer.model.kernels.job import chunk_begins, num_chunks
from streamer.model.kernels.text import FastText
from streamer.model.kernels.threads import num_kernel_threads
from streamer.model.kernels.tower import FastTower
from streamer.model.thinker import resolve, shapes_of

PROMPT = [3, 1, 4]


def ids_of(n, seed, vocab):
    return torch.randint(0, vocab, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def crew_of(num_threads):
    """One that is told that nothing else runs."""
    return Crew(num_threads, running=lambda: None)


@pytest.fixture(scope="module")
def crew():
    return crew_of(3)


def edge(crew):
    directory = resolve("embedded", "edge")
    weights = load_weights(directory, torch.float32, "cpu")
    return FastText(weights, shapes_of(directory).text, crew)


def engine_of(crew, num_slots=17):
    text = edge(crew)
    return Engine(text, text.slots(num_slots, 900), PROMPT)


@pytest.fixture(scope="module")
def engines(crew):
    """(shared, alone), every slot with another past."""
    pair = engine_of(crew), engine_of(crew_of(1))
    for engine in pair:
        for slot in [engine.open() for _ in range(16)]:
            engine.step([Row(slot, len(PROMPT), ids_of(500, slot, 900), num_logits=0)])
    return pair


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_shared_rows_are_the_same_bits(engines, data):
    """Rows of any lengths at any positions, cut wherever the pieces end."""
    sizes = data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=16))
    starts = [data.draw(st.integers(1, 400)) for _ in sizes]
    rows = [
        Row(i, len(PROMPT) + start, ids_of(n, i, 900), num_logits=data.draw(st.integers(0, n)))
        for i, (n, start) in enumerate(zip(sizes, starts, strict=True))
    ]
    shared, alone = (engine.step(rows) for engine in engines)
    for ours, theirs in zip(shared, alone, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("frames", [200, 199, 58, 21, 5])
def test_shared_windows_are_the_same_bits(crew, frames):
    directory = resolve("embedded", "edge")
    weights, shape = load_weights(directory, torch.float32, "cpu"), shapes_of(directory).audio
    features = torch.randn(3, 128, frames, generator=torch.Generator().manual_seed(frames))
    shared, alone = (
        FastTower(dict(weights), shape, of).encode(features) for of in (crew, crew_of(1))
    )
    assert np.array_equal(shared, alone)


def test_two_engines_at_once(crew, engines):
    """Edge and cloud: one has the crew, the other works alone; nobody waits, both are right."""
    rows = [Row(i, 103, ids_of(12, i, 900), num_logits=2) for i in range(16)]
    other = engine_of(crew)
    slots = [other.open() for _ in range(16)]
    for engine in (*engines, other):
        for slot in slots:
            engine.step([Row(slot, len(PROMPT), ids_of(100, slot, 900), num_logits=0)])
    wanted = engines[1].step(rows)
    wrong = []

    def run(engine):
        for _ in range(30):
            got = engine.step(rows)
            wrong.extend(
                i
                for i, (a, b) in enumerate(zip(got, wanted, strict=True))
                if not np.array_equal(a, b)
            )

    threads = [threading.Thread(target=run, args=(engine,)) for engine in (engines[0], other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not wrong


def test_one_engine_at_a_time():
    crew = crew_of(3)
    assert crew.take(10 * WORTH) == 2
    assert crew.take(10 * WORTH) == 0, "the others are taken"


def test_little_work_and_a_busy_machine_take_nobody():
    crew = Crew(4, running=lambda: 10_000)
    assert crew.take(100 * WORTH) == 0
    assert crew.take(100 * WORTH) == 0, "and it holds nothing back"
    assert crew_of(4).take(WORTH) == 0
    assert crew_of(1).take(100 * WORTH) == 0


def test_this_machine_says_how_much_runs():
    running = num_running()
    assert running is None or running >= 1


def test_threads_are_bounded_by_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert num_kernel_threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    assert 1 <= num_kernel_threads() <= 4


@given(st.integers(2, 300), st.integers(2, 8))
def test_pieces_cover_all_rows(rows, threads):
    begins = chunk_begins(rows, num_chunks(rows, threads))
    assert begins[0] == 0
    assert begins[-1] == rows
    assert all(a < b for a, b in itertools.pairwise(begins))
    assert all(begin % 2 == 0 for begin in begins[:-1])


@pytest.mark.parametrize("ids", [[-1], [939], [5, 10**9]])
def test_an_id_that_is_none_is_refused(engines, ids):
    """The kernels read where an id says: none may lie outside."""
    with pytest.raises(IndexError, match="none of the model's 939"):
        engines[0].step([Row(0, 100, ids)])


def test_shared_equals_torch(crew, engines):
    directory = resolve("embedded", "edge")
    plain = TextModel(load_weights(directory, torch.float32, "cpu"), shapes_of(directory).text)
    other = Engine(plain, plain.slots(2, 900), PROMPT)
    slot, ids = other.open(), ids_of(300, 1, 900)
    theirs = other.step([Row(slot, len(PROMPT), ids, num_logits=300)])[0]
    ours = engines[0].step([Row(0, len(PROMPT), ids, num_logits=300)])[0]
    np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max(), rtol=1e-5)


def in_another_process(code):
    """Run there with a crew of three: what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", CREW_OF_THREE + code], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


CREW_OF_THREE = """
import os, signal, threading, time
import numpy as np
from streamer.model.kernels.helpers import Crew, WORTH
crew = Crew(3, running=lambda: None)
post = crew.start(np.zeros(1, np.float32))
helpers = [thread for thread in threading.enumerate() if thread.name.startswith("crew")]
assert len(helpers) == 2
"""


def test_a_signal_ends_no_helper():
    """A sleep that a signal's handler interrupts is begun again."""
    code = """
import fcntl, struct, termios
os.write(post.wake, bytes(2))  # read, for nothing, once the kernels are compiled
deadline = time.monotonic() + 200
while struct.unpack("i", fcntl.ioctl(post.wake, termios.FIONREAD, bytes(4)))[0]:
    assert time.monotonic() < deadline
    helpers[0].join(0.05)
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.siginterrupt(signal.SIGUSR1, True)
for _ in range(20):
    for helper in helpers:
        if helper.is_alive():
            signal.pthread_kill(helper.ident, signal.SIGUSR1)
    for helper in helpers:
        helper.join(0.02)
print(sum(helper.is_alive() for helper in helpers), flush=True)
os._exit(0)
"""
    assert in_another_process(code) == ["2"]


def test_a_forked_child_has_a_crew_of_its_own():
    """What the parent's crew was at when it forked is not the child's."""
    code = """
assert crew.take(10 * WORTH) == 2
post.board[8] = 1  # a helper is inside
child = os.fork()
if child == 0:
    os._exit(0 if crew.take(10 * WORTH) == 2 and not crew._posts else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), crew.take(10 * WORTH), len(crew._posts), flush=True)
os._exit(0)
"""
    assert in_another_process(code) == ["0", "0", "1"]

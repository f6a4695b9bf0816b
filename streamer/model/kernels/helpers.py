"""Threads that help with a step or a window where there is enough to do. In: a job (work.py). Out:
done.

One crew per process, whatever number of models: it helps one engine at a time, another works alone
meanwhile. They sleep in a read() without the GIL, are woken by a byte, and never number more than
the cores that are free now.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.model.kernels.cells import BOARD_CELLS, JOB_CELLS

# Multiplications that are worth another thread: 0.1 ms of one, three times what it takes to
# wake it (2026-11).
WORTH = 3_000_000
LOOK_S = 0.005  # for so long a look at what else runs on this machine counts


def num_running() -> int | None:
    """Threads that run or want to on this machine, with the caller; None where it does not say."""
    try:
        with open("/proc/loadavg", "rb", buffering=0) as file:
            return int(file.read(128).split()[3].split(b"/")[0])
    except (OSError, ValueError, IndexError):
        return None


class Crew:
    """`n = crew.take(products)`: n threads are free to help, maybe none; if some, `lead(job, n)`.

    num_threads: with the one that leads. running: how many threads run on this machine, None: it
    does not say.
    """

    def __init__(self, num_threads: int, running: Callable[[], int | None] = num_running) -> None:
        self.num_threads = num_threads
        self._running = running
        self._looked_at = 0.0
        self._free = 0
        self._begin()
        if hasattr(os, "register_at_fork"):
            this = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _begin_again(this()))

    def _begin(self) -> None:
        """Nobody is there yet. So it is again in a forked child, whatever went on in the parent:
        the threads are the parent's, and what they held or counted on a board would never be let
        go."""
        self._busy = threading.Lock()
        self._starting = threading.Lock()
        # by the kind of weights: for another one the kernels are others
        self._posts: dict[str, _Post] = {}

    def is_worth(self, products: float) -> bool:
        """Whether so many multiplications are enough for two."""
        return self.num_threads > 1 and products >= 2 * WORTH

    def take(self, products: float) -> int:
        """How many threads may help with so many products; if any, `lead` must follow."""
        if not self.is_worth(products) or not self._busy.acquire(blocking=False):
            return 0
        wanted = min(self.num_threads - 1, int(products / WORTH) - 1)
        free = max(0, min(wanted, self._free_cores()))
        if not free:
            self._busy.release()
        return free

    def lead(self, job: NDArray[np.int64], others: int, example: NDArray[Any]) -> None:
        """Do `job` with as many others as `take` gave. example: of the weights' kind."""
        try:
            post = self.start(example)
            post.job[:] = job
            post.work(post.board, post.job, post.wake, 0, example)
        finally:
            self._busy.release()

    def start(self, example: NDArray[Any]) -> _Post:
        """The threads for such weights, asleep; they are started once."""
        with self._starting:
            kind = example.dtype.name
            if kind not in self._posts:
                self._posts[kind] = _Post(self.num_threads, example)
            return self._posts[kind]

    def _free_cores(self) -> int:
        """Cores that nothing runs on, the caller's left out; all where the machine does not say."""
        now = time.monotonic()
        if now - self._looked_at > LOOK_S:
            running = self._running()
            self._free = self.num_threads if running is None else (os.cpu_count() or 1) - running
            self._looked_at = now
        return self._free


def _begin_again(crew: Crew | None) -> None:
    if crew is not None:
        crew._begin()


class _Post:
    """Where the threads of one kind sleep: their board, their job, the pipe that wakes them."""

    def __init__(self, num_threads: int, example: NDArray[Any]) -> None:
        # late: importing numba costs 0.4 s
        from streamer.model.kernels.work import work

        self.work = work
        self.board = np.zeros(BOARD_CELLS, np.int64)
        self.job = np.zeros(JOB_CELLS, np.int64)
        sleep, self.wake = os.pipe()
        os.set_blocking(self.wake, False)  # full: more are woken already than there are
        for who in range(1, num_threads):
            arguments = (self.board, self.job, sleep, who, example[:0])
            threading.Thread(target=work, args=arguments, name=f"crew-{who}", daemon=True).start()

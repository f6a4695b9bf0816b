"""Threads that help with a step or a window where there is enough to do. In: a job (kernels_shared.py). Out: done.

One crew per process, whatever number of models: it helps one engine at a time, another works alone meanwhile. They sleep
in the kernel's read() without the GIL, are woken by a byte, and never number more than the cores that are free now.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Multiplications that are worth another thread: 0.1 ms of one, three times what it takes to wake it (2026-11).
WORTH = 3_000_000
MOST_CHUNKS = 16  # pieces of one job
LOOK_S = 0.005  # for so long a look at what else runs on this machine counts


class Crew:
    """`with crew.others(products) as n:` n threads are free to help, maybe none; if some, `lead(job, n)`."""

    def __init__(self, num_threads: int, running: Callable[[], int | None] | None = None) -> None:
        self.num_threads = num_threads  # with the one that leads
        self._running = running or num_running
        self._busy, self._starting = threading.Lock(), threading.Lock()
        self._is_started = False
        self._looked_at, self._free = 0.0, 0

    @contextlib.contextmanager
    def others(self, products: float) -> Iterator[int]:
        """How many threads may help with so many multiplications; nobody else has them until the end."""
        wanted = min(self.num_threads - 1, int(products / WORTH) - 1)
        if wanted <= 0 or not self._busy.acquire(blocking=False):
            yield 0
            return
        try:
            yield max(0, min(wanted, self._free_cores()))
        finally:
            self._busy.release()

    def lead(self, job: NDArray[np.int64], others: int) -> None:
        """Do `job` with up to so many others, within `with crew.others(...)`."""
        from streamer.model import kernels_shared

        self.start()
        self._job[: len(job)] = job
        kernels_shared.lead(self._board, self._job, self._wake, others)

    def start(self) -> None:
        """Load the kernels, or compile them, and let the threads go to sleep; a second call does nothing."""
        with self._starting:
            if not self._is_started:
                self._start()

    def _start(self) -> None:
        from numba import types

        from streamer.model import kernels_shared

        cells = types.int64[::1]
        for kernel in (kernels_shared.lead, kernels_shared.follow):
            kernel.compile((cells, cells, types.int64, types.int64))
        self._board = np.zeros(kernels_shared.BOARD_CELLS, np.int64)
        self._job = np.zeros(kernels_shared.JOB_CELLS, np.int64)
        self._sleep, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        for who in range(1, self.num_threads):
            arguments = (self._board, self._job, self._sleep, who)
            threading.Thread(target=kernels_shared.follow, args=arguments, name=f"crew-{who}", daemon=True).start()
        self._is_started = True

    def _free_cores(self) -> int:
        """Cores that nothing runs on just now, the caller's own not counted; all where the machine does not say."""
        now = time.monotonic()
        if now - self._looked_at > LOOK_S:
            running = self._running()
            self._free = self.num_threads if running is None else (os.cpu_count() or 1) - running
            self._looked_at = now
        return self._free


def num_running() -> int | None:
    """How many threads run or want to on this machine, the caller included; None where that is not to be had."""
    try:
        with open("/proc/loadavg", "rb", buffering=0) as file:
            return int(file.read(128).split()[3].split(b"/")[0])
    except (OSError, ValueError, IndexError):
        return None


def address(array: NDArray[Any]) -> int:
    """Where its first number lies; the caller keeps the array alive."""
    return int(array.__array_interface__["data"][0])

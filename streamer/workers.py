"""A pool of processes of which none stays, however its block or its parent process ends."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TypeVar

AHEAD = 2  # items for each process that wait for it
Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """`num` processes with one kernel thread each. After the block all work is done; after an
    error the processes are terminated, since their results are not needed."""

    def __init__(self, num: int) -> None:
        self._others = set(multiprocessing.active_children())
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(max(1, num), spawn, _begin)

    def __enter__(self) -> ProcessPoolExecutor:
        return self._pool

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for process in set(multiprocessing.active_children()) - self._others:
                process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)


def each_done(
    pool: ProcessPoolExecutor,
    jobs: int,
    call: Callable[[Item], Result],
    items: Iterator[Item],
    in_hand: dict[Future[Result], Item],
) -> Iterator[Result]:
    """Results of `call` on each item, as they are done; a few items are handed over ahead.

    in_hand: the items that are not done. Raises the errors of `call`, and BrokenProcessPool.
    """
    while True:
        for item in itertools.islice(items, AHEAD * jobs - len(in_hand)):
            in_hand[pool.submit(call, item)] = item
        if not in_hand:
            return
        for future in wait(in_hand, return_when=FIRST_COMPLETED).done:
            found = future.result()
            del in_hand[future]
            yield found


def _begin() -> None:
    """In a new process."""
    os.environ["OMP_NUM_THREADS"] = "1"  # each core has a process of its own
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends it
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker holds both ends of the pool's queue, and would wait for it for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)

"""How a command starts, writes and ends, in a process of its own; and its worker processes."""

from __future__ import annotations

import ctypes
import gc
import io
import json
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from unicodedata import east_asian_width

from streamer.config import Config, ConfigError
from streamer.core.description import one_line
from streamer.progress import Bar

if TYPE_CHECKING:
    from streamer.describer import Describer


# Garbage collection of a service. A full one visits 600 objects per session, 0.2 s with a thousand
# sessions, and by default many ran while clients connected. Here one runs after 1,000,000 new
# objects, not 70,000, and one of the young after 20,000, in 12 ms. Only sockets leave cycles.
COLLECTS = (2_000, 10, 50)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
Result = TypeVar("Result")


class Failed(Exception):
    """The command cannot go on. Its text is one line with the way out."""


def told_of(error: BaseException) -> str | None:
    """The error as one line for the user; None for a defect."""
    from streamer.audio.source import AudioError
    from streamer.model.checkpoint.weights import ModelError
    from streamer.stages.events import TargetLost

    if isinstance(error, ConfigError | Failed | AudioError | ModelError | TargetLost):
        return str(error)
    if isinstance(error, MemoryError | OSError | ImportError):
        why = f"{type(error).__name__}: {error}".removesuffix(": ")
        return f"the system refused ({why}); see `ulimit -a`, or install streamer anew"
    return None


def put(text: str, end: str = "\n") -> None:
    """Write to stdout and flush. Raises Failed, and BrokenPipeError if the reader left."""
    Bar.hide()
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        told = f"stdout cannot be written ({error.strerror}); make room, or write elsewhere"
        raise Failed(told) from None


def drop_stdout() -> None:
    """Discard what stdout cannot take; the interpreter would write it at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(text: str) -> None:
    """Write to stderr and flush. If that fails, the work goes on."""
    with suppress(OSError):
        Bar.hide()
        print(text, file=sys.stderr, flush=True)


def fail(message: str) -> None:
    """One line on stderr."""
    tell(f"streamer: {one_line(message)}")


def recordings_of(paths: tuple[str, ...]) -> list[str]:
    """The recordings of all paths, which may be directories."""
    from streamer.audio.source import recordings_in

    return [file for path in paths for file in recordings_in(path)]


def put_json(row: Mapping[str, Any], indent: int | None = None) -> None:
    """An object on stdout, on a line of its own unless it is indented."""
    plain_row = {name: plain(value) for name, value in row.items()}
    put(json.dumps(plain_row, ensure_ascii=False, indent=indent))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table as lines, two blanks before each column."""

    def columns(text: str) -> int:  # of a terminal: a Chinese character takes two
        return sum(2 if east_asian_width(c) in "WF" else 1 for c in text)

    widths = [max(map(columns, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        line = "".join("  " + text + " " * (width - columns(text)) for text, width in cells)
        lines.append(line.rstrip())
    return lines


def plain(value: Any) -> Any:
    """A text without lone surrogates, such as those of names that are not UTF-8: strict readers of
    JSON refuse them."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def prepare() -> None:
    """Escape names that are not UTF-8; show our warnings in one line, without code. A closed stream
    (`>&-`) takes all."""
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.formatwarning = lambda message, *_, **__: f"streamer: {message}\n"


@contextmanager
def loading(what: str, is_service: bool = False) -> Iterator[None]:
    """Load modules and models without garbage collection: the objects that are loaded stay.

    A service says so in a line on stderr. Compilation is always reported.
    """
    from streamer.model.kernels.library import on_compiling

    on_compiling[:] = [_tell_compiling]
    if is_service:
        tell(f"loading {what} ...")

    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if is_service:
            gc.set_threshold(*COLLECTS)
        gc.enable()
        libc = ctypes.CDLL(None)
        with suppress(AttributeError):  # another C library than glibc
            # from here on keep freed memory: a fifth of a long recording's time went into new pages
            libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)
            libc.mallopt(M_TRIM_THRESHOLD, 64 << 20)
            libc.malloc_trim(0)  # give back what loading frees: 10 MB (2026-11)


def _tell_compiling(is_kept: bool) -> None:
    told = "compiling kernels for this processor, about 8 s of CPU time"
    fail(f"{told}, {'once' if is_kept else 'at every start'}")


@asynccontextmanager
async def opened(config: Config, is_service: bool = False) -> AsyncIterator[Describer]:
    """A describer whose models are loaded. Raises ModelError."""
    from streamer.describer import Describer

    is_cut = config.is_away and not is_service
    with cut_by_interrupt() if is_cut else nullcontext():
        async with Describer.open(config) as describer:
            with loading("the models", is_service):
                await describer.load()
            yield describer


@contextmanager
def cut_by_interrupt() -> Iterator[None]:
    """Ctrl-C cancels what runs within, so that a verifier gives its places back; a second one ends
    the process at once."""
    import asyncio

    import anyio

    end, loop = signal.getsignal(signal.SIGINT), asyncio.get_running_loop()

    def cut(*_: object) -> None:
        signal.signal(signal.SIGINT, end)
        loop.call_soon_threadsafe(scope.cancel)

    if end != signal.SIG_IGN:
        signal.signal(signal.SIGINT, cut)
    try:
        with anyio.CancelScope() as scope:
            yield
    finally:  # the loop may be closed when the next one comes
        signal.signal(signal.SIGINT, end)
    if scope.cancelled_caught:
        signal.raise_signal(signal.SIGINT)


def each_done(
    jobs: int, call: Callable[[str], Result], files: Iterable[str]
) -> Generator[tuple[str, Result | None], None, None]:
    """(file, result of `call`) as they are done, by `jobs` processes with one kernel thread each.

    A file that ends its process is tried once more, alone; the second time its result is None.
    Close it: processes that still work are terminated. Raises the errors of `call`.
    """
    # where a signal ends this process, nothing is said of the locks that its pool leaves
    os.environ["PYTHONWARNINGS"] = "ignore:resource_tracker"
    waiting = deque(files)
    while waiting:
        for file in (yield from _in_processes(jobs, call, waiting)):
            if (yield from _in_processes(1, call, deque([file]))):
                yield file, None


def _in_processes(
    jobs: int, call: Callable[[str], Result], waiting: deque[str]
) -> Generator[tuple[str, Result], None, Sequence[str]]:
    """The same until a process ends: returns the files that were in hand. Some are handed over
    ahead."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _begin)
    in_hand: dict[Future[Result], str] = {}
    try:
        while waiting or in_hand:
            while waiting and len(in_hand) < 2 * jobs:
                future = pool.submit(call, waiting[0])
                in_hand[future] = waiting.popleft()
            for future in wait(in_hand, return_when=FIRST_COMPLETED).done:
                found = future.result()
                yield in_hand.pop(future), found
        return ()
    except BrokenProcessPool:
        return list(in_hand.values())
    except BaseException:  # also where it is closed
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """In a new process, which ends with its parent: it holds both ends of the pool's queue, and
    would wait for it for ever."""
    os.environ["OMP_NUM_THREADS"] = "1"  # each core has a process of its own
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends it
    from streamer import programs

    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        if programs._usual is not None:  # a verifier holds a place for it
            programs._usual.close(programs.END_S)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()

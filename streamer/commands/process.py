"""How a command starts, writes and ends, in a process of its own; and its worker processes."""

from __future__ import annotations

import ctypes
import errno
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
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from multiprocessing import connection, resource_tracker
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
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"{error.filename or error!s:.80}... is too long for a path; give a shorter one"
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
    """Without lone surrogates, as in names not in UTF-8: strict readers of JSON refuse them."""
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

    async with Describer.open(config) as describer:
        with loading("the models", is_service):
            await describer.load()
        yield describer


def each_done(
    jobs: int, call: Callable[[str], Result], files: Sequence[str]
) -> Generator[tuple[str, Result | None], None, None]:
    """(file, result of `call`) as they are done, by `jobs` processes with one kernel thread each.

    A file that ends its process is tried once more; the second time its result is None. Close it:
    processes that still work are terminated. Raises the errors of `call`.
    """
    spawn, waiting, tried = multiprocessing.get_context("spawn"), deque(files), set[str]()
    resource_tracker.ensure_running()  # begun by a process's start, it would unblock Ctrl-C
    workers: dict[Any, Any] = {}  # our end of a pipe -> the process at its other end
    in_hand: dict[Any, str] = {}
    try:
        while waiting or in_hand:
            while waiting and len(in_hand) < jobs:
                worker = next((each for each in workers if each not in in_hand), None)
                if worker is None:
                    worker, theirs = spawn.Pipe()
                    workers[worker] = spawn.Process(target=_work, args=(call, theirs))
                    # Ctrl-C ends the first process alone, which ends the others
                    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
                    workers[worker].start()
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
                    theirs.close()
                in_hand[worker] = waiting.popleft()
                with suppress(OSError):  # it has ended: `recv` finds that
                    worker.send(in_hand[worker])
            done: list[Any] = connection.wait(in_hand)
            for worker in done:
                file, found = in_hand.pop(worker), None
                try:
                    found = worker.recv()
                except (EOFError, OSError):
                    del workers[worker]
                    if file not in tried:
                        tried.add(file)
                        waiting.append(file)
                        continue
                if isinstance(found, Exception):
                    raise found
                yield file, found
    finally:
        for worker, process in workers.items():
            if worker in in_hand:
                process.terminate()
            worker.close()  # ends one that waits


def _work(call: Callable[[str], Any], pipe: Any) -> None:
    """A process of its own: the results of `call`, or its errors. It ends with its parent."""
    os.environ["OMP_NUM_THREADS"] = "1"  # each core has a process of its own
    parent: Any = multiprocessing.parent_process()

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the first process has gone
        while True:
            file = pipe.recv()
            try:
                found = call(file)
            except Exception as error:
                found = error
            pipe.send(found)

"""How a command starts, writes and ends, in a process of its own; and its worker processes."""

from __future__ import annotations

import ctypes
import gc
import io
import itertools
import json
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from unicodedata import east_asian_width

from streamer.config import Config, ConfigError
from streamer.core.description import one_line

if TYPE_CHECKING:
    from streamer.describer import Describer


END_S = 3.0  # for a command to end by itself after Ctrl-C
# Garbage collection of a service. A full one visits 600 objects per session, 0.2 s with a thousand
# sessions, and by default many ran while clients connected. Here one runs after 1,000,000 new
# objects, not 70,000, and one of the young after 20,000, in 12 ms. Only sockets leave cycles.
COLLECTS = (2_000, 10, 50)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
_cancel: Callable[[], object] | None = None  # the work of `run_async`
Item = TypeVar("Item")
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


def interrupt(number: int, _: object) -> None:
    """The first Ctrl-C raises KeyboardInterrupt, or cancels the work of `run_async`. END_S later,
    or at a second one, the process ends, whatever its threads wait for."""
    signal.signal(number, lambda *_: os._exit(128 + number))
    end = threading.Timer(END_S, os._exit, [128 + number])
    end.daemon = True
    end.start()
    if _cancel is None:
        raise KeyboardInterrupt(number)
    _cancel()


def run_async(function: Callable[..., Awaitable[int]], *arguments: Any) -> int:
    """`anyio.run` for a command, whose work the first Ctrl-C cancels."""
    import asyncio

    import anyio

    async def work() -> int:
        global _cancel
        task = asyncio.current_task()
        assert task is not None
        _cancel = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
        try:
            return await function(*arguments)
        finally:
            _cancel = None

    try:
        return anyio.run(work)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def prepare() -> None:
    """Escape names that are not UTF-8; show our warnings in one line, without code. A closed stream
    (`>&-`) takes all."""
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.formatwarning = _one_line_of  # type: ignore[assignment]


_as_python_does = warnings.formatwarning


def _one_line_of(message: Any, category: type[Warning], *where: Any) -> str:
    is_ours = category.__module__.startswith("streamer.")
    return f"streamer: {message}\n" if is_ours else _as_python_does(message, category, *where)


@contextmanager
def loading(what: str, is_service: bool = False) -> Iterator[None]:
    """Load modules and models without garbage collection: the objects that are loaded stay.

    A service says so in a line on stderr. Compilation is always reported.
    """
    from streamer.model.kernels.library import on_compiling

    if is_service:
        tell(f"loading {what} ...")

    def compiles(is_kept: bool) -> None:
        told = "compiling kernels for this processor, about 8 s of CPU time"
        fail(f"{told}, {'once' if is_kept else 'at every start'}")

    libc = ctypes.CDLL(None)
    if is_glibc := hasattr(libc, "malloc_trim"):  # give back what loading frees: 10 MB (2026-11)
        libc.mallopt(M_MMAP_THRESHOLD, 128 << 10)
    gc.disable()
    on_compiling.append(compiles)
    try:
        yield
    finally:
        on_compiling.remove(compiles)
        gc.freeze()
        if is_service:
            gc.set_threshold(*COLLECTS)
        gc.enable()
        if is_glibc:  # keep freed memory from here on, so that steps need no new pages
            libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)
            libc.mallopt(M_TRIM_THRESHOLD, 64 << 20)
            libc.malloc_trim(0)


@asynccontextmanager
async def opened(config: Config, is_service: bool = False) -> AsyncIterator[Describer]:
    """A describer whose models are loaded. Raises ModelError."""
    from streamer.describer import Describer

    async with Describer.open(config) as describer:
        with loading("the models", is_service):
            await describer.load()
        yield describer


def each_done(
    jobs: int,
    call: Callable[[Item], Result],
    items: Iterator[Item],
    in_hand: dict[Future[Result], Item],
) -> Generator[Result, None, None]:
    """Results of `call` on each item, as they are done, by `jobs` processes with one kernel thread
    each; a few items are handed over ahead. Close it: processes that still work are terminated.

    in_hand: the items that are not done. Raises the errors of `call`, and BrokenProcessPool.
    """
    others = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(max(1, jobs), spawn, _begin)
    try:
        while True:
            for item in itertools.islice(items, 2 * jobs - len(in_hand)):
                in_hand[pool.submit(call, item)] = item
            if not in_hand:
                return
            for future in wait(in_hand, return_when=FIRST_COMPLETED).done:
                found = future.result()
                del in_hand[future]
                yield found
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
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()

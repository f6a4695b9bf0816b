"""Start, output and end of a command, only for a process of its own; and its worker processes."""

from __future__ import annotations

import ctypes
import errno
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
    Iterable,
    Iterator,
    Mapping,
)
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import asynccontextmanager, contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from streamer.config import Config, ConfigError
from streamer.core.description import one_line

if TYPE_CHECKING:
    from streamer.describer import Describer


END_S = 3.0  # for a command to end by itself after Ctrl-C
_interrupts: list[int] = []  # Ctrl-C came
_first: Callable[..., Any] = signal.default_int_handler  # the action of the first Ctrl-C
_as_python_does = warnings.formatwarning


class StdoutLost(Exception):
    """stdout cannot be written, and not because its reader closed it."""


class StdoutClosed(StdoutLost):
    """There was no stdout from the start (`>&-`)."""


class Failed(Exception):
    """The command cannot go on. Its text is one line with the way out."""


def told_of(error: BaseException) -> str | None:
    """The error as one line for the user; None for a defect."""
    is_full = isinstance(error, MemoryError) or getattr(error, "errno", None) in USED_UP
    if is_full or str(error) == "can't start new thread":
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return f"the system gives no more memory, threads or files ({why}); see `ulimit -a`"
    if isinstance(error, ImportError):
        return f"a module cannot be loaded ({error}); see `ulimit -a`, or install streamer anew"
    from streamer.audio.source import AudioError
    from streamer.model.checkpoint.weights import ModelError
    from streamer.stages.ports import TargetLost

    ours = ConfigError, Failed, StdoutLost, AudioError, ModelError, TargetLost
    return str(error) if isinstance(error, ours) else None


def put(text: str, end: str = "\n") -> None:
    """Write to stdout and flush. Raises StdoutLost, and BrokenPipeError if the reader left.

    A full disk is then reported as such, and not as a defect of the current recording.
    """
    try:
        sys.stdout.write(text + end)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        lost = StdoutClosed if error.errno == errno.EBADF else StdoutLost
        told = f"stdout cannot be written ({error.strerror or error})"
        raise lost(f"{told}; make room, or write elsewhere") from None


def drop_stdout() -> None:
    """Discard the buffer of stdout; otherwise the interpreter would write it at exit."""
    _drop(sys.__stdout__ or sys.stdout, 1)


def drop_stderr() -> None:
    """The same for stderr if it cannot be written: the exit status stays."""
    try:
        sys.stderr.flush()
    except OSError:
        _drop(sys.__stderr__, 2)


def _drop(stream: Any, number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno() if stream else number)
    os.close(nowhere)


def tell(text: str, end: str = "\n") -> None:
    """Write to stderr and flush. If that fails, the work goes on."""
    with suppress(OSError):
        print(text, end=end, file=sys.stderr, flush=True)


def fail(message: str) -> None:
    """One line on stderr."""
    tell(f"streamer: {one_line(message)}")


def recordings_of(paths: Iterable[str]) -> list[str]:
    """The recordings of all paths, which may be directories; reports files that are passed over."""
    from streamer.audio.source import recordings_in

    def pass_over(path: str) -> None:
        fail(f"{path}: is a pipe or a device, and passed over; name it by itself")

    return [file for path in paths for file in recordings_in(path, pass_over)]


def put_json(row: Mapping[str, Any], indent: int | None = None) -> None:
    """An object on stdout, on a line of its own unless it is indented."""
    plain_row = {name: plain(value) for name, value in row.items()}
    put(json.dumps(plain_row, ensure_ascii=False, indent=indent))


def plain(value: Any) -> Any:
    """A text without lone surrogates, such as those of names that are not UTF-8: strict readers of
    JSON refuse them."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt, as Ctrl-C does, so that worker processes are ended. On the
    main thread."""

    def interrupt(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def ends_by_ctrl_c() -> Iterator[None]:
    """The first Ctrl-C raises KeyboardInterrupt, or cancels the work of `run_async`. END_S later,
    or at a second one, the process ends, whatever its threads wait for. Does nothing outside the
    main thread, and in a background job, which ignores Ctrl-C."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        if not _interrupts:  # else our handler stays until the process ends
            signal.signal(signal.SIGINT, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _interrupts:
        os._exit(128 + number)
    _interrupts.append(number)
    with suppress(RuntimeError):  # if no thread can be started
        end = threading.Timer(END_S, os._exit, [128 + number])
        end.daemon = True
        end.start()
    _first(number, frame)


def run_async(function: Callable[..., Awaitable[int]], *arguments: Any) -> int:
    """`anyio.run` for a command, whose work the first Ctrl-C cancels."""
    import asyncio

    import anyio

    async def work() -> int:
        global _first
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel(*_: Any) -> None:
            loop.call_soon_threadsafe(task.cancel)

        _first = cancel
        try:
            return await function(*arguments)
        finally:
            _first = signal.default_int_handler

    try:
        return anyio.run(work)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def is_interrupted() -> bool:
    """Whether Ctrl-C came: an error after it has no other cause."""
    return bool(_interrupts)


def prepare() -> None:
    """Escape names that are not UTF-8; show our warnings in one line, without code. A closed stream
    (`>&-`) is replaced, since the next file that is opened would take its number; one for stdout
    cannot be written."""
    sys.stdout = sys.stdout or _nowhere(os.O_RDONLY)
    sys.stderr = sys.stderr or _nowhere(os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    def told(message: Any, category: type[Warning], *where: Any) -> str:
        is_ours = category.__module__.startswith("streamer.")
        return f"streamer: {message}\n" if is_ours else _as_python_does(message, category, *where)

    warnings.formatwarning = told  # type: ignore[assignment]


def _nowhere(flags: int) -> TextIO:
    return os.fdopen(os.open(os.devnull, flags), "w", encoding="utf-8")


@contextmanager
def loading(what: str, is_service: bool = False) -> Iterator[None]:
    """Load modules and models: no garbage collection, and a line on stderr.

    The objects that are loaded stay, so collecting would be in vain. The line of a service stays,
    others clear it. Compilation is always reported, since it takes about 8 s.
    """
    passes = sys.stderr.isatty() and not is_service
    if is_service or passes:
        tell(f"loading {what} ...", end="" if passes else "\n")
    gc.disable()
    try:
        with _memory_goes_back(), _compiling_is_told(passes):
            yield
    finally:
        gc.freeze()
        if is_service:
            gc.set_threshold(*COLLECTS)
        gc.enable()
        if passes:
            tell("\r\x1b[K", end="")


@asynccontextmanager
async def opened(config: Config, is_service: bool = False) -> AsyncIterator[Describer]:
    """A describer whose models are loaded. Raises ModelError."""
    from streamer.describer import Describer

    edge = [f"edge {config.edge}"] if config.mode != "cloud" or config.is_away else []
    has_cloud = config.mode != "edge" and config.has_cloud_here
    cloud = [f"cloud {config.cloud}"] if has_cloud else []
    async with Describer.open(config) as describer:
        with loading(" and ".join(edge + cloud), is_service=is_service):
            await describer.load()
        yield describer


@contextmanager
def _compiling_is_told(is_in_line: bool) -> Iterator[None]:
    """Report that kernels are compiled: the first run would seem to hang otherwise."""
    from streamer.model.kernels.library import on_compiling

    def tell_it(is_kept: bool) -> None:
        tell("\r\x1b[K" * is_in_line, end="")
        fail(COMPILING + (", once" if is_kept else ", at every start"))

    on_compiling.append(tell_it)
    try:
        yield
    finally:
        on_compiling.remove(tell_it)


@contextmanager
def _memory_goes_back() -> Iterator[None]:
    """Return the memory that loading frees to the system: 40 MB (2026-11). With glibc only."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_trim"):
        yield
        return
    libc.mallopt(M_MMAP_THRESHOLD, 128 << 10)
    try:
        yield
    finally:
        libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)  # as it comes to be by itself: steps need no pages
        libc.mallopt(M_TRIM_THRESHOLD, 64 << 20)
        libc.malloc_trim(0)


# For a service: a full collection looks at 600 objects of each session, 0.2 s with a thousand, and
# many came while they connect. So it comes after 1,000,000 new objects, not 70,000, and one of the
# young after 20,000, in 12 ms. Only sockets wait for them: a session leaves no cycles.
COLLECTS = (2_000, 10, 50)
USED_UP = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
COMPILING = "compiling kernels for this processor, about 8 s of CPU time"


AHEAD = 2  # items for each process that wait for it
Item = TypeVar("Item")
Result = TypeVar("Result")


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
            for item in itertools.islice(items, AHEAD * jobs - len(in_hand)):
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

"""Without async: `streamer.describe("clip.wav")`, also where a loop runs (Jupyter).

One describer stays open, in a thread with a loop of its own, for the next call with the same
options. Other options take its place; the end of the program closes it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack, cast

import anyio
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal

from streamer.audio.file import Source
from streamer.config import Config, ConfigError, Options
from streamer.core.description import Description
from streamer.core.measures.speech_measures import PitchReference
from streamer.describer import Describer
from streamer.forks import FirstUse, Loading
from streamer.stages.batcher import CLOSED

Result = TypeVar("Result")
Called = TypeVar("Called", bound=Callable[..., Any])
END_S = 5.0  # for all describers to close at the end of the program
_lock = threading.Lock()
_calls: dict[Future[Any], threading.Event] = {}  # of open describers; set when nothing runs
_stacks: set[ExitStack] = set()  # of open describers


class How(TypedDict, total=False):
    """Keywords for recordings, as in `Describer.describe`; measures is True unless it is given."""

    measures: bool
    channel: int | None
    track: int | None
    pitch_reference: PitchReference


class Keywords(Options, How, total=False):
    """Those of a describer and of its recordings."""


DEFAULTS: Mapping[str, Any] = {each.name: each.default for each in fields(Config)} | {
    "measures": True
}


def _spelled_out(keywords: Any) -> Callable[[Called], Called]:
    """The keywords stand in the function's signature, for `help` and for completion in
    notebooks."""

    def spell(function: Called) -> Called:
        told = signature(function)
        known = [one for one in told.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        for name, kind in keywords.__annotations__.items():
            default, kind = DEFAULTS.get(name), kind.__forward_arg__
            known.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind))
        function.__signature__ = told.replace(parameters=known)  # type: ignore[attr-defined]
        return function

    return spell


@_spelled_out(Keywords)
def describe(
    source: Source, config: Config | str | Path | None = None, **options: Unpack[Keywords]
) -> Description:
    """Describe one recording and wait for it. Takes what `Describer.open` takes; measures (the
    numbers, True unless it is given), channel, track and pitch_reference are those of its
    `describe`.

    Raises ConfigError, AudioError, ModelError, TargetLost, and TypeError or ValueError for samples
    of another shape or type.
    """
    chosen, how = _parted(config, options, 1)
    return _run(chosen, lambda d: d.describe(source, **how))


@_spelled_out(Keywords)
def describe_many(
    sources: Iterable[Source],
    config: Config | str | Path | None = None,
    *,
    jobs: int = 1,
    **options: Unpack[Keywords],
) -> Sequence[Description | Exception]:
    """Describe recordings, `jobs` (1 to 64) at once; one result for each, in their order.

    A recording that fails has its exception in place of a Description. Raises ConfigError,
    ModelError where no model can be loaded, and TypeError for one path that is not in a list.
    """
    if not 1 <= jobs <= 64:
        raise ConfigError(f"jobs is {jobs}; it may be 1 to 64")
    chosen, how = _parted(config, options, jobs)
    waiting = _listed(sources)
    return _run(chosen, lambda d: _all(d, waiting, jobs, **how))


def _listed(sources: Iterable[Source]) -> list[Source]:
    """Raises TypeError for one path in place of some: its letters would be files."""
    if isinstance(sources, str | bytes | os.PathLike):
        raise TypeError(f"describe_many takes a list of recordings; write [{str(sources)!r:.80}]")
    return list(sources)


def _parted(
    config: Config | str | Path | None, options: Mapping[str, Any], jobs: int
) -> tuple[Config, dict[str, Any]]:
    """The options of a describer for `jobs` recordings at once, and those of each recording."""
    how = {name: options[name] for name in How.__annotations__ if name in options}
    rest = {name: value for name, value in options.items() if name not in how}
    return Config.of(config, rest).for_jobs(jobs), {"measures": True, **how}


async def _all(
    describer: Describer, sources: list[Source], jobs: int, **how: Any
) -> Sequence[Description | Exception]:
    await describer.load()
    found: dict[int, Description | Exception] = {}
    waiting = iter(enumerate(sources))

    async def work() -> None:
        for i, source in waiting:
            try:
                found[i] = await describer.describe(source, **how)
            except Exception as error:
                found[i] = error

    async with anyio.create_task_group() as group:
        for _ in range(min(jobs, len(sources))):
            group.start_soon(work)
    return [found[i] for i in range(len(sources))]


@_spelled_out(Options)
@contextmanager
def open_describer(
    config: Config | str | Path | None = None, /, **options: Unpack[Options]
) -> Iterator[BlockingDescriber]:
    """A describer of your own without async; models load once: `with streamer.open() as d: ...`.

    Takes what `Describer.open` takes. Raises ConfigError, ModelError.
    """
    opened, process = Describer.open(Config.of(config, options)), os.getpid()
    with ExitStack() as stack:
        with Loading():
            portal = stack.enter_context(start_blocking_portal())
            describer = stack.enter_context(portal.wrap_async_context_manager(opened))
            portal.call(describer.load)
        _end_first()
        _stacks.add(stack)
        found = BlockingDescriber(portal, describer)
        try:
            yield found
        finally:
            found.is_closed = True
            _stacks.discard(stack)
            # in a fork, and where it was never closed, its thread is gone
            if os.getpid() != process or sys.is_finalizing():
                _keep(stack.pop_all())


open = open_describer  # as streamer.open


class BlockingDescriber:
    """The result of `streamer.open`. Several threads may use it; each call waits for its result."""

    def __init__(self, portal: BlockingPortal, describer: Describer) -> None:
        self._portal = portal
        self._describer = describer
        self._process = os.getpid()
        self.is_closed = False

    def _call(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """The result of `work`; when the caller is interrupted, it is cancelled. Raises SystemExit
        in a daemon thread at the end of the program."""
        if os.getpid() != self._process:
            raise RuntimeError("this describer is another process's; open one after the fork")
        if self.is_closed:
            raise RuntimeError(CLOSED)
        is_daemon = threading.current_thread().daemon
        if _background.is_over and is_daemon:
            raise SystemExit
        is_idle = threading.Event()

        async def until_idle() -> Result:
            try:
                return await work()
            finally:
                is_idle.set()

        call = self._portal.start_task_soon(until_idle)
        _calls[call] = is_idle
        try:
            return call.result()
        except BaseException:
            call.cancel()
            if _background.is_over and is_daemon:
                raise SystemExit from None
            raise
        finally:
            _calls.pop(call, None)

    @_spelled_out(How)
    def describe(self, source: Source, **how: Unpack[How]) -> Description:
        """As `streamer.describe`."""
        given: dict[str, Any] = {"measures": True, **how}
        return self._call(partial(self._describer.describe, source, **given))

    @_spelled_out(How)
    def describe_many(
        self, sources: Iterable[Source], *, jobs: int = 1, **how: Unpack[How]
    ) -> Sequence[Description | Exception]:
        """As `streamer.describe_many`; at most half of the option `num_slots` are at work."""
        given: dict[str, Any] = {"measures": True, **how}
        return self._call(partial(_all, self._describer, _listed(sources), jobs, **given))


def _keep(what: object) -> None:
    """Never collect it: that would wait for a thread."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(what))


class _Background:
    """The open describer, and the thread it runs in."""

    def __init__(self) -> None:
        self._opening = threading.Lock()
        self._stack = ExitStack()
        self._config: Config | None = None
        self._found: tuple[BlockingPortal, Describer] | None = None
        self.is_over = False
        self._stop: anyio.Event
        self._kept: Future[None]  # done when the describer is closed
        self._call: Future[Any] | None = None
        self._is_idle = threading.Event()

    def open(self, config: Config) -> tuple[BlockingPortal, Describer]:
        """For `config`; a describer with other options is closed. Raises ModelError; at the end of
        the program SystemExit in a daemon thread, and else RuntimeError."""
        if self.is_over and not threading.current_thread().daemon:
            way = "register it with atexit after the first description"
            raise RuntimeError(f"the program is ending, and its describer is closed; {way}")
        with self._opening:
            if self.is_over:
                raise SystemExit
            if self._found is None or self._config != config:
                self._close()
                portal = self._stack.enter_context(start_blocking_portal())
                self._stop = anyio.Event()
                kept: Any = portal.start_task(_keep_open, config, self._stop)
                self._kept, describer = kept
                self._config = config
                self._found = portal, describer
            return self._found

    def _close(self) -> None:
        if self._found is not None:
            portal, _ = self._found
            self._found = None
            portal.call(self._stop.set)
            self._kept.result()
        self._stack.close()

    def run(self, config: Config, work: Callable[[Describer], Awaitable[Result]]) -> Result:
        """Do `work` and wait for it; when the caller is interrupted, it is cancelled."""
        portal, describer = self.open(config)
        self._is_idle.clear()

        async def until_idle() -> Result:
            try:
                await describer.load()
                _end_first()
                return await work(describer)
            finally:
                self._is_idle.set()

        self._call = portal.start_task_soon(until_idle)
        try:
            return cast(Result, self._call.result())
        except BaseException:  # such as Ctrl-C: the turn in hand ends at its next commit
            self._call.cancel()
            if self.is_over:
                raise SystemExit from None
            raise

    def end(self, left_s: Callable[[], float]) -> None:
        """At the end of the program, where a daemon thread may be in a call, or begin one. Waits
        for `left_s()` at most.

        The call is cancelled, since a thread that is ended inside a model's native code aborts the
        process.
        """
        self.is_over = True
        if not self._opening.acquire(timeout=left_s()) or self._found is None:
            return
        portal, _ = self._found
        _keep(self)  # its stack would wait for all calls
        if self._call is not None:
            self._call.cancel()
            self._is_idle.wait(left_s())
        with suppress(Exception):  # the program ends, so an error has no reader
            portal.start_task_soon(self._stop.set)
            self._kept.result(left_s())
            portal.start_task_soon(portal.stop, True).result(left_s())


async def _keep_open(
    config: Config, stop: anyio.Event, *, task_status: TaskStatus[Describer]
) -> None:
    async with Describer.open(config) as describer:
        task_status.started(describer)
        await stop.wait()


_background = _Background()


def _end() -> None:
    until = time.monotonic() + END_S

    def left_s() -> float:
        return max(0.0, until - time.monotonic())

    for call in list(_calls):  # of daemon threads, as those of `_Background.end`
        call.cancel()
    _background.end(left_s)
    for stack in list(_stacks):  # collected now, it might be the thread's end first, which waits
        _keep(stack)
    for is_idle in list(_calls.values()):
        is_idle.wait(left_s())


def _forget() -> None:
    """In a fork, which has no such thread. Closing or collecting the describer would wait for the
    thread, so it stays."""
    global _background, _lock, _calls
    _keep(_background)
    _keep(_calls)
    _calls = {}
    _background, _lock = _Background(), threading.Lock()


def _end_first() -> None:
    """Run `_end` before what the models have registered: their threads must still answer then."""
    atexit.unregister(_end)
    atexit.register(_end)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _run(config: Config, work: Callable[[Describer], Awaitable[Result]]) -> Result:
    with FirstUse(), _lock:
        return _background.run(config, work)

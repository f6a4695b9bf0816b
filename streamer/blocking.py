"""Without async: `streamer.describe("clip.wav")`, also where a loop runs (Jupyter).

One describer stays open, in a thread with a loop of its own, for the next call with the same
options. Other options take its place; the end of the program closes it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, NoReturn, TypedDict, TypeVar, Unpack

import anyio
from anyio.from_thread import start_blocking_portal

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
_lock = threading.Lock()  # one call at a time of the describer that stays open
_threads = threading.Lock()  # while a describer's threads start or end
_calls: dict[Future[Any], threading.Event] = {}  # of all describers; set when nothing runs
_open: set[BlockingDescriber] = set()
_usual: tuple[Config, BlockingDescriber] | None = None  # it stays open
_is_over = False


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
    with _usual_of(chosen) as describer:
        return describer.describe(source, **how)


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
    waiting = _listed(sources)  # before the lock: it may describe others
    with _usual_of(chosen) as describer:
        return describer.describe_many(waiting, jobs=jobs, **how)


def _listed(sources: Iterable[Source]) -> list[Source]:
    """Raises TypeError for one path in place of some: each letter would be a path."""
    if isinstance(sources, str | bytes | os.PathLike):
        raise TypeError(f"describe_many takes a list of recordings; write [{str(sources)!r:.80}]")
    return list(sources)


def _parted(
    config: Config | str | Path | None, options: Mapping[str, Any], jobs: int
) -> tuple[Config, dict[str, Any]]:
    """The options of a describer for `jobs` recordings at once, and those of each recording."""
    how = {name: options[name] for name in How.__annotations__ if name in options}
    rest = {name: value for name, value in options.items() if name not in how}
    return Config.of(config, rest).for_jobs(jobs), how


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
def open_describer(
    config: Config | str | Path | None = None, /, **options: Unpack[Options]
) -> BlockingDescriber:
    """A describer of your own without async; models load once: `with streamer.open() as d: ...`.

    Takes what `Describer.open` takes. Raises ConfigError, ModelError.
    """
    chosen = Config.of(config, options)
    with Loading(), ExitStack() as stack:
        found = stack.enter_context(BlockingDescriber(chosen))
        found.call(Describer.load)
        stack.pop_all()
    return found


open = open_describer  # as streamer.open


class BlockingDescriber:
    """The result of `streamer.open`, which `close` or the end of `with` closes. Several threads may
    use it; each call waits for its result."""

    def __init__(self, config: Config) -> None:
        self._process = os.getpid()
        self._is_closed = False
        with ExitStack() as stack, _may_start():
            self._portal = stack.enter_context(start_blocking_portal())
            opened = self._portal.wrap_async_context_manager(Describer.open(config))
            self._describer = stack.enter_context(opened)
            self._stack = stack.pop_all()
        _open.add(self)

    def __enter__(self) -> BlockingDescriber:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the models back. Later calls raise RuntimeError."""
        self._is_closed = True
        _open.discard(self)
        if os.getpid() == self._process:
            self._stack.close()
        else:
            _keep(self)

    def call(self, work: Callable[[Describer], Awaitable[Result]]) -> Result:
        """The result of `work`, once the models are loaded; when the caller is interrupted, it is
        cancelled. Raises SystemExit in a daemon thread at the end of the program."""
        if os.getpid() != self._process:
            raise RuntimeError("this describer is another process's; open one after the fork")
        if self._is_closed:
            raise RuntimeError(CLOSED)
        is_daemon = threading.current_thread().daemon
        if _is_over and is_daemon:
            raise SystemExit
        is_idle = threading.Event()

        async def until_idle() -> Result:
            try:
                await self._describer.load()
                _end_first()
                return await work(self._describer)
            finally:
                is_idle.set()

        call = self._portal.start_task_soon(until_idle)
        _calls[call] = is_idle
        try:
            return call.result()
        except BaseException:  # such as Ctrl-C: the turn in hand ends at its next commit
            call.cancel()
            if _is_over and is_daemon:
                raise SystemExit from None
            raise
        finally:
            _calls.pop(call, None)

    @_spelled_out(How)
    def describe(self, source: Source, **how: Unpack[How]) -> Description:
        """As `streamer.describe`."""
        given: dict[str, Any] = {"measures": True, **how}
        return self.call(lambda d: d.describe(source, **given))

    @_spelled_out(How)
    def describe_many(
        self, sources: Iterable[Source], *, jobs: int = 1, **how: Unpack[How]
    ) -> Sequence[Description | Exception]:
        """As `streamer.describe_many`; at most half of the option `num_slots` are at work."""
        waiting, given = _listed(sources), {"measures": True, **how}
        return self.call(lambda d: _all(d, waiting, jobs, **given))


@contextmanager
def _usual_of(config: Config) -> Iterator[BlockingDescriber]:
    """The describer that stays open; one with other options is closed."""
    global _usual
    with FirstUse(), _lock:
        if _is_over:
            _refuse()
        if _usual is None or _usual[0] != config:
            if _usual is not None:
                with _may_start():
                    _usual[1].close()
            _usual = None
            _usual = config, BlockingDescriber(config)
        yield _usual[1]


def _refuse() -> NoReturn:
    """At the end of the program."""
    if threading.current_thread().daemon:
        raise SystemExit
    way = "register it with atexit after the first description"
    raise RuntimeError(f"the program is ending, and its describer is closed; {way}")


@contextmanager
def _may_start() -> Iterator[None]:
    """Around the start and the end of threads, which the end of the program waits for."""
    if _is_over:
        _refuse()
    with _threads:
        yield


def _keep(what: object) -> None:
    """Never collect it: that would wait for a thread."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(what))


def _end() -> None:
    """At the end of the program, where daemon threads may be in calls, or begin one. The calls are
    cancelled, since a thread that is ended inside a model's native code aborts the process. Waits
    for END_S at most."""
    global _is_over
    until = time.monotonic() + END_S
    _is_over = True
    _threads.acquire(timeout=END_S)  # for good
    calls = dict(_calls)
    for call in calls:
        call.cancel()
    _keep([*_open])
    for is_idle in calls.values():
        is_idle.wait(max(0.0, until - time.monotonic()))


def _forget() -> None:
    """In a fork, which has no such thread. Closing or collecting the describer would wait for the
    thread, so it stays."""
    global _usual, _lock, _threads, _calls
    _keep((_usual, _calls))
    _usual, _calls = None, {}
    _lock, _threads = threading.Lock(), threading.Lock()


def _end_first() -> None:
    """Run `_end` before what the models have registered: their threads must still answer then."""
    atexit.unregister(_end)
    atexit.register(_end)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

"""Without async: `streamer.describe("clip.wav")`, also where a loop runs (Jupyter).

One describer stays open, in a thread with a loop of its own, for the next call with the same
options. Other options take its place.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

import anyio
from anyio.from_thread import BlockingPortal

from streamer.audio.file import Source
from streamer.config import Config, ConfigError, Options
from streamer.core.description import Description
from streamer.core.measures.speech_measures import PitchReference
from streamer.describer import Describer
from streamer.stages.events import cause_of
from streamer.stages.parts import CLOSED

Result = TypeVar("Result")
Called = TypeVar("Called", bound=Callable[..., Any])
END_S = 5.0  # for a describer to close at the end of the program
_lock = threading.Lock()  # one call at a time of the describer that stays open
_usual: BlockingDescriber | None = None  # it stays open


class How(TypedDict, total=False):
    """Keywords for recordings, as in `Describer.describe`; measures is True unless it is given."""

    measures: bool
    channel: int | None
    track: int | None
    pitch_reference: PitchReference


class Keywords(Options, How, total=False):
    """Those of a describer and of its recordings."""


def _spelled_out(keywords: Any) -> Callable[[Called], Called]:
    """The keywords stand in the function's signature, for `help` and completion in notebooks."""
    defaults = {each.name: each.default for each in fields(Config)} | {"measures": True}
    options = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=defaults.get(name),
            annotation=kind.__forward_arg__,
        )
        for name, kind in keywords.__annotations__.items()
    ]

    def spell(function: Called) -> Called:
        own = signature(function)
        *known, _ = own.parameters.values()
        function.__signature__ = own.replace(parameters=[*known, *options])  # type: ignore[attr-defined]
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
    with _usual_of(config, options, 1) as (describer, how):
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
    waiting = _listed(sources)  # before the lock: it may describe others
    with _usual_of(config, options, jobs) as (describer, how):
        return describer.describe_many(waiting, jobs=jobs, **how)


def _listed(sources: Iterable[Source]) -> list[Source]:
    """Raises TypeError for one path in place of some: each letter would be a path."""
    if isinstance(sources, str | bytes | os.PathLike):
        raise TypeError(f"describe_many takes a list of recordings; write [{str(sources)!r:.80}]")
    return list(sources)


@contextmanager
def _usual_of(
    config: Config | str | Path | None, options: Mapping[str, Any], jobs: int
) -> Iterator[tuple[BlockingDescriber, dict[str, Any]]]:
    """The describer that stays open, for `jobs` recordings at once; one with other options is
    closed. And those of the options that are each recording's."""
    global _usual
    how = {name: value for name, value in options.items() if name in How.__annotations__}
    rest = {name: value for name, value in options.items() if name not in how}
    chosen = Config.of(config, rest).for_jobs(jobs)
    with _lock:
        if _usual is not None and _usual.config != chosen:
            _usual.close()
            _usual = None
        _usual = _usual or BlockingDescriber(chosen)
        yield _usual, how


@_spelled_out(Options)
def open(
    config: Config | str | Path | None = None, /, **options: Unpack[Options]
) -> BlockingDescriber:
    """A describer of your own without async; models load once: `with streamer.open() as d: ...`.

    Takes what `Describer.open` takes. Raises ConfigError, ModelError.
    """
    return BlockingDescriber(Config.of(config, options))


class BlockingDescriber:
    """The result of `streamer.open`, which `close` or the end of `with` closes. Several threads may
    use it; each call waits for its result."""

    def __init__(self, config: Config) -> None:
        self.config = config
        opened: Future[tuple[BlockingPortal, Describer]] = Future()
        self._thread = threading.Thread(target=anyio.run, args=(_serve, config, opened))
        self._thread.daemon = True
        self._thread.start()
        self._portal, self._describer = opened.result()
        # A daemon thread that is killed inside a model's native code aborts the process.
        atexit.register(self.close, END_S)

    def __enter__(self) -> BlockingDescriber:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, timeout_s: float | None = None) -> None:
        """Give the models back. Later calls raise RuntimeError."""
        atexit.unregister(self.close)
        if self._thread.is_alive():
            self._portal.start_task_soon(self._portal.stop, True)
            self._thread.join(timeout_s)

    def _call(self, work: Callable[[Describer], Awaitable[Result]]) -> Result:
        """The result of `work`, which is cancelled when the caller is interrupted. A daemon thread
        ends here at the end of the program."""
        call: Future[Result] | None = None
        try:
            if not self._thread.is_alive():  # a fork has no such thread either
                raise RuntimeError(f"{CLOSED}; a fork needs one of its own")
            call = self._portal.start_task_soon(work, self._describer)
            return call.result()
        except BaseException:  # such as Ctrl-C: the turn in hand ends at its next commit
            if call is not None:
                call.cancel()
            is_end = not threading.main_thread().is_alive()
            if is_end and threading.current_thread().daemon:
                raise SystemExit from None
            raise

    def describe(self, source: Source, **how: Unpack[How]) -> Description:
        """As `streamer.describe`."""
        given: dict[str, Any] = {"measures": True, **how}
        return self._call(lambda d: d.describe(source, **given))

    def describe_many(
        self, sources: Iterable[Source], *, jobs: int = 1, **how: Unpack[How]
    ) -> Sequence[Description | Exception]:
        """As `streamer.describe_many`; at most half of the option `num_slots` are at work."""
        waiting, given = _listed(sources), {"measures": True, **how}
        return self._call(lambda d: _all(d, waiting, jobs, given))


async def _all(
    describer: Describer, sources: list[Source], jobs: int, how: dict[str, Any]
) -> Sequence[Description | Exception]:
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


async def _serve(config: Config, opened: Future[tuple[BlockingPortal, Describer]]) -> None:
    """Serves a describer's calls in a thread of its own, until the portal is stopped."""
    try:
        async with Describer.open(config) as describer:
            await describer.load()
            async with BlockingPortal() as portal:
                opened.set_result((portal, describer))
                await portal.sleep_until_stopped()
    except BaseException as error:
        if opened.done():
            raise
        opened.set_exception(cause_of(error))


def _forget() -> None:
    """Forget all in a fork, which has none of these threads."""
    global _usual, _lock
    _usual, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)

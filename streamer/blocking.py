"""Without async: `streamer.describe("clip.wav")`, also where a loop runs (Jupyter).

One describer stays open, in a thread with a loop of its own, for the next call with the same
options. Other options take its place; the end of the program closes it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from streamer.audio.file import Source
from streamer.config import Config, ConfigError
from streamer.core.description import Description
from streamer.describer import Describer

Result = TypeVar("Result")
_lock = threading.Lock()


def describe(
    source: Source,
    config: Config | str | Path | None = None,
    *,
    measures: bool = False,
    channel: int | None = None,
    **options: Any,
) -> Description:
    """Describe one recording and wait for it. Takes what `Describer.open` takes; measures and
    channel are those of its `describe`.

    Raises ConfigError, AudioError, ModelError, TargetLost, and TypeError or ValueError for samples
    of another shape or type.
    """
    chosen = Config.of(config, options).for_jobs(1)
    return _run(chosen, lambda d: d.describe(source, measures=measures, channel=channel))


def describe_many(
    sources: Iterable[Source],
    config: Config | str | Path | None = None,
    *,
    jobs: int = 1,
    measures: bool = False,
    channel: int | None = None,
    **options: Any,
) -> Sequence[Description | Exception]:
    """Describe recordings, `jobs` (1 to 64) at once; one result for each, in their order.

    A recording that fails has its exception in place of a Description. Raises ConfigError, and
    ModelError where no model can be loaded.
    """
    if not 1 <= jobs <= 64:
        raise ConfigError(f"jobs is {jobs}; it may be 1 to 64")
    chosen = Config.of(config, options).for_jobs(jobs)
    waiting = list(sources)
    return _run(chosen, lambda d: _all(d, waiting, jobs, measures, channel))


async def _all(
    describer: Describer, sources: list[Source], jobs: int, measures: bool, channel: int | None
) -> Sequence[Description | Exception]:
    await describer.load()
    found: dict[int, Description | Exception] = {}
    waiting = iter(enumerate(sources))

    async def work() -> None:
        for i, source in waiting:
            try:
                found[i] = await describer.describe(source, measures=measures, channel=channel)
            except Exception as error:
                found[i] = error

    async with anyio.create_task_group() as group:
        for _ in range(min(jobs, len(sources))):
            group.start_soon(work)
    return [found[i] for i in range(len(sources))]


class _Background:
    """The open describer, and the thread it runs in."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._config: Config | None = None
        self._found: tuple[BlockingPortal, Describer] | None = None

    def open(self, config: Config) -> tuple[BlockingPortal, Describer]:
        """For `config`; a describer with other options is closed. Raises ModelError."""
        if self._found is None or self._config != config:
            self.close()
            portal = self._stack.enter_context(start_blocking_portal())
            opened = portal.wrap_async_context_manager(Describer.open(config))
            self._config = config
            self._found = portal, self._stack.enter_context(opened)
        return self._found

    def close(self) -> None:
        self._found = None
        self._stack.close()


_background = _Background()


def _close() -> None:
    _background.close()


def _forget() -> None:
    """In a fork, which has no such thread. Closing or collecting the describer would wait for the
    thread, so it stays."""
    global _background, _lock
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_background))
    _background, _lock = _Background(), threading.Lock()


atexit.register(_close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _run(config: Config, work: Callable[[Describer], Awaitable[Result]]) -> Result:
    """Do `work` in the background and wait for it; one call at a time.

    When the caller is interrupted, the work is cancelled.
    """
    with _lock:
        portal, describer = _background.open(config)
        waiting = portal.start_task_soon(work, describer)
        try:
            return waiting.result()
        except BaseException:  # such as Ctrl-C: the turn in hand ends at its next commit
            waiting.cancel()
            raise

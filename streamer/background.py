"""Something async that stays open in a thread with a loop of its own. In: how it is opened, and
work for it. Out: the work's result, also where a loop runs already (Jupyter).

A second call for the same options opens nothing. Other options take its place; the end of the
program closes it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import Any, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from streamer.config import Config

Opened = TypeVar("Opened")
Result = TypeVar("Result")
_lock = threading.Lock()


class _Background:
    """What is open, and the thread it runs in."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._config: Config | None = None
        self._found: tuple[BlockingPortal, Any] | None = None

    def open(
        self, opens: Callable[[Config], AbstractAsyncContextManager[Opened]], config: Config
    ) -> tuple[BlockingPortal, Opened]:
        """For `config`; what is open for other options is closed. Raises ModelError."""
        if self._found is None or self._config != config:
            self.close()
            portal = self._stack.enter_context(start_blocking_portal())
            opened = portal.wrap_async_context_manager(opens(config))
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
    """In a fork: the thread did not come along. What it held can be neither closed nor collected,
    each would wait for it, so it stays."""
    global _background, _lock
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_background))
    _background, _lock = _Background(), threading.Lock()


atexit.register(_close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def in_background(
    opens: Callable[[Config], AbstractAsyncContextManager[Opened]],
    config: Config,
    work: Callable[[Opened], Awaitable[Result]],
) -> Result:
    """Do `work` with what `opens` opens, in its thread, and wait for it; one call at a time.

    When the caller is interrupted, the work is cancelled.
    """
    with _lock:
        portal, opened = _background.open(opens, config)
        waiting = portal.start_task_soon(work, opened)
        try:
            return waiting.result()
        except BaseException:  # such as Ctrl-C: what is in hand ends at its next commit
            waiting.cancel()
            raise

"""Refuses to work in a process that was forked while another thread was loading streamer.

That thread is gone there, and its locks, such as those of Python's imports, are never given back:
the process would wait for ever.
"""

from __future__ import annotations

# Loaded with the package itself: no import that a working directory could answer.
import os
from _thread import get_ident

_loading: dict[object, int] = {}  # each use that loads -> its thread
_is_warm = False
_is_cut_off = False


def check() -> None:
    """Raises RuntimeError where this process cannot describe."""
    if _is_cut_off:
        ways = "fork when its description is done, or start processes by spawn"
        raise RuntimeError(f"this process was forked while a thread was loading streamer; {ways}")


class Loading:
    """`with Loading(): ...` around what may import modules or load models. Raises RuntimeError as
    `check`."""

    def __enter__(self) -> None:
        check()
        _loading[self] = get_ident()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _loading.pop(self, None)


class FirstUse(Loading):
    """The same for a whole use, until one has ended well: it imports modules up to its end."""

    def __enter__(self) -> None:
        check() if _is_warm else super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        global _is_warm
        _is_warm |= kind is None
        super().__exit__(kind)


def _forked() -> None:
    global _is_cut_off
    _is_cut_off |= any(thread != get_ident() for thread in _loading.values())
    _loading.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

"""How a command of ours starts. In: the loading of modules and models. Out: it takes less time, and
is told."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_as_python_does = warnings.formatwarning


@contextmanager
def loading() -> Iterator[None]:
    """No garbage is looked for while modules and models are loaded, nor ever again in what then is
    there.

    All of it stays, over a million objects: going through them again and again is a seventh of a
    cold start (2026-11). For a process of our own only.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def tell_loading(what: str) -> None:
    """One line on stderr: models take seconds, and a server that says nothing looks dead."""
    print(f"loading {what} ...", file=sys.stderr, flush=True)


def tell_warnings_plainly() -> None:
    """Our own warnings are one line on stderr, without the code that gave them. For a process of
    our own only."""

    def told(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        line: str | None = None,
    ) -> str:
        is_ours = category.__module__.startswith("streamer.")
        return (
            f"streamer: {message}\n"
            if is_ours
            else _as_python_does(message, category, filename, lineno, line)
        )

    warnings.formatwarning = told

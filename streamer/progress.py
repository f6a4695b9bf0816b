"""A progress line with the time left, on stderr alone."""

from __future__ import annotations

import os
import sys
import time
from contextlib import AbstractContextManager
from typing import ClassVar
from unicodedata import east_asian_width

CELLS = 30
REDRAWN_S = 0.1  # between two drawings
CLEAR = "\r\x1b[K"


class Bar(AbstractContextManager["Bar", None]):
    """Shows nothing unless stderr is a terminal, and leaves nothing on it. One is shown at a time;
    write text to the same terminal after `hide`."""

    _drawn_s: ClassVar[float | None] = None  # None: it is hidden

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._is_possible = sys.stderr is not None and sys.stderr.isatty()
        self._began_s = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.hide()

    def show(self, done: float, note: str) -> None:
        """Show `done` of the total, and `note` after the bar."""
        now_s, before_s = time.monotonic(), Bar._drawn_s
        if not self._is_possible or (before_s is not None and now_s - before_s < REDRAWN_S):
            return
        Bar._drawn_s = now_s
        share = min(1.0, done / self._total) if self._total else 1.0
        cells = round(CELLS * share)
        left = f"{clock((now_s - self._began_s) * (1 - share) / share)} left" if share else ""
        line = f"{self._what} {'━' * cells}{'╌' * (CELLS - cells)} {note} {left}"
        print(CLEAR + fitted(line), end="", file=sys.stderr, flush=True)

    @staticmethod
    def hide() -> None:
        if Bar._drawn_s is not None:
            Bar._drawn_s = None
            print(CLEAR, end="", file=sys.stderr, flush=True)


def fitted(line: str) -> str:
    """The part of a line that takes one row of the terminal of stderr, so that it can be erased."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):  # stderr is no terminal
        columns = 80
    num_wide = sum(east_asian_width(c) in "WF" for c in line)  # such as a Chinese character
    return line[: max(0, columns - 1 - num_wide)]


def clock(seconds: float) -> str:
    """3725.4 -> 1:02:05, 65 -> 1:05."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

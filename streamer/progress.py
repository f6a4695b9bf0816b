"""A progress line with the time left, on stderr alone."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import time
from contextlib import suppress

BAR_CELLS = 30
REDRAWN_S = 0.1  # between two drawings
CLEAR = "\r\x1b[K"


class Bar:
    """Shows nothing unless stderr is a terminal, and leaves nothing on it.

    Write text to the same terminal after `hide`. A pipe may end in that terminal too (`| tee`), at
    an unknown time: a bar that is `beside_text` is not shown then.
    """

    def __init__(self, what: str, total: int, *, beside_text: bool = False) -> None:
        self._what = what
        self._total = total
        is_possible = _is_terminal() and os.environ.get("TERM") != "dumb"
        self._is_possible = is_possible and not (beside_text and _is_piped())
        self._is_shown = False
        self._began_s = self._drawn_s = -1.0

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def show(self, done: float, note: str) -> None:
        """Show `done` of the total, and `note` after the bar."""
        now_s = time.monotonic()
        if self._began_s < 0:
            self._began_s = now_s
        is_due = not self._is_shown or now_s - self._drawn_s >= REDRAWN_S or done >= self._total
        if self._is_possible and is_due:
            self._drawn_s, self._is_shown = now_s, True
            self._write(CLEAR + self._line(done, note, now_s - self._began_s))

    def hide(self) -> None:
        if self._is_shown:
            self._is_shown = False
            self._write(CLEAR)

    def _line(self, done: float, note: str, elapsed_s: float) -> str:
        share = min(1.0, done / self._total) if self._total else 1.0
        cells = round(BAR_CELLS * share)
        left = f"{clock(elapsed_s * (1 - share) / share)} left" if share else ""
        line = f"{self._what} {'━' * cells}{'╌' * (BAR_CELLS - cells)} {note} {left}"
        return line[: shutil.get_terminal_size().columns - 1]

    @staticmethod
    def _write(text: str) -> None:
        with suppress(OSError, ValueError, UnicodeEncodeError):  # the terminal may be gone
            sys.stderr.write(text)
            sys.stderr.flush()


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (ValueError, AttributeError):  # closed, or None in a program without a console
        return False


def _is_piped() -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):  # closed, or a notebook's
        return False


def clock(seconds: float) -> str:
    """3725.4 -> 1:02:05, 65 -> 1:05."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

"""A progress line with the time left, on stderr alone."""

from __future__ import annotations

import shutil
import sys
import time

BAR_CELLS = 30
REDRAWN_S = 0.1  # between two drawings
CLEAR = "\r\x1b[K"


class Bar:
    """Shows nothing unless stderr is a terminal, and leaves nothing on it. Write text to the same
    terminal after `hide`."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._is_possible = sys.stderr is not None and sys.stderr.isatty()
        self._is_shown = False
        self._began_s = time.monotonic()
        self._drawn_s = 0.0

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def show(self, done: float, note: str) -> None:
        """Show `done` of the total, and `note` after the bar."""
        now_s = time.monotonic()
        if self._is_possible and (not self._is_shown or now_s - self._drawn_s >= REDRAWN_S):
            self._drawn_s, self._is_shown = now_s, True
            line = self._line(done, note, now_s - self._began_s)
            print(CLEAR + line, end="", file=sys.stderr, flush=True)

    def hide(self) -> None:
        if self._is_shown:
            self._is_shown = False
            print(CLEAR, end="", file=sys.stderr, flush=True)

    def _line(self, done: float, note: str, elapsed_s: float) -> str:
        share = min(1.0, done / self._total) if self._total else 1.0
        cells = round(BAR_CELLS * share)
        left = f"{clock(elapsed_s * (1 - share) / share)} left" if share else ""
        line = f"{self._what} {'━' * cells}{'╌' * (BAR_CELLS - cells)} {note} {left}"
        return line[: shutil.get_terminal_size().columns - 1]


def clock(seconds: float) -> str:
    """3725.4 -> 1:02:05, 65 -> 1:05."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

"""A progress bar with the time left, on stderr alone."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


class Bar:
    """Shows nothing unless stderr is a terminal, and leaves nothing on it.

    It never touches stdout: rich would send that to stderr too, and a file or a pipe would stay
    empty. Write text to the same terminal after `hide`. A pipe may end in that terminal too
    (`| tee`), at an unknown time: a bar that is `beside_text` is not shown then.
    """

    def __init__(self, what: str, total: int, *, beside_text: bool = False) -> None:
        self._what = what
        self._total = total
        is_possible = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._is_possible = is_possible and not (beside_text and _is_piped())
        self._progress: Progress | None = None
        self._is_shown = False

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def show(self, done: float, note: str) -> None:
        """Show `done` of the total, and `note` after the bar."""
        if not self._is_possible:
            return
        if self._progress is None:
            self._progress = _progress(self._what, self._total)
        self._progress.update(self._progress.task_ids[0], completed=done, note=note)
        if not self._is_shown:
            self._progress.start()
            self._is_shown = True

    def hide(self) -> None:
        """Until `show` is called again."""
        if self._progress is not None and self._is_shown:
            self._progress.stop()
            self._is_shown = False


def _is_piped() -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):  # closed, or a notebook's
        return False


def _progress(what: str, total: int) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(what),
        BarColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TextColumn("time left"),
        TimeRemainingColumn(compact=True),
    )
    progress = Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False
    )
    progress.add_task(what, total=total, note="")
    return progress


def clock(seconds: float) -> str:
    """3725.4 -> 1:02:05, 65 -> 1:05."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

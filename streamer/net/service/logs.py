"""Log lines for an operator: errors, and notices at a limited rate. Nothing is written unless a
handler is attached.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TextIO

EVERY_S = 10.0  # between two notices
_notices = logging.getLogger("streamer.notice")
_logger = logging.getLogger("streamer")
_logger.addHandler(logging.NullHandler())


class Notices:
    """Lines at WARNING, at most one in EVERY_S. Events in between are counted. The last change of a
    state is logged in the end, since `state` is called again and again while it lasts."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged_at = -math.inf
        self._is_good: bool | None = None  # as logged
        self._num_unlogged = 0

    def state(self, is_good: bool, told: str) -> None:
        """A state may have changed. One that is good at the start is not logged."""
        if self._is_good is None and is_good:
            self._is_good = True
        if is_good != self._is_good and self._is_due():
            self._is_good = is_good
            _notices.warning(told)

    def event(self, told: str) -> None:
        """Something happened that may happen often."""
        self._num_unlogged += 1
        if self._is_due():
            more = f"; {self._num_unlogged - 1} more before it" if self._num_unlogged > 1 else ""
            self._num_unlogged = 0
            _notices.warning(told + more)

    def _is_due(self) -> bool:
        now = self._clock()
        if now - self._logged_at < EVERY_S:
            return False
        self._logged_at = now
        return True


def notice(told: str) -> None:
    """Log one line; for lines that come at most once."""
    _notices.warning(told)


def log_to(stream: TextIO) -> None:
    """Write notices and errors to `stream`, an error with its traceback."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("streamer: %(message)s"))
    _logger.addHandler(handler)

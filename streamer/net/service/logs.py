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
notices = logging.getLogger("streamer.notice")  # for lines that come seldom
_logger = logging.getLogger("streamer")
_logger.addHandler(logging.NullHandler())


class StateNotices:
    """Lines at WARNING about a state, at most one in EVERY_S. `state` is called again and again, so
    the last change is logged in the end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged_at = -math.inf
        self._was_good = True  # as logged

    def state(self, is_good: bool, told: str) -> None:
        """The state may have changed. One that is good at the start is not logged."""
        now = self._clock()
        if is_good != self._was_good and now - self._logged_at >= EVERY_S:
            self._was_good, self._logged_at = is_good, now
            notices.warning(told)


def log_to(stream: TextIO) -> None:
    """Write notices and errors to `stream`, an error with its traceback."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("streamer: %(message)s"))
    _logger.addHandler(handler)

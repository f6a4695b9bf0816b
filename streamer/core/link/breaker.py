"""Whether it is worth asking a target elsewhere now. In: what happened, the time. Out: yes or no.

Opens when the link is lost or a verdict did not come in time; closes by itself when the verifier
has answered a ping that was sent since, and the pause is over, which doubles with every failure in
a row. So one that answers pings and never verifies costs one verify budget per pause, not one per
block.
"""

from __future__ import annotations

import math

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0


class Breaker:
    """Times are seconds of any monotonic clock."""

    def __init__(self) -> None:
        self.num_failures = 0  # in a row
        self._is_linked = self._is_answering = False
        self._failed_at = self._retry_at = -math.inf

    def is_closed(self, now: float) -> bool:
        """Whether to ask."""
        return self._is_linked and self._is_answering and now >= self._retry_at

    @property
    def pause_s(self) -> float:
        """How long to wait after the latest failure."""
        return (
            min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self.num_failures - 1))
            if self.num_failures
            else 0.0
        )

    def answered(self, asked_at: float) -> None:
        """The verifier answered a ping that was sent then: there is a link. One sent before a
        failure tells no more."""
        self._is_linked = True
        if asked_at >= self._failed_at:
            self._is_answering = True

    def unlinked(self) -> None:
        """The link is gone. That is no failure of the verifier's: a new one may be there at
        once."""
        self._is_linked = False

    def failed(self, now: float, asked_at: float = math.inf) -> None:
        """A verdict did not come, or cannot be. One asked for before the latest failure tells no
        more than that did: turns that miss the same outage count once."""
        if asked_at < self._failed_at:
            return
        self.num_failures += 1
        self._is_answering = False
        self._failed_at = now
        self._retry_at = now + self.pause_s

    def succeeded(self) -> None:
        """A verdict came."""
        self.num_failures = 0
        self._is_answering = True
        self._failed_at = self._retry_at = -math.inf

"""When to connect to a verifier elsewhere, and when to ask it.

`Redial` paces connections, and `Breaker` decides whether asking is worth it. Times are seconds of
any monotonic clock.
"""

from __future__ import annotations

import math
from collections import deque

PAUSES_S = (0.02, 0.1, 0.25, 0.5, 1.0, 2.0)  # after a failure; the last one from then on
WINDOW_S = 30.0
# of a pause, up or down: edges that lost one verifier do not come back to it all at once
JITTER = 0.25
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0


def pause_s(num: int, chance: float) -> float:
    """The pause after the `num`-th failure, 0 for none. chance: the caller's, 0 to 1."""
    if num <= 0:
        return 0.0
    return PAUSES_S[min(num, len(PAUSES_S)) - 1] * (1.0 + JITTER * (2.0 * chance - 1.0))


class Redial:
    """Pauses before new connections: they grow with the failures of the last WINDOW_S.

    A connection that is accepted and dropped counts like one that is refused; a verdict forgets all
    failures. With the least jitter a verifier that drops everything is asked at most 8 times in the
    first 5 s, and 5 times in any later ones.
    """

    def __init__(self) -> None:
        self._failures: deque[float] = deque(maxlen=len(PAUSES_S))

    def failed(self, now: float, dialled_at: float) -> None:
        """A connection failed. Those that were dialled before the latest failure count with it."""
        if not self._failures or dialled_at >= self._failures[-1]:
            self._failures.append(now)

    def succeeded(self) -> None:
        """A connection brought a verdict."""
        self._failures.clear()

    def num_failures(self, now: float) -> int:
        """How many there were lately."""
        return sum(now - at < WINDOW_S for at in self._failures)


class Breaker:
    """Whether asking the verifier is worth it now.

    It opens when the connection is lost or a verdict is late. It closes when the verifier has
    answered a later ping and the pause is over. The pause doubles with every failure in a row, so a
    verifier that answers pings and never verifies costs one verify budget per pause, not one per
    block.
    """

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
        if not self.num_failures:
            return 0.0
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self.num_failures - 1))

    def answered(self, asked_at: float) -> None:
        """A ping that was sent at `asked_at` was answered; one from before a failure proves
        nothing about now."""
        self._is_linked = True
        if asked_at >= self._failed_at:
            self._is_answering = True

    def unlinked(self) -> None:
        """The connection is gone. This is no failure: a new one may be there at once."""
        self._is_linked = False

    def failed(self, now: float, asked_at: float = math.inf) -> None:
        """A verdict was late, or wrong. Requests from before the latest failure count with it, so
        turns that miss the same outage count once."""
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

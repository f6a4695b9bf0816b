"""When to connect again, and whether to ask. In: what happened, the time. Out: pauses, yes or no.

`Redial` says how long to wait before the next link. `Breaker` says whether it is worth asking the
verifier now. Times are seconds of any monotonic clock.
"""

from __future__ import annotations

import math
from collections import deque

PAUSES_S = (0.02, 0.1, 0.25, 0.5, 1.0, 2.0)  # the last one from then on
WINDOW_S = 30.0
# of a pause, up or down: edges that lost one verifier do not come back to it all at once
JITTER = 0.25
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0


class Redial:
    """The pause grows with the links of the last WINDOW_S, however long each of them lived.

    A link that is accepted and dropped after a second is no better than one that is refused. A turn
    that was verified to its end on a link forgets them all. With the least jitter that is at most 8
    links in the first 5 s, and 5 in any later ones.
    """

    def __init__(self) -> None:
        self._dials: deque[float] = deque(maxlen=len(PAUSES_S))

    def dialled(self, now: float) -> None:
        """A link is asked for."""
        self._dials.append(now)

    def succeeded(self) -> None:
        """The link did what it is for."""
        self._dials.clear()

    def pause_s(self, now: float, chance: float) -> float:
        """How long to wait before the next link. `chance`: the caller's, 0 to 1."""
        num_recent = sum(now - at < WINDOW_S for at in self._dials)
        return jittered(PAUSES_S[min(max(0, num_recent - 1), len(PAUSES_S) - 1)], chance)


def jittered(pause_s: float, chance: float) -> float:
    """`pause_s`, a little shorter or longer."""
    return pause_s * (1.0 + JITTER * (2.0 * chance - 1.0))


class Breaker:
    """Whether it is worth asking a target elsewhere now.

    It opens when the link is lost or a verdict did not come in time. It closes by itself when the
    verifier has answered a ping that was sent since, and the pause is over. The pause doubles with
    every failure in a row, so a verifier that answers pings and never verifies costs one verify
    budget per pause, not one per block.
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
        """A ping sent then was answered. One from before a failure tells no more than a link."""
        self._is_linked = True
        if asked_at >= self._failed_at:
            self._is_answering = True

    def unlinked(self) -> None:
        """The link is gone, which is no failure: a new one may be there at once."""
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

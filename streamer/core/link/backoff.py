"""When to connect again. In: when a link was asked for, what it was good for. Out: how long to wait
before the next.

The pause grows with the links of the last WINDOW_S, however long each of them lived: one that is
accepted and dropped after a second is no better than one that is refused. A turn that was verified
to its end on a link forgets them all. With the least jitter that is at most 8 links in the first 5
s, and 5 in any later ones.
"""

from __future__ import annotations

from collections import deque

PAUSES_S = (0.02, 0.1, 0.25, 0.5, 1.0, 2.0)  # the last one from then on
WINDOW_S = 30.0
# of a pause, up or down: edges that lost one verifier do not come back to it all at once
JITTER = 0.25


class Redial:
    """Times are seconds of any monotonic clock; chance is the caller's, 0..1."""

    def __init__(self) -> None:
        self._dials: deque[float] = deque(maxlen=len(PAUSES_S))

    def dialled(self, now: float) -> None:
        """A link is asked for."""
        self._dials.append(now)

    def succeeded(self) -> None:
        """The link did what it is for."""
        self._dials.clear()

    def pause_s(self, now: float, chance: float) -> float:
        """How long to wait before the next link."""
        num_recent = sum(now - at < WINDOW_S for at in self._dials)
        return jittered(PAUSES_S[min(max(0, num_recent - 1), len(PAUSES_S) - 1)], chance)


def jittered(pause_s: float, chance: float) -> float:
    """`pause_s`, a little shorter or longer."""
    return pause_s * (1.0 + JITTER * (2.0 * chance - 1.0))

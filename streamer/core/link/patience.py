"""How long a file waits until a verifier has heard it. In: seconds. Out: when to go on.

The wait is there so that a file's times are a live turn's, so it is no longer than a live turn
would have given. Where the edge may go on unverified, the verifier has what a live one has, the
audio's own duration from its first sample on; one that is behind by then is a slow verifier, and
the verdict's own budget says the rest. One that makes no progress for a budget and SLACK_S, STUCK_S
at most, is not waited for, nor asked in this turn before it has heard all. Where the verdict is
needed (exact, cloud), a link that is slower than speech is waited for as long as it moves: up to
SLOWEST times the duration and a budget, and for one budget without progress.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

STUCK_S = 2.0  # a verifier hears up to 1 s of audio before it says so
SLACK_S = 0.25
SLOWEST = 8  # of real time: a link of 32 kbit/s


@dataclass(frozen=True, slots=True)
class Patience:
    """budget_s: for a verdict. goes_on: without one (gated, or exact that may degrade)."""

    budget_s: float = 5.0
    goes_on: bool = True

    @property
    def stuck_s(self) -> float:
        """Without progress."""
        return min(STUCK_S, self.budget_s + SLACK_S) if self.goes_on else self.budget_s

    def ends_at(self, began_at: float, since: float, audio_s: float) -> float:
        """The latest time, of a turn of `audio_s` from `began_at` on, waited for since `since`."""
        if self.goes_on:
            return max(since, began_at + audio_s)
        return max(since, began_at + SLOWEST * audio_s) + self.budget_s


class VerifierProgress:
    """How far a verifier is with one turn, by its word; `moved_at`: its last news."""

    def __init__(self) -> None:
        self.began_at = math.inf
        self.moved_at = -math.inf
        self._num_heard = -1  # on this link, at most

    def began(self, now: float) -> None:
        """There are samples."""
        self.began_at = min(self.began_at, now)

    def attach(self) -> None:
        """A new link: the turn is opened there anew, and its slot may be lost."""
        self._num_heard = -1

    def heard(self, num_samples: int, now: float) -> None:
        """It has opened the turn (0), or heard so much. To say it again is no progress."""
        if num_samples > self._num_heard:
            self._num_heard = num_samples
            self.moved_at = now

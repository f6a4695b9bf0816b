"""Whether a voice has changed. In: how far a value of speech is from usual. Out: evidence, in nats,
that grows while they differ.

Page's test (1954): the log-likelihood of a shift against none, summed and never under 0. Of all
tests that tell as rarely for nothing, none is sooner for that shift (Moustakides, 1986). A greater
shift is told sooner; one of under half of it, never.
"""

from __future__ import annotations

import numpy as np

from streamer.core.coach.voice import STEPS_PER_S, Floats

PRIOR_S = 40  # so much the SD of people counts beside a speaker's own


class Evidence:
    """For one shift, given at each step in SDs of a second's mean; negative: downwards."""

    def __init__(self, limit: float) -> None:
        self.nats = 0.0  # 0 to limit
        self._limit = limit

    @property
    def is_enough(self) -> bool:
        """Whether the limit is reached."""
        return self.nats >= self._limit

    def weigh(self, deviation: float, seconds: float, shift: float) -> None:
        """deviation: the sum over `seconds` of speech of how far the value is from usual, in SDs of
        a second, times seconds."""
        gained = shift * deviation - shift * shift / 2 * seconds
        self.nats = min(self._limit, max(0.0, self.nats + gained))


class Seconds:
    """What is usual of one value: its mean, and the SD of a second's mean. O(1) memory."""

    def __init__(self, spread: float) -> None:
        """spread: the SD of people in general."""
        self._spread = spread
        self._rest = np.zeros(0)
        self._num = 0
        self._sum = 0.0
        self._squares = 0.0

    def add(self, values: Floats) -> None:
        """[n], of steps that count."""
        held = np.concatenate([self._rest, values.astype(float)])
        whole = len(held) // STEPS_PER_S * STEPS_PER_S
        means = held[:whole].reshape(-1, STEPS_PER_S).mean(1)
        self._rest = held[whole:]
        self._num += len(means)
        self._sum += float(means.sum())
        self._squares += float((means**2).sum())

    def found(self) -> tuple[float, float] | None:
        """(mean, SD); None before two seconds. Few seconds know their SD badly: it is drawn towards
        that of people, as if PRIOR_S more had been heard."""
        if self._num < 2:
            return None
        mean = self._sum / self._num
        own = max(0.0, self._squares - self._num * mean * mean)
        return mean, ((own + PRIOR_S * self._spread**2) / (self._num - 1 + PRIOR_S)) ** 0.5

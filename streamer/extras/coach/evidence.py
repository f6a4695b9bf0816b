"""Whether a voice has changed. In: how far a value of speech is from usual. Out: evidence, in nats,
that grows while they differ.

Page's test (1954): the log-likelihood of a shift against none, summed and never under 0. Of all
tests that tell as rarely for nothing, none is sooner for that shift (Moustakides, 1986). A greater
shift is told sooner; one of under half of it, never.
"""

from __future__ import annotations

import numpy as np

from streamer.extras.coach.voice import STEPS_PER_S, Floats

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
    """What is usual of one value: its mean, and the SD of a second's mean. O(1) memory. Of a second
    that counts twice the variance is half as large."""

    def __init__(self, spread: float) -> None:
        """spread: the SD of people in general."""
        self._spread = spread
        self._rest = np.zeros((2, 0))  # how much each step counts, and that times its value
        self._num = 0
        self._count = 0.0  # seconds, as much as they count
        self._sum = 0.0
        self._squares = 0.0

    def add(self, values: Floats, counts: Floats | None = None) -> None:
        """[n], of steps that count, and how much each does; None: as one."""
        weights = np.ones(len(values)) if counts is None else counts.astype(float)
        held = np.concatenate([self._rest, [weights, weights * values]], 1)
        whole = held.shape[1] // STEPS_PER_S * STEPS_PER_S
        count, total = held[:, :whole].reshape(2, -1, STEPS_PER_S).mean(2)
        self._rest = held[:, whole:]
        self._num += len(count)
        self._count += float(count.sum())
        self._sum += float(total.sum())
        self._squares += float((total**2 / count).sum())

    def found(self) -> tuple[float, float] | None:
        """(mean, SD); None before two seconds. Few seconds know their SD badly: it is drawn towards
        that of people, as if PRIOR_S more had been heard."""
        if self._num < 2:
            return None
        own = self.variance * (self._num - 1)
        variance = (own + PRIOR_S * self._spread**2) / (self._num - 1 + PRIOR_S)
        return self._sum / self._count, variance**0.5

    @property
    def variance(self) -> float:
        """Of a second's mean, as heard, of two seconds or more."""
        own = self._squares - self._sum * self._sum / self._count
        return max(0.0, own) / (self._num - 1)

"""How many replicas there should be. In: what each said last, the time. Out: a decision. Pure.

More are wanted where so many places are taken that the rest would soon be, or where speech waits to
be heard; not where a processor is busy, which a model always makes it. Fewer are wanted where those
that stay would have places to spare. A replica that goes is drained: nobody new, and what was said
is answered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from streamer.extras.fleet.choice import Candidate
from streamer.extras.fleet.options import ScalingOptions


@dataclass(frozen=True)
class ScalingDecision:
    """add: so many more. drain: the address of who goes, or nothing. why: for people."""

    add: int = 0
    drain: str = ""
    why: str = ""


class Scaler:
    """One kind's, `least` to `most` replicas. Call `decide` every second or so."""

    def __init__(self, options: ScalingOptions, least: int, most: int) -> None:
        self._options = options
        self._least = least
        self._most = most
        self._added_at = -math.inf
        self._spare_since: float | None = None

    def decide(
        self, replicas: Sequence[Candidate], num_starting: int, now: float
    ) -> ScalingDecision:
        """replicas: those that answer. num_starting: those that were asked for and do not yet."""
        staying = [r for r in replicas if not r.is_leaving and not r.status.is_draining]
        num = len(staying) + num_starting
        if num < self._least:
            return ScalingDecision(self._least - num, why=f"{num} replicas, at least {self._least}")
        grow = self._grow(staying, num, now)
        if grow.add:
            self._spare_since = None
            return grow
        return self._shrink(staying, num_starting, now)

    def _grow(self, staying: Sequence[Candidate], num: int, now: float) -> ScalingDecision:
        if now - self._added_at < self._options.up_pause_s or num >= self._most or not staying:
            return ScalingDecision()
        taken = sum(_taken(r) for r in staying)
        limit = min(r.status.limit for r in staying)
        wanted = math.ceil(taken / (limit * self._options.up_at))
        why = f"{taken} places taken"
        if wanted <= num and (lag_s := _median_lag_s(staying)) > self._options.lag_s:
            wanted = num + 1
            why = f"{lag_s:.1f} s of speech unheard"
        if wanted <= num:
            return ScalingDecision()
        self._added_at = now
        return ScalingDecision(min(wanted, self._most) - num, why=why)

    def _shrink(
        self, staying: Sequence[Candidate], num_starting: int, now: float
    ) -> ScalingDecision:
        """One at a time, the emptiest first."""
        if num_starting or len(staying) <= self._least or not self._would_do(staying):
            self._spare_since = None
            return ScalingDecision()
        if self._spare_since is None:
            self._spare_since = now
        if now - self._spare_since < self._options.down_pause_s:
            return ScalingDecision()
        self._spare_since = now
        goes = _emptiest(staying)
        return ScalingDecision(drain=goes.address, why=f"{goes.status.taken} places of it taken")

    def _would_do(self, staying: Sequence[Candidate]) -> bool:
        """Whether one fewer would have places to spare."""
        goes = _emptiest(staying)
        left = sum(r.status.limit for r in staying) - goes.status.limit
        taken = sum(_taken(r) for r in staying)
        is_behind = _median_lag_s(staying) > self._options.lag_s
        return not is_behind and taken <= left * self._options.down_at


def _emptiest(staying: Sequence[Candidate]) -> Candidate:
    """Of those that are alike, the one whose address sorts last: started last, most often."""
    least = min(_taken(r) for r in staying)
    return max((r for r in staying if _taken(r) == least), key=lambda r: r.address)


def _taken(replica: Candidate) -> int:
    """Not who is on the way: one who asks for more than its share comes again and again."""
    return replica.status.taken


def _median_lag_s(staying: Sequence[Candidate]) -> float:
    """Of the replicas, so that one slow machine does not call for more."""
    lags = sorted(r.status.lag_s for r in staying)
    return lags[(len(lags) - 1) // 2]

"""Asking about a block before it is whole. In: the block in hand. Out: whether to ask now.

Where an id takes long and the gate fires for a block's first ids, the edge asks about those at
once. What it guesses behind them is the block's next id. The rest of the block follows with a
request of its own. So all is verified that the gate wanted verified, and nothing else is: the ids
are the same, and a no comes sooner.
"""

from __future__ import annotations

from streamer.core.decoding.gate import doubted
from streamer.core.decoding.in_flight import Flight
from streamer.core.decoding.pace import Pace
from streamer.core.decoding.plan import Plan
from streamer.core.decoding.tail import Tail
from streamer.core.text.vocabulary import Vocabulary


class EarlyAsks:
    """Of one answer, in mode gated, for an edge that drafts ahead of verdicts."""

    def __init__(self, plan: Plan, vocabulary: Vocabulary, pace: Pace, tail: Tail) -> None:
        self._plan = plan
        self._vocabulary = vocabulary
        self._pace = pace
        self._tail = tail
        self._is_on = plan.mode == "gated" and plan.ahead > 0

    @property
    def watches(self) -> bool:
        """Whether to look at each id as it comes."""
        return self._is_on and self._pace.is_slow

    def is_due(self, begin: int, size: int, num_asked: int) -> bool:
        """Whether to ask about what there is of a block of `size` ids that begins at `begin` of the
        tail, with `num_asked` requests on their way."""
        n = len(self._tail) - begin
        credits = self._plan.credits
        if not self.watches or not 0 < n < size or self._tail.is_ended or num_asked >= credits:
            return False
        if not self._pace.has_credits_for_parts(size, credits):
            return False
        ids = self._tail.ids[begin:]
        signals = self._tail.signals[begin:]
        return doubted(self._plan.gate, self._vocabulary, ids, signals) is not None

    def is_guess_missing(self, head: Flight) -> bool:
        """Whether the verdict on `head` must wait for the edge's guess. What stands behind an early
        request is of its block: only the guess tells whether the target corrects it."""
        verdict = head.verdict
        is_clean = verdict is not None and verdict.n_accepted == head.n == len(self._tail)
        return head.is_early and is_clean and not self._tail.is_ended

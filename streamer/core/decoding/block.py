"""The block being drafted. In: time, what is on its way. Out: what to draft, whether to verify."""

from __future__ import annotations

from dataclasses import dataclass

from streamer.core.decoding.early import EarlyAsks
from streamer.core.decoding.gate import Signal, fires
from streamer.core.decoding.in_flight import Flights
from streamer.core.decoding.pace import Pace
from streamer.core.decoding.plan import Plan
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.tail import Tail
from streamer.core.text.vocabulary import Vocabulary

SURE_LOG_PROB = -0.05  # 95 %: the pair that ships is 96 % sure of its opening, the same everywhere


@dataclass(frozen=True, slots=True)
class Block:
    """Whole with `size` ids. must_be_verified: gate or mode said so, and the block is counted."""

    size: int
    must_be_verified: bool = False


class Drafting:
    """Owns the block in hand, which begins behind all that is on its way."""

    def __init__(
        self, plan: Plan, vocabulary: Vocabulary, sequence: Sequence, pace: Pace, tail: Tail
    ) -> None:
        self.flights = Flights()
        self.early = EarlyAsks(plan, vocabulary, pace, tail)
        self._plan = plan
        self._vocabulary = vocabulary
        self._sequence = sequence
        self._pace = pace
        self._tail = tail
        self.block = self._new_block()
        self._shown: list[tuple[int, Signal]] = []  # ids that are the block's, and committed

    @property
    def is_shown_at_once(self) -> bool:
        """Whether an opening is committed before its block is whole: in gated mode, where it is as
        good as certain. Else a target might say another, or that nobody spoke."""
        n = len(self._tail)
        is_alone = not self.flights and n < self.block.size and not self._tail.is_ended
        is_sure = all(signal.log_prob >= SURE_LOG_PROB for signal in self._tail.signals)
        return self._plan.mode == "gated" and is_alone and is_sure and not self._fires()

    def show(self, n: int) -> None:
        """The first `n` ids of the tail are committed. They still count in the block's doubt."""
        self._shown = list(zip(self._tail.ids[:n], self._tail.signals[:n], strict=True))
        self.block = Block(self.block.size - n)

    @property
    def num_open(self) -> int:
        """Ids of the block that are there."""
        return min(self.block.size, len(self._tail) - self.flights.span)

    @property
    def room(self) -> int:
        """Ids until the block is whole, the guess before it included."""
        return self.flights.span + self.block.size - len(self._tail)

    @property
    def is_part(self) -> bool:
        """Whether ids of the block are still to come."""
        return self.room > 0 and not self._tail.is_ended

    def is_closable(self, is_up: bool) -> bool:
        """Whether the block is whole, or to be asked about as it is."""
        if self._tail.is_ended:
            return len(self._tail) > self.flights.span
        return self.room <= 0 or (
            is_up
            and not self.block.must_be_verified
            and self.early.is_due(self.flights.span, self.block.size, self.flights.num_asked)
        )

    def num_to_draft(self, now: float, is_up: bool) -> int:
        """Ids to draft in one go: ahead of a verdict few enough that it need not wait."""
        if self._tail.is_ended:
            return 0
        head = self.flights.head
        if head is None:
            return 1 if is_up and self.early.watches else self.room
        n_ahead = len(self._tail) - head.n
        left_s = self._pace.verdict_s - (0.0 if head.sent_at is None else now - head.sent_at)
        if n_ahead == 0 and not head.is_early and not self._pace.is_worth_a_guess(left_s):
            return 0
        return min(self.room, self._pace.num_at_once, self._plan.ahead - n_ahead)

    def judge(self) -> None:
        """Find out whether the block must be verified, and count it. Once it must, that stays."""
        if self.block.must_be_verified:
            return
        is_single = self._plan.mode == "edge"  # there each id is a block of its own
        self._tail.counts.blocks += self.num_open if is_single else 1
        fired = self._plan.mode == "exact" or (self._plan.mode == "gated" and self._fires())
        self.block = Block(self.block.size, must_be_verified=fired)

    def begin(self) -> None:
        """The next block, from its first id."""
        self._shown = []
        self.block = self._new_block()

    def begin_rest(self, num_asked: int) -> None:
        """The first `num_asked` ids are asked about. The guess behind them is the block's next
        id; what follows it is to be verified, too."""
        self.block = Block(self.block.size - num_asked - 1, must_be_verified=True)

    def _new_block(self) -> Block:
        """At the edge alone as many ids as are quick, the first at once; else k."""
        plan = self._plan
        if plan.mode == "edge":
            return Block(self._pace.num_alone if self._tail.counts.n_committed else 1)
        adapts = plan.adapts and plan.mode == "exact"
        return Block(self._pace.best_k(plan.credits) if adapts else plan.k)

    def _fires(self) -> bool:
        at = self.flights.span
        start = self._sequence.n_committed + at
        answer = self._sequence.answer
        signals = self._tail.signals[at : at + self.num_open]
        block = answer[start : start + len(signals)]
        before = answer[: start - len(self._shown)]
        block = [*(token for token, _ in self._shown), *block]
        signals = [*(signal for _, signal in self._shown), *signals]
        return fires(self._plan.gate, self._vocabulary, before, block, signals) is not None

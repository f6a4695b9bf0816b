"""The block being drafted: its size, and whether it must be verified."""

from __future__ import annotations

from dataclasses import dataclass

from streamer.core.decoding.gate import fires
from streamer.core.decoding.in_flight import Flights
from streamer.core.decoding.pace import Pace
from streamer.core.decoding.plan import Plan
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.tail import Tail
from streamer.core.text.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Block:
    """Whole with `size` ids. must_be_verified: gate or mode said so, and the block is counted."""

    size: int
    must_be_verified: bool = False


class Drafting:
    """The block in hand, which begins after all blocks on their way."""

    def __init__(
        self, plan: Plan, vocabulary: Vocabulary, sequence: Sequence, pace: Pace, tail: Tail
    ) -> None:
        self.flights = Flights()
        self._plan = plan
        self._vocabulary = vocabulary
        self._sequence = sequence
        self._pace = pace
        self._tail = tail
        self.block = self._new_block()

    @property
    def num_open(self) -> int:
        """Ids of the block that are there."""
        return min(self.block.size, len(self._tail) - self.flights.span)

    @property
    def room(self) -> int:
        """Ids until the block is whole, the guess before it included."""
        return self.flights.span + self.block.size - len(self._tail)

    @property
    def is_whole(self) -> bool:
        """Whether the block has all its ids, or the last one drafted ends the answer."""
        if self._tail.is_ended:
            return len(self._tail) > self.flights.span
        return self.room <= 0

    def num_to_draft(self, now: float) -> int:
        """Ids to draft in one step: ahead of a verdict few enough that it need not wait."""
        if self._tail.is_ended:
            return 0
        head = self.flights.head
        if head is None:
            return self.room
        n_ahead = len(self._tail) - head.n
        left_s = self._pace.verdict_s - (0.0 if head.sent_at is None else now - head.sent_at)
        if n_ahead == 0 and not self._pace.is_worth_a_guess(left_s):
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
        self.block = self._new_block()

    def _new_block(self) -> Block:
        """k ids; at the edge alone as many as are quick, the first of the answer by itself."""
        if self._plan.mode == "edge":
            return Block(self._pace.num_at_once if self._tail.counts.n_committed else 1)
        return Block(self._plan.k)

    def _fires(self) -> bool:
        at = self.flights.span
        start = self._sequence.n_committed + at
        answer = self._sequence.answer
        signals = self._tail.signals[at : at + self.num_open]
        block = answer[start : start + len(signals)]
        return fires(self._plan.gate, self._vocabulary, answer[:start], block, signals) is not None

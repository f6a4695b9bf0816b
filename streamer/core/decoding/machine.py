"""The speculative state machine: what to do next, from drafts with signals, verdicts and the time.

It is pure. `Speculator.next(now)` returns DraftMore, Verify, Emit, Wait or Done; the caller does it
and reports back with `drafted`, `verdict`, `refused`, `failed` or `cancel`. docs/decoding.md draws
it. Mode `exact` verifies every block, `gated` those whose gate fires, `edge` none. Mode `cloud`
drafts nothing and asks the target for one id at a time.

Drafting ahead (`Plan.ahead`): while a block is on its way the edge drafts on. Its first id there is
its guess at the target's bonus token. A verdict that accepts all and gives that id keeps the work;
any other verdict drops it.

    answer   committed | block 1 | guess | block 2 | guess | block 3 ...
                         on its way        on its way        being drafted
"""

from __future__ import annotations

from collections.abc import Sequence as Ids

from streamer.core.decoding.in_flight import Flight, Flights, Pace, Tail
from streamer.core.decoding.plan import (
    Action,
    Counts,
    Done,
    DraftMore,
    Plan,
    Signal,
    Verify,
    Wait,
    fires,
)
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.verdict import Refusal, Verdict
from streamer.core.text.vocabulary import Vocabulary

MAX_REFUSALS = 3  # per block; after each one it is asked again from the answer's beginning


class Speculator:
    """Drives one answer on `sequence`, whose answer must have started, and alone cuts it."""

    def __init__(
        self, plan: Plan, vocabulary: Vocabulary, sequence: Sequence, pace: Pace | None = None
    ) -> None:
        self.plan = plan
        self.vocabulary = vocabulary
        self.sequence = sequence
        self.pace = pace or Pace()
        # verdicts that did not come within the budget, or were refused for good
        self.num_failures = 0
        self._tail = Tail(plan, vocabulary, sequence)
        self._flights = Flights()
        self._block = DraftBlock(plan, self._tail, self._flights, self.pace)
        self._last: Action = Done("")  # the last action of `next`, and when
        self._last_at = 0.0

    @property
    def counts(self) -> Counts:
        return self._tail.counts

    @property
    def stop_reason(self) -> str | None:
        return self._tail.stop_reason

    @property
    def num_in_flight(self) -> int:
        """Blocks whose verdict is on its way."""
        return self._flights.num_asked

    def next(self, now: float, is_up: bool = True) -> Action:
        """The action at time `now` (seconds of any clock). is_up: the target can be asked."""
        if isinstance(self._last, Wait):
            self.counts.stall_ms += 1000 * (now - self._last_at)
        if self._flights.is_late(now):
            self.num_failures += 1
            self.failed()
        action: Action | None = None
        while action is None:
            if self._tail.emits:
                action = self._tail.emits.popleft()
            elif self.stop_reason is not None:
                action = Done(self.stop_reason)
            else:
                action = self._proceed(now, is_up)
        self._last = action
        self._last_at = now
        return action

    def drafted(self, ids: Ids[int], signals: Ids[Signal], now: float | None = None) -> None:
        """Record that `ids`, with one signal each, now stand at the sequence's end.

        now: when drafting ended; None leaves the pace as it is. Raises ValueError for no ids, and
        for another number of signals.
        """
        n = len(ids)
        if n == 0 or n != len(signals):
            raise ValueError(
                f"a draft needs at least one id and a signal each, got {n}, {len(signals)}"
            )
        # The first step feeds the prompt's end too, and says nothing about the pace.
        is_first = not self.counts.n_drafted
        if now is not None and not is_first:
            self.pace.drafted(n, now - self._last_at)
        self._tail.extend(signals, self._block.room)

    def verdict(self, verdict: Verdict, now: float | None = None) -> None:
        """Apply the target's reply to a block on its way; ignore one to any other request."""
        flight = self._flights.answer(verdict, self.vocabulary.num_ids)
        if flight is None:
            return
        if now is not None and flight.sent_at is not None:
            self.pace.answered(now - flight.sent_at)
        self._land_all()

    def refused(self, refusal: Refusal) -> None:
        """The target holds other ids: send it all of them when it is this block's turn."""
        flight = self._flights.find(refusal.number)
        if flight is not None:
            flight.is_refused = True
            self._land_all()

    def failed(self) -> None:
        """No verdict will come for blocks on their way: go on unverified if allowed, else end."""
        head = self._flights.head
        if head is None or self.stop_reason is not None:
            return
        if not self._may_go_on:
            self._end("error")
            return
        self._forget_ahead()
        self._pass_on(head.n, is_unverified=head.n > 0)

    def cancel(self, reason: str = "cancelled") -> None:
        """End here: committed ids stay, the blocks in hand are dropped."""
        if self.stop_reason is None:
            self._end(reason)

    @property
    def _may_go_on(self) -> bool:
        """Whether ids that the target does not verify are committed all the same."""
        return self.plan.mode == "gated" or (self.plan.mode == "exact" and self.plan.degrade)

    def _proceed(self, now: float, is_up: bool) -> Action | None:
        """An action; None where something was committed or closed, and there may be more to do."""
        if (flight := self._flights.unsent) is not None:
            return self._hand_out(flight, now)
        may_ask = is_up or not self._may_go_on
        if may_ask and self._asks_for_an_id:
            self._ask(0)
            return None
        if self.plan.mode != "cloud":
            if self._block.is_whole and self._close(may_ask):
                return None
            if (n := self._block.num_to_draft(now)) > 0:
                return DraftMore(n)
        head = self._flights.head
        assert head is not None, "nothing to do and nothing to wait for"
        assert head.deadline is not None
        return Wait(head.deadline)

    @property
    def _asks_for_an_id(self) -> bool:
        """Without a draft: always in mode cloud; in exact for the first id, so that it comes as
        soon as there, while the edge drafts ahead of it."""
        if self.plan.mode == "exact" and self.plan.ahead:
            return self._flights.num_ever == 0
        return self.plan.mode == "cloud" and not self._flights

    def _close(self, may_ask: bool) -> bool:
        """Upload, commit unverified, or queue the block. False: it must wait for a credit."""
        block = self._block
        block.judge()
        n = block.num_open
        if not (block.must_be_verified and may_ask):
            self._pass_on(n, is_unverified=block.must_be_verified and n > 0)
        elif self._flights.num_asked == self.plan.credits:
            return False
        else:
            self._ask(n)
        block.begin()
        return True

    def _ask(self, n: int) -> None:
        request = self._flights.ask(self.sequence.answer, self.sequence.n_committed, n)
        self.counts.cloud_calls += 1
        self.counts.n_uploaded += len(request.draft)

    def _hand_out(self, flight: Flight, now: float) -> Action:
        assert flight.request is not None
        flight.is_sent = True
        flight.sent_at = now
        flight.deadline = flight.deadline or now + self.plan.verify_budget_s
        return Verify(flight.request)

    def _pass_on(self, n: int, is_unverified: bool) -> None:
        """Commit the next `n` ids without a verdict, or after the blocks on their way."""
        if self._flights:
            self._flights.skip(n, is_unverified)
        else:
            self.counts.blocks_unverified += is_unverified
            self._settle(self._tail.ids[:n], n, verified=False)

    def _land_all(self) -> None:
        """Apply the verdicts that are here, oldest first."""
        while (head := self._flights.head) is not None and head.verdict is not None:
            if self.stop_reason is not None:
                return
            self._land(head, head.verdict)
        if head is not None and head.is_refused:
            self._ask_again(head)

    def _land(self, flight: Flight, verdict: Verdict) -> None:
        """Commit what stands of the oldest block, keep the ids drafted ahead if they fit."""
        self.counts.n_accepted += verdict.n_accepted
        self.counts.n_corrected += verdict.n_accepted < flight.n
        self._flights.land(verdict)
        tail = self._tail.ids
        ids = [*tail[: verdict.n_accepted], verdict.next_id]
        is_guessed = verdict.n_accepted == flight.n and ids == tail[: len(ids)]
        self._settle(ids, flight.n + is_guessed, verified=True, log_probs=verdict.log_probs)
        while self.stop_reason is None and (passed := self._flights.pop_passed()) is not None:
            self.counts.blocks_unverified += passed.is_unverified
            self._settle(self._tail.ids[: passed.n], passed.n, verified=False)

    def _ask_again(self, head: Flight) -> None:
        """Ask again for all on their way, the head from the answer's beginning."""
        head.num_refusals += 1
        if head.num_refusals > MAX_REFUSALS:
            self.num_failures += 1
            self.failed()
        else:
            self._flights.ask_again(self.sequence.answer, self.sequence.n_committed)

    def _settle(
        self, ids: Ids[int], n_settled: int, verified: bool, log_probs: Ids[float] = ()
    ) -> None:
        if not self._tail.settle(ids, n_settled, verified, log_probs):
            self._forget_ahead()

    def _end(self, reason: str) -> None:
        head = self._flights.head
        self._tail.end(reason, len(self._tail) if head is None else head.n)
        self._forget_ahead()

    def _forget_ahead(self) -> None:
        """Wait no longer for ids drafted after the commit, and asked about."""
        self._flights.clear()
        self._block.begin()


class DraftBlock:
    """The block being drafted: its size, and whether it must be verified. It begins after all
    blocks on their way.

    must_be_verified: gate or mode said so, and the block is counted.
    """

    def __init__(self, plan: Plan, tail: Tail, flights: Flights, pace: Pace) -> None:
        self._plan = plan
        self._tail = tail
        self._flights = flights
        self._pace = pace
        self.begin()

    def begin(self) -> None:
        """The next block: k ids; at the edge alone as many as are quick, the answer's first id by
        itself."""
        self.must_be_verified = False
        self.size = self._plan.k
        if self._plan.mode == "edge":
            self.size = self._pace.num_at_once if self._tail.counts.n_committed else 1

    @property
    def num_open(self) -> int:
        """Ids of the block that are there."""
        return min(self.size, len(self._tail) - self._flights.span)

    @property
    def room(self) -> int:
        """Ids until the block is whole, the guess before it included."""
        return self._flights.span + self.size - len(self._tail)

    @property
    def is_whole(self) -> bool:
        """Whether the block has all its ids, or the last one drafted ends the answer."""
        if self._tail.is_ended:
            return len(self._tail) > self._flights.span
        return self.room <= 0

    def num_to_draft(self, now: float) -> int:
        """Ids to draft in one step: ahead of a verdict few enough that it need not wait."""
        if self._tail.is_ended:
            return 0
        head = self._flights.head
        if head is None:
            return self.room
        n_ahead = len(self._tail) - head.n
        left_s = self._pace.verdict_s - (0.0 if head.sent_at is None else now - head.sent_at)
        if n_ahead == 0 and not self._pace.is_worth_a_guess(left_s):
            return 0
        return min(self.room, self._pace.num_at_once, self._plan.ahead - n_ahead)

    def judge(self) -> None:
        """Find out whether the block must be verified, and count it. Once it must, that stays."""
        if self.must_be_verified:
            return
        is_single = self._plan.mode == "edge"  # there each id is a block of its own
        self._tail.counts.blocks += self.num_open if is_single else 1
        is_gated = self._plan.mode == "gated"
        self.must_be_verified = self._plan.mode == "exact" or (is_gated and self._fires())

    def _fires(self) -> bool:
        at = self._flights.span
        answer, ids, signals = self._tail.part(at, at + self.num_open)
        return fires(self._plan.gate, self._tail.vocabulary, answer, ids, signals) is not None

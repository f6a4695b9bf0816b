"""The speculative state machine: the next action, from drafts with signals, verdicts and the time.

It is pure. `Speculator.next(now)` returns DraftMore, VerifyRequest, Emit, Wait or Done; the caller
does it and reports back with `drafted`, `replied`, `failed` or `cancel`. docs/decoding.md draws it.
Mode `exact` verifies every block, `gated` those whose gate fires, `edge` none. Mode `cloud` drafts
nothing and asks the target for one id at a time.

Drafting ahead (`Plan.ahead`): while a block is on its way the edge drafts on. After a block that is
asked about stands one id, the edge's guess at the target's own next id. A verdict that accepts all
and gives that id keeps the work; any other verdict drops it. A block that passed the gate has no
guess after it. The first block that waits is always one that is asked about.

    answer   committed | block 1 | guess | block 2 | guess | block 3 ...
                         on its way        on its way        being drafted
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence as Ids
from dataclasses import dataclass

from streamer.core.decoding.plan import (
    Action,
    Counts,
    Done,
    DraftMore,
    Emit,
    Pace,
    Plan,
    Refusal,
    Signal,
    Verdict,
    VerifyRequest,
    Wait,
    fires,
    num_same,
    prefix_hash,
)
from streamer.core.decoding.sequence import Sequence
from streamer.core.rules.settings import NOT_SHOWN, first_stop
from streamer.core.text.vocabulary import Vocabulary

MAX_REFUSALS = 3  # of a block; after each one it is asked again from the answer's beginning


@dataclass(eq=False, slots=True)
class Flight:
    """A closed block of `n` ids that is not committed yet.

    request: None for a block that passed the gate; it waits for those before it. is_unverified: the
    gate or the mode wanted it verified, and it is not.
    """

    n: int
    request: VerifyRequest | None = None
    deadline: float = math.inf
    reply: Verdict | Refusal | None = None
    is_unverified: bool = False


class Speculator:
    """Drives one answer on `sequence`, whose answer must have started, and alone cuts it.

    num_failures: verdicts that did not come within the budget, or were refused for good.
    """

    def __init__(
        self, plan: Plan, vocabulary: Vocabulary, sequence: Sequence, pace: Pace | None = None
    ) -> None:
        self.plan = plan
        self.vocabulary = vocabulary
        self.sequence = sequence
        self.pace = pace or Pace()
        self.counts = Counts()
        self.stop_reason: str | None = None
        self.num_failures = 0
        self._signals: list[Signal] = []  # of each id that is drafted and not committed
        self._emits: deque[Emit] = deque()  # committed and not shown yet
        self._is_stopped = False  # the last id drafted ends the answer
        self._flights: deque[Flight] = deque()
        self._number = 0  # of the latest request
        self._num_refusals = 0  # since the latest verdict
        self._base = 0  # answer ids that the target will hold if it accepts all blocks on their way
        self._last: Action = Done("")  # the last action of `next`, and when
        self._last_at = 0.0

    @property
    def num_in_flight(self) -> int:
        """Blocks whose verdict is on its way."""
        return sum(flight.request is not None for flight in self._flights)

    def next(self, now: float, is_up: bool = True) -> Action:
        """The action at time `now` (seconds of any clock). is_up: the target can be asked."""
        if isinstance(self._last, Wait):
            self.counts.stall_ms += 1000 * (now - self._last_at)
        if self._flights and now >= self._flights[0].deadline:
            self.num_failures += 1
            self.failed()
        action: Action | None = None
        while action is None:
            if self._emits:
                action = self._emits.popleft()
            elif self.stop_reason is not None:
                action = Done(self.stop_reason)
            else:
                action = self._proceed(now, is_up)
        self._last = action
        self._last_at = now
        return action

    def drafted(self, signals: Ids[Signal], now: float | None = None) -> None:
        """Record that ids, one for each of `signals`, now stand at the sequence's end. Ids after
        one that stops the answer are cut off again.

        now: when drafting ended; None leaves the pace as it is.
        """
        n = len(signals)
        # The first step feeds the prompt's end too, and says nothing about the pace.
        if now is not None and self.counts.n_drafted:
            self.pace.drafted(n, now - self._last_at)
        answer = self.sequence.answer
        begin = len(answer) - n
        found = first_stop(self.vocabulary, self.plan.rules, answer, begin)
        self._is_stopped = found is not None
        n_kept = n if found is None else found[0] - begin + 1
        self.sequence.replace_tail(len(self.sequence) - n + n_kept)
        self.counts.n_drafted += n
        self.counts.n_wasted += n - n_kept
        self._signals += signals[:n_kept]

    def replied(self, reply: Verdict | Refusal) -> None:
        """Apply the target's reply to a block on its way; ignore one to any other request. A
        Refusal: the target holds other ids, and is sent all of them."""
        for flight in self._flights:
            if flight.request is not None and flight.request.number == reply.number:
                flight.reply = reply
        self._land_all()

    def failed(self) -> None:
        """No verdict will come for blocks on their way: go on unverified if allowed, else end."""
        if not self._flights or self.stop_reason is not None:
            return
        if self.plan.mode != "gated":
            self._end("error")
            return
        head = self._flights[0]
        assert head.request is not None, "the first one is asked about"
        self._base = head.request.base
        self._num_refusals = 0
        self._flights.clear()
        self._pass_on(head.n, is_unverified=True)

    def cancel(self) -> None:
        """End here: committed ids stay, the blocks in hand are dropped."""
        if self.stop_reason is None:
            self._end("cancelled")

    def _proceed(self, now: float, is_up: bool) -> Action | None:
        """An action; None where something was committed or closed, and there may be more to do."""
        mode = self.plan.mode
        may_ask = is_up or mode != "gated"
        # An id without a draft: always in mode cloud; in exact the first one, so that it comes as
        # early as in mode cloud, while the edge drafts ahead of it.
        wants_id = mode == "exact" and self.plan.ahead > 0 and self._number == 0
        if may_ask and (wants_id or (mode == "cloud" and not self._flights)):
            return self._ask(0, now)
        if mode != "cloud":
            num_drafted = len(self._signals)
            size, n_block = self._size, self.sequence.n_committed + num_drafted - self._begin
            # an id that ends the answer makes a block whole; so does each step at the edge alone
            is_step = self._is_stopped or mode == "edge"
            is_whole = n_block >= (1 if is_step else size)
            if is_whole and self.num_in_flight < self.plan.credits:
                return self._close(min(size, n_block), now if may_ask else None)
            n = size - n_block
            if self._flights:  # few enough that a verdict need not wait
                n_ahead = num_drafted - self._flights[0].n
                n = min(n, self.pace.num_at_once, self.plan.ahead - n_ahead)
            if n > 0 and not self._is_stopped:
                return DraftMore(n)
        return Wait(self._flights[0].deadline)  # there is one: nothing else is to do

    # The block being drafted.

    @property
    def _size(self) -> int:
        """Ids of the block: k; as many as are quick at the edge alone, and in exact after the first
        one, which brings the first attribute word."""
        if self.plan.mode == "edge":
            return self.pace.num_at_once
        grows = self.plan.grows and self._number > 1
        return max(self.plan.k, self.pace.num_at_once) if grows else self.plan.k

    @property
    def _begin(self) -> int:
        """The place in the answer where the block begins: after all blocks on their way, and after
        a guess for each that is asked about."""
        n_waiting = sum(flight.n for flight in self._flights)
        return self.sequence.n_committed + n_waiting + self.num_in_flight

    def _close(self, n: int, asks_at: float | None) -> VerifyRequest | None:
        """Upload, commit unverified, or queue `n` ids. asks_at: None where nothing can be asked."""
        mode, begin = self.plan.mode, self._begin
        self.counts.blocks += n if mode == "edge" else 1  # there each id is a block of its own
        is_wanted = mode == "exact"
        if mode == "gated":
            answer, first = self.sequence.answer, begin - self.sequence.n_committed
            ids, signals = answer[begin : begin + n], self._signals[first : first + n]
            is_wanted = fires(self.plan.threshold, self.vocabulary, answer[:begin], ids, signals)
        if is_wanted and asks_at is not None:
            return self._ask(n, asks_at)
        self._pass_on(n, is_unverified=is_wanted)
        return None

    # Blocks on their way.

    def _ask(self, n: int, now: float) -> VerifyRequest:
        """A request for a verdict on the `n` ids after those on their way."""
        answer, begin, base = self.sequence.answer, self._begin, self._base
        self._number += 1
        request = VerifyRequest(
            number=self._number,
            base=base,
            prefix=prefix_hash(answer[:base]),
            unverified=tuple(answer[base:begin]),
            draft=tuple(answer[begin : begin + n]),
            runs_on=self.plan.mode == "cloud",
        )
        self._flights.append(Flight(n, request, now + self.plan.verify_budget_s))
        self._base = begin + n + 1  # with the target's own next id
        self.counts.cloud_calls += 1
        self.counts.n_uploaded += len(request.draft)
        return request

    def _pass_on(self, n: int, is_unverified: bool) -> None:
        """Commit the next `n` ids without a verdict, or after the blocks on their way."""
        self._flights.append(Flight(n, is_unverified=is_unverified))
        self._land_all()

    def _land_all(self) -> None:
        """Commit the oldest blocks, as far as replies are here or none is needed: keep the ids
        drafted ahead if they fit."""
        while self.stop_reason is None and self._flights:
            head, tail = self._flights[0], self._tail
            request, reply = head.request, head.reply
            if request is None:
                self._flights.popleft()
                self.counts.blocks_unverified += head.is_unverified
                log_probs = [signal.log_prob for signal in self._signals[: head.n]]
                self._settle(tail[: head.n], head.n, False, log_probs)
            elif isinstance(reply, Verdict):
                self._flights.popleft()
                n_accepted, self._num_refusals = reply.n_accepted, 0
                self.counts.n_accepted += n_accepted
                self.counts.n_corrected += n_accepted < head.n
                ids = [*tail[:n_accepted], reply.next_id]
                is_guessed = n_accepted == head.n and ids == tail[: len(ids)]
                self._settle(ids, head.n + is_guessed, True, reply.log_probs)
                if not self._flights:
                    self._base = request.base + len(request.unverified) + len(ids)
            elif reply is None:
                return
            elif self._num_refusals == MAX_REFUSALS:
                self.num_failures += 1
                self.failed()
            else:  # the blocks are closed once more, and the target is sent all committed ids
                self._num_refusals += 1
                self._base = 0
                self._flights.clear()

    # The ids after the commit.

    @property
    def _tail(self) -> list[int]:
        return self.sequence.answer[self.sequence.n_committed :]

    def _settle(self, ids: Ids[int], n_settled: int, verified: bool, log_probs: Ids[float]) -> None:
        """Commit `ids` in place of the first `n_settled`, up to one that stops the answer. The ids
        drafted after them stay where `ids` were drafted there."""
        tail, n_committed = self._tail, self.sequence.n_committed
        answer = [*self.sequence.answer[:n_committed], *ids]
        found = first_stop(self.vocabulary, self.plan.rules, answer, n_committed)
        kept, last = list(ids), None
        if found is not None:
            at, self.stop_reason = found
            last = answer[at] if self.stop_reason in NOT_SHOWN else None
            kept = answer[n_committed : at + (last is None)]
        if found is None and kept == tail[:n_settled]:
            del self._signals[:n_settled]
        else:
            self._drop_after(tail, kept, n_settled, last)
        self.sequence.commit(len(kept))
        self.counts.n_committed += len(kept)
        self.counts.n_verified += len(kept) if verified else 0
        size = 1 if self.plan.mode == "edge" else max(1, len(kept))  # each id a block of its own
        for part in (slice(at, at + size) for at in range(0, len(kept), size)):
            self._emits.append(Emit(tuple(kept[part]), verified, tuple(log_probs[part])))

    def _drop_after(self, tail: Ids[int], kept: Ids[int], n_settled: int, last: int | None) -> None:
        """End the sequence with `kept`; equal ids stay cached. last: stopped, not shown. Wait no
        longer for ids drafted after the commit, and asked about."""
        n_used = num_same(tail, kept)
        at = self.sequence.answer_start + self.sequence.n_committed
        self.sequence.replace_tail(at + n_used, kept[n_used:])
        if last is not None and list(tail[n_used : n_used + 1]) == [last]:
            n_used += 1  # a drafted EOS or a loop's last id did its work without being shown
        self.counts.n_wasted += max(0, n_settled - n_used)
        self.counts.n_ahead_wasted += len(tail) - max(n_settled, n_used)
        self._signals = []
        self._is_stopped = False
        self._flights.clear()

    def _end(self, reason: str) -> None:
        """Drop all that is not committed."""
        n_own = self._flights[0].n if self._flights else len(self._signals)
        self._drop_after(self._tail, [], n_own, last=None)
        self.stop_reason = reason

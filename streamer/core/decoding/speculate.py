"""The speculative state machine. In: drafted ids with signals, verdicts, the time. Out: what to do
next.

Pure: `next(now)` says DraftMore, Verify, Emit, Wait or Done; the caller does it and reports back
with `drafted`, `verdict`, `refused`, `failed` or `cancel`. Modes (decoding.md): `exact` verifies
every block, `gated` those whose gate fires, `edge` none, `cloud` drafts nothing and asks the target
for one id at a time.

Draft ahead (`Plan.ahead`): behind a block on its way the edge drafts on. Its first id there is its
guess at the target's bonus id; a verdict that accepts all and gives that id leaves the work
standing, any other drops it.

    answer   committed | block 1 | guess | block 2 | guess | block 3 ...
                         on its way        on its way        being drafted

Early: where the gate fires for a block's first ids and the edge takes long for the others, it asks
about those at once. What it guesses behind them is the block's next id; the rest of the block
follows with a request of its own. So all is verified that the gate wanted verified, nothing else
is, and the ids are the same: a no comes sooner.

Runs (`Run`): with nothing on its way, blocks that the gate lets pass, or that nobody is to verify,
are drafted, committed and shown several at a time: as many as take no longer than the reader would
notice. What is decided, committed and counted is what one block at a time would give.
"""

from __future__ import annotations

from collections.abc import Sequence as Ids

from streamer.core.decoding.counts import Counts
from streamer.core.decoding.gate import Signal, doubted, fires
from streamer.core.decoding.in_flight import Flight, Flights
from streamer.core.decoding.pace import Pace
from streamer.core.decoding.plan import (
    MODES,
    Action,
    Done,
    DraftMore,
    Emit,
    Mode,
    Plan,
    Run,
    Verify,
    Wait,
)
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.tail import Tail
from streamer.core.decoding.verdict import Refusal, Verdict
from streamer.core.text.vocabulary import Vocabulary

__all__ = [
    "MODES",
    "Action",
    "Done",
    "DraftMore",
    "Emit",
    "Mode",
    "Plan",
    "Run",
    "Speculator",
    "Verify",
    "Wait",
]
MAX_REFUSALS = 3  # of one block, each time asked anew from the answer's beginning


class Speculator:
    """Drives one answer on `sequence`, whose answer must have started. The sequence is its alone to
    cut."""

    def __init__(
        self, plan: Plan, vocabulary: Vocabulary, sequence: Sequence, pace: Pace | None = None
    ) -> None:
        self.plan = plan
        self.vocabulary = vocabulary
        self.sequence = sequence
        self.pace = pace or Pace()
        # verdicts that did not come within the budget, or were refused for good
        self.num_failures = 0
        self._tail = Tail(plan.rules, vocabulary, sequence)
        # look at each id as it comes, where one takes long
        self._may_watch = plan.mode == "gated" and plan.ahead > 0
        self._goes_alone = plan.mode in ("edge", "gated")  # where nothing is on its way
        adapts = plan.adapts and plan.mode == "exact"
        self._fixed_k = None if adapts else 1 if plan.mode == "edge" else plan.k
        self._flights = Flights()
        # whether the whole block behind the flights is to be verified
        self._fired: bool | None = None
        self._k: int | None = None  # of the block being drafted
        # of a block whose first ids were asked about: those that are still to be
        self._rest: int | None = None
        self._run: Run | None = None  # that the drafter was offered
        self._drafting_since: float | None = None
        self._waiting_since: float | None = None

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
        """Say what to do at time `now` (seconds, any monotonic origin). is_up: it makes sense to
        ask the target."""
        if self._waiting_since is not None:
            self.counts.stall_ms += 1000 * (now - self._waiting_since)
            self._waiting_since = None
        tail = self._tail
        num_waiting = self._flights.num
        if num_waiting() and self._flights.is_late(now):
            self.num_failures += 1
            self.failed()
        while not tail.emits and tail.stop_reason is None:
            is_alone = self._goes_alone and not num_waiting()
            action = self._proceed_alone(now, is_up) if is_alone else self._proceed(now, is_up)
            if action is not None:
                return action
        return tail.emits.popleft() if tail.emits else Done(tail.stop_reason or "")

    def drafted(self, ids: Ids[int], signals: Ids[Signal], now: float | None = None) -> None:
        """`ids` now stand at the sequence's end. The block ends at k ids or at an id that stops the
        answer.

        signals: one per id; of a run fewer, those of its last ids: the ones before them end blocks
        that the gate let pass. Raises ValueError for other numbers of them.
        """
        n = len(ids)
        n_passed = len(ids) - len(signals)
        tail = self._tail
        if not ids or n_passed < 0 or (n_passed and self._run is None):
            raise ValueError(
                f"a draft needs at least one id and a signal each, got {n}, {len(signals)}"
            )
        self._run = None
        # its step feeds the prompt's end too
        is_first = not (tail.counts.n_committed or tail.signals)
        if self._drafting_since is not None and now is not None and not is_first:
            self.pace.drafted(n, now - self._drafting_since)
        room = n_passed + self._block_size if n_passed else self._room
        # at the edge alone nobody looks at them
        tail.extend(n, () if self.plan.mode == "edge" else signals, room)
        if self._flights.is_head_judged:
            self._land_all()  # its verdict waited for the edge's guess

    def verdict(self, verdict: Verdict, now: float | None = None) -> None:
        """Apply the target's reply to a block on its way; one to any other request is ignored."""
        flight = self._flights.answer(verdict, self.vocabulary.num_ids)
        if flight is None:
            return
        if now is not None and flight.sent_at is not None:
            self.pace.answered(now - flight.sent_at, verdict.n_accepted, flight.n)
        self._land_all()

    def refused(self, refusal: Refusal) -> None:
        """The target did not apply a request: it holds other ids. It is told all of them when this
        one's turn comes."""
        flight = self._flights.find(refusal.number)
        if flight is not None:
            flight.is_refused = True
            if flight is self._flights.head:
                self._ask_again()

    def failed(self) -> None:
        """No verdict will come for what is on its way: go on unverified where that is allowed, else
        end."""
        head = self._flights.head
        if head is None or self.stop_reason is not None:
            return
        self._flights.clear()
        self._fired = self._rest = None
        if self._may_go_on:
            self.counts.blocks_unverified += head.n > 0
            self._settle(self._tail.ids[: head.n], head.n, verified=False)
        else:
            self._end("error")

    def cancel(self, reason: str = "cancelled") -> None:
        """End here: what is committed stays, the blocks in hand are dropped."""
        if self.stop_reason is None:
            self._end(reason)

    @property
    def _may_go_on(self) -> bool:
        """Whether what the target does not verify is committed all the same."""
        return self.plan.mode == "gated" or (self.plan.mode == "exact" and self.plan.degrade)

    def _proceed(self, now: float, is_up: bool) -> Action | None:
        """One step: an action, or None where something was committed, or closed, and there may be
        more to do."""
        unsent = self._flights.unsent
        if unsent is not None:
            return self._hand_out(unsent, now)
        if self._asks_for_an_id and (is_up or not self._may_go_on):
            self._ask(0)
            return None
        drafts = self.plan.mode != "cloud"
        room = self._room
        is_ended = self._tail.is_ended
        is_whole = self._num_open > 0 if is_ended else room <= 0
        if drafts and (is_whole or self._is_doubted(is_up)):
            if self._close_block(is_up):
                return None
        elif drafts and not is_ended and (n := min(room, self._num_allowed(now))) > 0:
            self._drafting_since = now
            return DraftMore(n)
        head = self._flights.head
        assert head is not None, "nothing to do and nothing to wait for"
        assert head.deadline is not None
        self._waiting_since = now
        left_s = self._left_s(head, now)
        return Wait(
            min(head.deadline, now + 2 * left_s)
            if self.pace.is_worth_a_wait(left_s)
            else head.deadline
        )

    def _proceed_alone(self, now: float, is_up: bool) -> Action | None:
        """As `_proceed`, in modes edge and gated where nothing is on its way. It calls little:
        behind a step all that is touched comes from far memory."""
        tail = self._tail
        size = self._fixed_k if self._rest is None else self._rest
        assert size is not None
        # blocks of a run; the last may be short, at the answer's end
        if n_passed := tail.num_passed:
            tail.counts.blocks += -(-n_passed // size)
            tail.settle_passed()
            return None
        n_open = len(tail.signals)
        watches = self._may_watch and is_up and self.pace.is_slow
        if n_open >= size or tail.is_ended or (watches and self._is_doubted(is_up)):
            self._close_block(is_up)
            return None
        n = 1 if watches else size - n_open
        self._run = None
        num_more = 0 if watches or self._rest else (self.pace.num_in_run - n) // size
        if num_more > 0:
            gate = self.plan.gate if self.plan.mode == "gated" else None
            self._run = Run(n + num_more * size, size, gate, tuple(tail.signals))
        self._drafting_since = now
        return DraftMore(n, self._run)

    def _is_doubted(self, is_up: bool) -> bool:
        """Whether the gate fires for what there is of a block already, and it may be asked
        about."""
        if not (self._may_watch and self.pace.is_slow and is_up) or self._fired is not None:
            return False
        at = self._flights.span
        tail = self._tail
        size = self._block_size
        n = len(tail) - at
        credits = self.plan.credits
        if not 0 < n < size or tail.is_ended or self._flights.num_asked >= credits:
            return False
        if not self.pace.has_credits_for_parts(size, credits):
            return False
        return (
            doubted(
                self.plan.gate, self.vocabulary, tail.ids[at : at + n], tail.signals[at : at + n]
            )
            is not None
        )

    @property
    def _asks_for_an_id(self) -> bool:
        """Without a draft: always in mode cloud; in exact for the first id, so that it comes as
        soon as there, while the edge drafts ahead of it."""
        mode = self.plan.mode
        if mode == "exact" and self.plan.ahead:
            return self._flights.num_ever == 0
        return mode == "cloud" and self._flights.head is None

    @property
    def _num_open(self) -> int:
        """Ids of the block being drafted; -1 where the guess before it is still missing."""
        return len(self._tail) - self._flights.span

    @property
    def _room(self) -> int:
        """Ids until the block is whole."""
        return self._block_size - self._num_open

    def _num_allowed(self, now: float) -> int:
        """Ids to draft at once: a whole block, or ahead of a verdict few enough that it need not
        wait."""
        head = self._flights.head
        if head is None:
            return self._block_size
        left_s = self._left_s(head, now)
        n_ahead = len(self._tail) - head.n
        if head.verdict is None and self.pace.is_worth_a_wait(left_s):
            return 0
        if n_ahead == 0 and not head.is_early and not self.pace.is_worth_a_guess(left_s):
            return 0
        return min(self.pace.num_at_once, self.plan.ahead - n_ahead)

    def _left_s(self, head: Flight, now: float) -> float:
        """Until its verdict is expected."""
        return self.pace.verdict_s - (0.0 if head.sent_at is None else now - head.sent_at)

    @property
    def _block_size(self) -> int:
        """k, or 1 at the edge alone: there an id need not wait for its block to be shown."""
        if self._rest is not None:
            return self._rest
        if self._fixed_k is not None:
            return self._fixed_k
        if self._k is None:
            self._k = self.pace.best_k(self.plan.credits)
        return self._k

    def _close_block(self, is_up: bool) -> bool:
        """The block is whole: upload it, commit it unverified, or let it wait for those before it.
        False: no room."""
        at = self._flights.span
        size = self._block_size
        n = min(size, len(self._tail) - at)
        rest = None if n == size or self._tail.is_ended else size - n - 1
        if self._fired is None:
            self._fired = self._fires(
                self.sequence.n_committed + at, self._tail.signals[at : at + n]
            )
            self.counts.blocks += 1
        if self._fired and (is_up or not self._may_go_on):
            if self._flights.num_asked >= self.plan.credits:
                return False
            self._ask(n, rest is not None)
        else:
            is_unverified = self._fired and n > 0
            if self._flights.head is None:
                self.counts.blocks_unverified += is_unverified
                self._settle(self._tail.ids[:n], n, verified=False)
            else:
                self._flights.skip(n, is_unverified)
        self._fired = None if rest is None else True
        self._rest = rest
        self._k = None
        return True

    def _fires(self, start: int, signals: Ids[Signal]) -> bool:
        """Whether the block at `start` of the answer is to be verified."""
        if self.plan.mode != "gated":
            return self.plan.mode == "exact"
        answer = self.sequence.answer
        block = answer[start : start + len(signals)]
        return fires(self.plan.gate, self.vocabulary, answer[:start], block, signals) is not None

    def _ask(self, n: int, is_early: bool = False) -> None:
        request = self._flights.ask(self.sequence.answer, self.sequence.n_committed, n, is_early)
        self.counts.cloud_calls += 1
        self.counts.n_uploaded += len(request.draft)

    def _ask_again(self) -> None:
        """The head was refused: ask anew for all on their way, the head from the answer's
        beginning."""
        head = self._flights.head
        assert head is not None
        head.num_refusals += 1
        if head.num_refusals > MAX_REFUSALS:
            self.num_failures += 1
            self.failed()
            return
        self._flights.ask_again(self.sequence.answer, self.sequence.n_committed)

    def _hand_out(self, flight: Flight, now: float) -> Action:
        assert flight.request is not None
        flight.is_sent = True
        flight.sent_at = now
        flight.deadline = flight.deadline or now + self.plan.verify_budget_s
        return Verify(flight.request)

    def _land_all(self) -> None:
        """Those whose verdict is here, oldest first. What stands behind an early one is of its
        block: whether the target's next id corrects it is known only when the edge has drafted it.
        """
        tail = self._tail
        while (head := self._flights.head) is not None and (verdict := head.verdict) is not None:
            is_guess_due = (
                head.is_early and verdict.n_accepted == head.n == len(tail) and not tail.is_ended
            )
            if is_guess_due or self.stop_reason is not None:
                return
            self._land(head, verdict)
        if head is not None and head.is_refused:
            self._ask_again()

    def _land(self, flight: Flight, verdict: Verdict) -> None:
        """The oldest block's verdict is here: commit what stands, keep what was drafted ahead if it
        fits."""
        assert flight.request is not None
        self.counts.n_accepted += verdict.n_accepted
        self.counts.n_corrected += verdict.n_accepted < flight.n
        self._flights.land(verdict)
        tail = self._tail.ids
        is_guessed = verdict.n_accepted == flight.n and tail[flight.n : flight.n + 1] == [
            verdict.next_id
        ]
        ids = [*tail[: verdict.n_accepted], verdict.next_id]
        self._settle(ids, flight.n + 1 if is_guessed else flight.n, verified=True)
        while (
            self.stop_reason is None
            and (head := self._flights.head) is not None
            and head.request is None
        ):
            self._flights.pop()
            self.counts.blocks_unverified += head.is_unverified
            self._settle(self._tail.ids[: head.n], head.n, verified=False)

    def _settle(self, ids: Ids[int], n_settled: int, verified: bool) -> None:
        if not self._tail.settle(ids, n_settled, verified):
            self._forget_ahead()

    def _end(self, reason: str) -> None:
        head = self._flights.head
        self._tail.end(reason, None if head is None else head.n)
        self._forget_ahead()

    def _forget_ahead(self) -> None:
        """What was drafted behind the commit is gone."""
        self._flights.clear()
        self._fired = self._rest = self._k = None

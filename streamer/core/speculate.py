"""The speculative state machine. In: drafted ids with signals, verdicts, the time. Out: what to do next.

Pure: `next(now)` says DraftMore, Verify, Emit, Wait or Done; the caller does it and reports back with `drafted`,
`verdict`, `refused`, `failed` or `cancel`. Modes (decoding.md): `exact` verifies every block, `gated` those whose gate
fires, `edge` none, `cloud` drafts nothing and asks the target for one id at a time.

Draft ahead (`Plan.ahead`): behind a block on its way the edge drafts on. Its first id there is its guess at the
target's bonus id; a verdict that accepts all and gives that id leaves the work standing, any other drops it.

    answer   committed | block 1 | guess | block 2 | guess | block 3 ...
                         on its way        on its way        being drafted
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from typing import Literal

from streamer.core.counts import Counts
from streamer.core.flights import Flight, Flights
from streamer.core.gate import PRESETS, Gate, Signal, fires
from streamer.core.pace import Pace
from streamer.core.rules import Rules
from streamer.core.sequence import Sequence
from streamer.core.stop import stop
from streamer.core.verify import Refusal, Verdict, VerifyRequest
from streamer.core.vocabulary import Vocabulary

Mode = Literal["gated", "exact", "edge", "cloud"]
MODES: tuple[Mode, ...] = ("gated", "exact", "edge", "cloud")
MAX_REFUSALS = 3  # of one block, each time asked anew from the answer's beginning
AHEAD_S = 0.008  # of drafting ahead at once: a verdict that comes meanwhile waits for it


@dataclass(frozen=True, slots=True)
class DraftMore:
    """Draft up to `n` ids onto the sequence, then report them with `drafted` (at least one)."""

    n: int


@dataclass(frozen=True, slots=True)
class Verify:
    """Send `request` to the target, then report its `verdict`; there may be others before it."""

    request: VerifyRequest


@dataclass(frozen=True, slots=True)
class Emit:
    """Show `ids` now; they are committed."""

    ids: tuple[int, ...]
    verified: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """A verdict is on its way; call `next` again when it is here or at `until` (seconds, the caller's clock)."""

    until: float


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is over: sentence, eos, loop, max_tokens, cancelled or error."""

    reason: str


Action = DraftMore | Verify | Emit | Wait | Done


@dataclass(frozen=True, slots=True)
class Plan:
    """How one answer is decoded."""

    mode: Mode = "gated"
    k: int = 4  # draft length
    gate: Gate = PRESETS["fluent"].gate
    rules: Rules = field(default_factory=Rules)
    verify_budget_s: float = 5.0  # gated goes on unverified after it, exact ends with `error`
    ahead: int = 0  # ids that may be drafted behind the oldest block on its way
    credits: int = 1  # blocks that may be on their way
    adapts: bool = False  # exact: k follows the measured delay and acceptance (core/pace.py)
    degrade: bool = False  # exact, too, goes on unverified

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode!r} is none of {', '.join(MODES)}")
        if not 1 <= self.k <= 64:
            raise ValueError(f"k is {self.k}; the draft length must be 1..64")
        if self.ahead < 0 or self.credits < 1:
            raise ValueError(f"ahead is {self.ahead}, credits {self.credits}; they must be at least 0 and 1")


class Speculator:
    """Drives one answer on `sequence`, whose answer must have started. The sequence is its alone to cut."""

    def __init__(self, plan: Plan, vocabulary: Vocabulary, sequence: Sequence, pace: Pace | None = None) -> None:
        self.plan, self.vocabulary, self.sequence = plan, vocabulary, sequence
        self.pace = pace or Pace()
        self.counts = Counts()
        self.stop_reason: str | None = None
        self.num_failures = 0  # verdicts that did not come within the budget, or were refused for good
        self._flights = Flights()
        self._signals: list[Signal] = []  # of every id that is not committed
        self._is_ended = False  # the last id drafted ends the answer, if it stands
        self._fired: bool | None = None  # whether the whole block behind the flights is to be verified
        self._k: int | None = None  # of the block being drafted
        self._emits: deque[Emit] = deque()
        self._drafting_since: tuple[float, int] | None = None
        self._waiting_since: float | None = None

    @property
    def tail(self) -> list[int]:
        """Ids drafted beyond what is committed."""
        return self.sequence.answer[self.sequence.n_committed :]

    def next(self, now: float, is_up: bool = True) -> Action:
        """Say what to do at time `now` (seconds, any monotonic origin). is_up: it makes sense to ask the target."""
        if self._waiting_since is not None:
            self.counts.stall_ms += 1000 * (now - self._waiting_since)
            self._waiting_since = None
        head = self._flights.head
        if head is not None and head.deadline is not None and now >= head.deadline:
            self.num_failures += 1
            self.failed()
        while not self._emits and self.stop_reason is None:
            action = self._proceed(now, is_up)
            if action is not None:
                return action
        return self._emits.popleft() if self._emits else Done(self.stop_reason or "")

    def drafted(self, ids: Ids[int], signals: Ids[Signal], now: float | None = None) -> None:
        """`ids` now stand at the sequence's end. The block ends at k ids or at an id that stops the answer."""
        if not ids or len(ids) != len(signals):
            raise ValueError(f"a draft needs at least one id and a signal each, got {len(ids)}, {len(signals)}")
        if self._drafting_since is not None and now is not None:
            self.pace.drafted(len(ids), now - self._drafting_since[0])
        answer = self.sequence.answer
        self.counts.n_drafted += len(ids)
        room = self._room
        for i, signal in enumerate(signals, start=len(answer) - len(ids)):
            self._signals.append(signal)
            room -= 1
            self._is_ended = stop(self.vocabulary, self.plan.rules, answer[:i], answer[i]) is not None
            if self._is_ended or room == 0:  # nothing after a stop is kept, also not inside a block
                self.counts.n_wasted += len(answer) - i - 1
                self.sequence.replace_tail(self.sequence.answer_start + i + 1)
                return

    def verdict(self, verdict: Verdict, now: float | None = None) -> None:
        """Apply the target's reply to a block on its way; one to any other request is ignored."""
        flight = self._flights.find(verdict.number)
        if flight is None or flight.request is None:
            return
        n = len(flight.request.draft)
        if not 0 <= verdict.n_accepted <= n or not 0 <= verdict.next_id < self.vocabulary.num_ids:
            raise ValueError(f"verdict {verdict} does not fit a block of {n} ids")
        if now is not None and flight.sent_at is not None:
            self.pace.answered(now - flight.sent_at, verdict.n_accepted, n)
        flight.verdict = verdict
        while (head := self._flights.head) is not None and head.verdict is not None and self.stop_reason is None:
            self._land(head, head.verdict)
        if head is not None and head.is_refused:
            self._ask_again()

    def refused(self, refusal: Refusal) -> None:
        """The target did not apply a request: it holds other ids. It is told all of them when this one's turn comes."""
        flight = self._flights.find(refusal.number)
        if flight is not None:
            flight.is_refused = True
            if flight is self._flights.head:
                self._ask_again()

    def failed(self) -> None:
        """No verdict will come for what is on its way: go on unverified where that is allowed, else end."""
        head = self._flights.head
        if head is None or self.stop_reason is not None:
            return
        self._flights.clear()
        self._fired = None
        if self._may_go_on:
            self._settle(self.tail[: head.n], head.n, verified=False)
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

    @property
    def num_in_flight(self) -> int:
        """Blocks whose verdict is on its way."""
        return self._flights.num_asked

    def _proceed(self, now: float, is_up: bool) -> Action | None:
        """One step: an action, or None where something was committed, or closed, and there may be more to do."""
        unsent = self._flights.unsent
        if unsent is not None:
            return self._hand_out(unsent, now)
        if self._asks_for_an_id and (is_up or not self._may_go_on):
            self._ask(0)
            return None
        room = self._room
        if self.plan.mode != "cloud" and (room <= 0 or (self._is_ended and self._num_open > 0)):
            if self._close_block(is_up):
                return None
        elif self.plan.mode != "cloud" and not self._is_ended and (n := min(room, self._num_allowed(now))) > 0:
            self._drafting_since = (now, n)
            return DraftMore(n)
        head = self._flights.head
        assert head is not None and head.deadline is not None, "nothing to do and nothing to wait for"  # noqa: PT018
        self._waiting_since = now
        return Wait(head.deadline)

    @property
    def _asks_for_an_id(self) -> bool:
        """Without a draft: always in mode cloud; in exact for the first id, so that it comes as soon as there, while
        the edge drafts ahead of it."""
        if self.plan.mode == "exact" and self.plan.ahead:
            return self._flights.num_ever == 0
        return self.plan.mode == "cloud" and self._flights.head is None

    @property
    def _num_open(self) -> int:
        """Ids of the block being drafted; -1 where the guess before it is still missing."""
        return len(self._signals) - self._flights.span

    @property
    def _room(self) -> int:
        """Ids until the block is whole."""
        return self._block_size - self._num_open

    def _num_allowed(self, now: float) -> int:
        """Ids to draft at once: a whole block, or ahead of a verdict few enough that it need not wait."""
        head = self._flights.head
        if head is None:
            return self._block_size
        expected = (now if head.sent_at is None else head.sent_at) + self.pace.verdict_s
        if len(self._signals) == head.n and not self.pace.is_worth_a_guess(expected - now):
            return 0
        at_once = max(1, int(AHEAD_S / self.pace.draft_s))
        return min(at_once, self.plan.ahead - (len(self._signals) - head.n))

    @property
    def _block_size(self) -> int:
        """k, or 1 at the edge alone: there an id need not wait for its block to be shown."""
        if self.plan.mode == "edge":
            return 1
        if not self.plan.adapts or self.plan.mode != "exact":
            return self.plan.k
        if self._k is None:
            self._k = self.pace.best_k(self.plan.credits)
        return self._k

    def _close_block(self, is_up: bool) -> bool:
        """The block is whole: upload it, commit it unverified, or let it wait for those before it. False: no room."""
        at, n = self._flights.span, min(self._block_size, self._num_open)
        if self._fired is None:
            self._fired = self._fires(self.sequence.n_committed + at, self._signals[at : at + n])
            self.counts.blocks += 1
        if self._fired and (is_up or not self._may_go_on):
            if self._flights.num_asked >= self.plan.credits:
                return False
            self._ask(n)
        elif self._flights.head is None:
            self._settle(self.tail[:n], n, verified=False)
        else:
            self._flights.skip(n)
        self._fired = self._k = None
        return True

    def _fires(self, start: int, signals: Ids[Signal]) -> bool:
        """Whether the block at `start` of the answer is to be verified."""
        if self.plan.mode != "gated":
            return self.plan.mode == "exact"
        answer = self.sequence.answer
        block = answer[start : start + len(signals)]
        return fires(self.plan.gate, self.vocabulary, answer[:start], block, signals) is not None

    def _ask(self, n: int) -> None:
        request = self._flights.ask(self.sequence.answer, self.sequence.n_committed, n)
        self.counts.cloud_calls += 1
        self.counts.n_uploaded += len(request.draft)

    def _ask_again(self) -> None:
        """The head was refused: ask anew for all on their way, the head from the answer's beginning."""
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
        flight.is_sent, flight.sent_at = True, now
        flight.deadline = flight.deadline or now + self.plan.verify_budget_s
        return Verify(flight.request)

    def _land(self, flight: Flight, verdict: Verdict) -> None:
        """The oldest block's verdict is here: commit what stands, keep what was drafted ahead if it fits."""
        assert flight.request is not None
        self.counts.n_accepted += verdict.n_accepted
        self.counts.n_corrected += verdict.n_accepted < flight.n
        self._flights.land(verdict)
        tail = self.tail
        is_guessed = verdict.n_accepted == flight.n and tail[flight.n : flight.n + 1] == [verdict.next_id]
        ids = [*tail[: verdict.n_accepted], verdict.next_id]
        self._settle(ids, flight.n + 1 if is_guessed else flight.n, verified=True)
        while self.stop_reason is None and (head := self._flights.head) is not None and head.request is None:
            self._flights.pop()
            self._settle(self.tail[: head.n], head.n, verified=False)

    def _settle(self, ids: Ids[int], n_settled: int, verified: bool) -> None:
        """Commit `ids` in place of the tail's first `n_settled`, testing the stop at every id; nothing after a stop is
        committed. What was drafted behind them stays where they are just those."""
        answer = self.sequence.answer[: self.sequence.n_committed]
        kept: list[int] = []
        stopped = None
        for token in ids:
            stopped = stop(self.vocabulary, self.plan.rules, answer, token)
            if stopped is None or stopped.keep:
                kept.append(token)
                answer.append(token)
            if stopped is not None:
                self.stop_reason = stopped.reason
                break
        tail = self.tail
        if stopped is None and kept == tail[:n_settled]:
            del self._signals[:n_settled]
        else:
            last = token if stopped is not None and not stopped.keep else None
            self._drop_behind(tail, kept, n_settled, last)
        self.sequence.commit(len(kept))
        self.counts.n_committed += len(kept)
        self.counts.n_verified += len(kept) if verified else 0
        if kept:
            self._emits.append(Emit(tuple(kept), verified))

    def _drop_behind(self, tail: Ids[int], kept: Ids[int], n_settled: int, last: int | None) -> None:
        """Make the sequence end with `kept`; keep in the cache what is the same. last: it stopped and is not shown."""
        n_used = 0
        while n_used < min(len(tail), len(kept)) and tail[n_used] == kept[n_used]:
            n_used += 1
        at = self.sequence.answer_start + self.sequence.n_committed
        self.sequence.replace_tail(at + n_used, kept[n_used:])
        if last is not None and list(tail[n_used : n_used + 1]) == [last]:
            n_used += 1  # a drafted EOS or a loop's last id did its work without being shown
        self.counts.n_wasted += max(0, n_settled - n_used)
        self.counts.n_ahead_wasted += len(tail) - max(n_settled, n_used)
        self._forget_ahead()

    def _forget_ahead(self) -> None:
        self._flights.clear()
        self._signals, self._is_ended, self._fired, self._k = [], False, None, None

    def _end(self, reason: str) -> None:
        head = self._flights.head
        n_own = len(self.tail) if head is None else head.n
        self.counts.n_wasted += n_own
        self.counts.n_ahead_wasted += len(self.tail) - n_own
        self.sequence.replace_tail(self.sequence.answer_start + self.sequence.n_committed)
        self._forget_ahead()
        self.stop_reason = reason

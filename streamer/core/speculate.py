"""The speculative state machine. In: drafted ids with signals, verdicts, the time. Out: what to do next.

Pure: `next(now)` says DraftMore, Verify, Emit, Wait or Done; the caller does it and reports back with `drafted`,
`verdict` or `cancel`. Modes (decoding.md): `exact` verifies every block, `gated` those whose gate fires, `edge`
none, `cloud` drafts nothing and asks the target for one id at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from typing import Literal

from streamer.core.counts import Counts
from streamer.core.gate import PRESETS, Gate, Signal, fires
from streamer.core.rules import Rules
from streamer.core.sequence import Sequence
from streamer.core.stop import stop
from streamer.core.verify import Verdict, VerifyRequest, prefix_hash
from streamer.core.vocabulary import Vocabulary

Mode = Literal["gated", "exact", "edge", "cloud"]
MODES: tuple[Mode, ...] = ("gated", "exact", "edge", "cloud")


@dataclass(frozen=True, slots=True)
class DraftMore:
    """Draft up to `n` ids onto the sequence, then report them with `drafted` (at least one)."""

    n: int


@dataclass(frozen=True, slots=True)
class Verify:
    """Send `request` to the target, then report its `verdict`."""

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

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode!r} is none of {', '.join(MODES)}")
        if not 1 <= self.k <= 64:
            raise ValueError(f"k is {self.k}; the draft length must be 1..64")


class Speculator:
    """Drives one answer on `sequence`, whose answer must have started. The sequence is its alone to cut."""

    def __init__(self, plan: Plan, vocabulary: Vocabulary, sequence: Sequence) -> None:
        self.plan, self.vocabulary, self.sequence = plan, vocabulary, sequence
        self.counts = Counts()
        self.stop_reason: str | None = None
        self._signals: list[Signal] = []  # of the block being drafted
        self._block_over = False
        self._request: VerifyRequest | None = None  # the one in flight
        self._deadline: float | None = None  # set when the request was handed out
        self._number = 0
        self._known = 0  # answer ids that the target holds
        self._emits: deque[Emit] = deque()

    @property
    def block(self) -> list[int]:
        """Ids drafted beyond what is committed."""
        return self.sequence.answer[self.sequence.n_committed :]

    def next(self, now: float) -> Action:
        """Say what to do at time `now` (seconds, any monotonic origin)."""
        if self._request is not None and self._deadline is not None and now >= self._deadline:
            self._give_up_on_verdict()
        if self._emits:
            return self._emits.popleft()
        if self.stop_reason is not None:
            return Done(self.stop_reason)
        if self._request is not None:
            return self._hand_out(now)
        if self.plan.mode == "cloud":
            return self._ask(now)
        if not self._block_over:
            return DraftMore(self._block_size - len(self._signals))
        return self._close_block(now)

    def drafted(self, ids: Ids[int], signals: Ids[Signal]) -> None:
        """`ids` now stand at the sequence's end. The block ends at k ids or at an id that stops the answer."""
        if not ids or len(ids) != len(signals):
            raise ValueError(f"a draft needs at least one id and a signal each, got {len(ids)}, {len(signals)}")
        answer = self.sequence.answer
        self.counts.n_drafted += len(ids)
        for i, signal in enumerate(signals, start=len(answer) - len(ids)):
            self._signals.append(signal)
            stopped = stop(self.vocabulary, self.plan.rules, answer[:i], answer[i]) is not None
            self._block_over = stopped or len(self._signals) >= self._block_size
            if self._block_over:  # nothing after a stop is kept, also not inside a block
                self.counts.n_wasted += len(answer) - i - 1
                self.sequence.replace_tail(self.sequence.answer_start + i + 1)
                return

    def verdict(self, verdict: Verdict) -> None:
        """Apply the target's answer to the request in flight; one for any other request is ignored."""
        request = self._request
        if request is None or verdict.number != request.number:
            return
        if not 0 <= verdict.n_accepted <= len(request.draft) or not 0 <= verdict.next_id < self.vocabulary.num_ids:
            raise ValueError(f"verdict {verdict} does not fit a block of {len(request.draft)} ids")
        self._request = self._deadline = None
        self.counts.n_accepted += verdict.n_accepted
        self.counts.n_corrected += verdict.n_accepted < len(request.draft)
        self._known = request.base + len(request.unverified) + verdict.n_accepted + 1
        self._settle([*request.draft[: verdict.n_accepted], verdict.next_id], verified=True)

    def cancel(self, reason: str = "cancelled") -> None:
        """End here: what is committed stays, the block in hand is dropped."""
        if self.stop_reason is None:
            self._request = None
            self._end(reason)

    @property
    def _block_size(self) -> int:
        """k, or 1 at the edge alone: there an id need not wait for its block to be shown."""
        return 1 if self.plan.mode == "edge" else self.plan.k

    def _close_block(self, now: float) -> Action:
        """The block is whole: upload it, or commit it unverified."""
        self.counts.blocks += 1
        mode, block = self.plan.mode, self.block
        committed = self.sequence.answer[: self.sequence.n_committed]
        if mode == "exact" or (
            mode == "gated" and fires(self.plan.gate, self.vocabulary, committed, block, self._signals)
        ):
            return self._ask(now)
        self._settle(block, verified=False)
        return self.next(now)

    def _ask(self, now: float) -> Action:
        answer, n_committed = self.sequence.answer, self.sequence.n_committed
        self._number += 1
        self._request = VerifyRequest(
            number=self._number,
            base=self._known,
            prefix=prefix_hash(answer[: self._known]),
            unverified=tuple(answer[self._known : n_committed]),
            draft=tuple(self.block),
        )
        self.counts.cloud_calls += 1
        self.counts.n_uploaded += len(self._request.draft)
        return self._hand_out(now)

    def _hand_out(self, now: float) -> Action:
        """The request once, then Wait until its verdict or its deadline."""
        assert self._request is not None
        if self._deadline is None:
            self._deadline = now + self.plan.verify_budget_s
            return Verify(self._request)
        return Wait(self._deadline)

    def _give_up_on_verdict(self) -> None:
        """The budget is spent: gated mode goes on unverified, the others cannot keep their promise."""
        self._request = self._deadline = None
        if self.plan.mode == "gated":
            self._settle(self.block, verified=False)
        else:
            self._end("error")

    def _settle(self, ids: Ids[int], verified: bool) -> None:
        """Commit `ids` in place of the block, testing the stop at every id; nothing after a stop is committed."""
        start, n_committed = self.sequence.answer_start, self.sequence.n_committed
        answer = self.sequence.answer[:n_committed]
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
        block = self.block
        n_used = self._replace_block(start + n_committed, kept)
        if stopped is not None and not stopped.keep and block[n_used : n_used + 1] == [token]:
            n_used += 1  # a drafted EOS or a loop's last id did its work without being shown
        self.counts.n_wasted += len(block) - n_used
        self.sequence.commit(len(kept))
        self.counts.n_committed += len(kept)
        self.counts.n_verified += len(kept) if verified else 0
        self._signals, self._block_over = [], False
        if kept:
            self._emits.append(Emit(tuple(kept), verified))

    def _replace_block(self, at: int, kept: Ids[int]) -> int:
        """Make the sequence end with `kept` from position `at`; keep in the cache what is the same."""
        block = self.block
        n_same = 0
        while n_same < min(len(block), len(kept)) and block[n_same] == kept[n_same]:
            n_same += 1
        self.sequence.replace_tail(at + n_same, kept[n_same:])
        return n_same

    def _end(self, reason: str) -> None:
        self.counts.n_wasted += len(self.block)
        self.sequence.replace_tail(self.sequence.answer_start + self.sequence.n_committed)
        self.stop_reason = reason

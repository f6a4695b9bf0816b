"""The ids after the commit, the blocks of them that wait for a verdict, and how long that takes.

After a block that is asked about stands one id: the edge's guess at the target's own next id. A
block that passed the gate has none. The first one is always one that is asked about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Ids
from dataclasses import dataclass, replace

from streamer.core.decoding.plan import Counts, Emit, Plan, Signal
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.verdict import Verdict, VerifyRequest, num_same, prefix_hash
from streamer.core.rules.stop import Stop, first_stop
from streamer.core.text.vocabulary import Vocabulary

AT_ONCE_S = 0.008  # length of one drafting step: ids are shown, and verdicts applied, after it
MOST_AT_ONCE = 32
TRACK = 0.3  # weight of the newest time


@dataclass(eq=False, slots=True)
class Flight:
    """A block of `n` ids.

    request: None for a block that passed the gate; it waits for those before it.
    is_unverified: the gate or the mode wanted it verified, and it is not.
    """

    n: int
    request: VerifyRequest | None = None
    is_sent: bool = False
    sent_at: float | None = None
    deadline: float | None = None
    verdict: Verdict | None = None
    is_refused: bool = False
    is_unverified: bool = False
    num_refusals: int = 0


class Flights:
    """All of one answer; it numbers the requests."""

    def __init__(self) -> None:
        self._flights: deque[Flight] = deque()
        self._number = 0
        self._known = 0  # answer ids that the target holds and the edge committed

    def __len__(self) -> int:
        return len(self._flights)

    @property
    def head(self) -> Flight | None:
        return self._flights[0] if self._flights else None

    def is_late(self, now: float) -> bool:
        """Whether the first one's verdict is overdue."""
        head = self.head
        return head is not None and head.deadline is not None and now >= head.deadline

    @property
    def span(self) -> int:
        """Ids that all of them take after the commit, each guess included."""
        return sum(flight.n + (flight.request is not None) for flight in self._flights)

    @property
    def num_ever(self) -> int:
        """Requests so far."""
        return self._number

    @property
    def num_asked(self) -> int:
        return sum(flight.request is not None for flight in self._flights)

    @property
    def unsent(self) -> Flight | None:
        """The next one to be sent."""
        return next((f for f in self._flights if f.request is not None and not f.is_sent), None)

    def find(self, number: int) -> Flight | None:
        return next(
            (f for f in self._flights if f.request is not None and f.request.number == number), None
        )

    def answer(self, verdict: Verdict, num_ids: int) -> Flight | None:
        """Note the verdict; None where its request is not on its way. Raises ValueError."""
        flight = self.find(verdict.number)
        if flight is not None:
            if not 0 <= verdict.n_accepted <= flight.n or not 0 <= verdict.next_id < num_ids:
                raise ValueError(f"verdict {verdict} does not fit a block of {flight.n} ids")
            flight.verdict = verdict
        return flight

    def ask(self, answer: Ids[int], n_committed: int, n: int) -> VerifyRequest:
        """A request for the `n` ids after those that are here already."""
        start = n_committed + self.span
        base = self._known
        at = n_committed
        for flight in self._flights:
            at += flight.n + (flight.request is not None)
            if flight.request is not None:
                # if all goes well, the target will hold the block and its own next id
                base = at
        self._number += 1
        request = VerifyRequest(
            number=self._number,
            base=base,
            prefix=prefix_hash(answer[:base]),
            unverified=tuple(answer[base:start]),
            draft=tuple(answer[start : start + n]),
        )
        self._flights.append(Flight(n, request))
        return request

    def ask_again(self, answer: Ids[int], n_committed: int) -> None:
        """The target holds none of the answer: the first request carries all committed ids."""
        self._known = 0
        for i, flight in enumerate(self._flights):
            if flight.request is None:
                continue
            self._number += 1
            flight.request = replace(flight.request, number=self._number)
            if i == 0:
                all_ids = tuple(answer[:n_committed])
                flight.request = replace(
                    flight.request, base=0, prefix=prefix_hash(()), unverified=all_ids
                )
            flight.is_sent = flight.is_refused = False
            flight.verdict = None

    def skip(self, n: int, is_unverified: bool) -> None:
        """Queue a block that needs no verdict after others."""
        self._flights.append(Flight(n, is_unverified=is_unverified))

    def land(self, verdict: Verdict) -> None:
        """The first one's verdict is applied."""
        request = self._flights.popleft().request
        assert request is not None
        self._known = request.base + len(request.unverified) + verdict.n_accepted + 1

    def pop_passed(self) -> Flight | None:
        """Take the first one, if it needs no verdict."""
        is_passed = bool(self._flights) and self._flights[0].request is None
        return self._flights.popleft() if is_passed else None

    def clear(self) -> None:
        self._flights.clear()


class Tail:
    """The ids after the commit: `extend` lengthens it, `settle` shortens it from the front. Its
    length is in ids.

    signals: one per id. emits: committed and not shown yet, oldest first.
    """

    def __init__(self, plan: Plan, vocabulary: Vocabulary, sequence: Sequence) -> None:
        self.counts = Counts()
        self.stop_reason: str | None = None
        self.signals: list[Signal] = []
        self.emits: deque[Emit] = deque()
        self.vocabulary = vocabulary
        self._drafted_stop: Stop | None = None  # how the last id drafted ends the answer
        self._plan = plan
        self._sequence = sequence

    def __len__(self) -> int:
        return len(self.signals)

    @property
    def is_ended(self) -> bool:
        """The last id drafted ends the answer, if it stands."""
        return self._drafted_stop is not None

    @property
    def ids(self) -> list[int]:
        """Ids drafted and not committed."""
        return self._sequence.answer[self._sequence.n_committed :]

    def part(self, begin: int, end: int) -> tuple[list[int], list[int], list[Signal]]:
        """(the answer before the tail's id `begin`, ids from there to `end`, their signals)."""
        answer = self._sequence.answer
        n = self._sequence.n_committed
        return answer[: n + begin], answer[n + begin : n + end], self.signals[begin:end]

    def extend(self, signals: Ids[Signal], room: int) -> None:
        """As many ids as there are `signals` now stand at the sequence's end. Keep at most `room`
        of them, and none after one that stops the answer."""
        answer = self._sequence.answer
        n = len(signals)
        begin = len(answer) - n
        found = first_stop(self.vocabulary, self._plan.rules, answer, begin)
        n_kept = n if room <= 0 else min(n, room)
        self._drafted_stop = None
        if found is not None and found[0] - begin < n_kept:
            n_kept = found[0] - begin + 1
            self._drafted_stop = found[1]
        if n_kept < n:
            self._sequence.replace_tail(self._sequence.answer_start + begin + n_kept)
        self.counts.n_drafted += n
        self.counts.n_wasted += n - n_kept
        self.signals += signals[:n_kept]

    def settle(
        self, ids: Ids[int], n_settled: int, verified: bool, log_probs: Ids[float] = ()
    ) -> bool:
        """Commit `ids` in place of the first `n_settled`, testing the stop at every id. Nothing
        after a stop is committed.

        log_probs: the target's, where the ids are verified; else those of the signals are shown.
        Returns whether the ids drafted after them stay: they do where `ids` were drafted there.
        """
        tail = self.ids
        kept, stopped = self._up_to_stop(ids, tail)
        if not verified:
            log_probs = [signal.log_prob for signal in self.signals[: len(kept)]]
        stands = stopped is None and kept == tail[:n_settled]
        if stands:
            del self.signals[:n_settled]
        else:
            last = None if stopped is None or stopped.keep else ids[len(kept)]
            self._drop_after(tail, kept, n_settled, last)
        self.stop_reason = None if stopped is None else stopped.reason
        self._commit(kept, verified, tuple(log_probs[: len(kept)]))
        return stands

    def end(self, reason: str, n_own: int) -> None:
        """Drop all, of which `n_own` were drafted for the committed prefix."""
        self.counts.n_wasted += n_own
        self.counts.n_ahead_wasted += len(self.ids) - n_own
        self._sequence.replace_tail(self._sequence.answer_start + self._sequence.n_committed)
        self._forget()
        self.stop_reason = reason

    def _up_to_stop(self, ids: Ids[int], tail: list[int]) -> tuple[list[int], Stop | None]:
        """`ids` up to the first one that stops the answer, and that stop."""
        n_committed = self._sequence.n_committed
        if list(ids) == tail[: len(ids)]:
            # They were tested when they were drafted: only the last one of the tail may stop.
            stopped = self._drafted_stop if len(ids) == len(tail) else None
            at = len(ids) - 1
        else:
            answer = [*self._sequence.answer[:n_committed], *ids]
            found = first_stop(self.vocabulary, self._plan.rules, answer, n_committed)
            stopped = None if found is None else found[1]
            at = 0 if found is None else found[0] - n_committed
        if stopped is None:
            return list(ids), None
        return list(ids[: at + stopped.keep]), stopped

    def _commit(self, kept: list[int], verified: bool, log_probs: tuple[float, ...]) -> None:
        self._sequence.commit(len(kept))
        self.counts.n_committed += len(kept)
        self.counts.n_verified += len(kept) if verified else 0
        if self._plan.mode == "edge":  # there each id is a block of its own
            self.emits.extend(
                Emit((token,), verified, log_probs[i : i + 1]) for i, token in enumerate(kept)
            )
        elif kept:
            self.emits.append(Emit(tuple(kept), verified, log_probs))

    def _drop_after(self, tail: Ids[int], kept: Ids[int], n_settled: int, last: int | None) -> None:
        """End the sequence with `kept`; equal ids stay cached. last: stopped, not shown."""
        n_used = num_same(tail, kept)
        at = self._sequence.answer_start + self._sequence.n_committed
        self._sequence.replace_tail(at + n_used, kept[n_used:])
        if last is not None and list(tail[n_used : n_used + 1]) == [last]:
            n_used += 1  # a drafted EOS or a loop's last id did its work without being shown
        self.counts.n_wasted += max(0, n_settled - n_used)
        self.counts.n_ahead_wasted += len(tail) - max(n_settled, n_used)
        self._forget()

    def _forget(self) -> None:
        self.signals = []
        self._drafted_stop = None


class Pace:
    """Moving averages, shared by all turns: from the second turn on the link is known.

    draft_s: seconds per drafted id. verdict_s: seconds from a request to its verdict.
    """

    def __init__(self, draft_s: float = 0.002, verdict_s: float = 0.05) -> None:
        self.draft_s = draft_s
        self.verdict_s = verdict_s

    def drafted(self, n: int, seconds: float) -> None:
        """Take the time of one step that drafted `n` ids."""
        self.draft_s += TRACK * (max(1e-5, seconds / n) - self.draft_s)

    def answered(self, seconds: float) -> None:
        """Take the time from a request to its verdict."""
        self.verdict_s += TRACK * (max(1e-5, seconds) - self.verdict_s)

    @property
    def num_at_once(self) -> int:
        """How many ids to draft in one step where something waits for its end."""
        return max(1, min(MOST_AT_ONCE, int(AT_ONCE_S / self.draft_s)))

    def is_worth_a_guess(self, left_s: float) -> bool:
        """Whether to draft ahead of a verdict that is expected in `left_s` seconds.

        The verdict brings the first id there for free, so there must be time for a second one.
        """
        return left_s >= 2 * self.draft_s

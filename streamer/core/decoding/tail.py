"""The ids behind the commit. In: drafts, what stands of them. Out: Emits, the stop, counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Ids

from streamer.core.decoding.counts import Counts
from streamer.core.decoding.gate import Signal
from streamer.core.decoding.plan import Emit, Plan
from streamer.core.decoding.sequence import Sequence
from streamer.core.rules.stop import Stop, first_stop
from streamer.core.text.vocabulary import Vocabulary


class Tail:
    """Owns what is drafted and not committed: it grows by `extend`, and shrinks from the front by
    `settle`. Its length is in ids."""

    def __init__(self, plan: Plan, vocabulary: Vocabulary, sequence: Sequence) -> None:
        self.counts = Counts()
        self.stop_reason: str | None = None
        self.signals: list[Signal] = []  # one per id
        self.emits: deque[Emit] = deque()  # what was committed and not shown yet, oldest first
        self._drafted_stop: Stop | None = None  # what the last id drafted means, if it stands
        self._plan = plan
        self._vocabulary = vocabulary
        self._sequence = sequence

    def __len__(self) -> int:
        return len(self.signals)

    @property
    def is_ended(self) -> bool:
        """The last id drafted ends the answer, if it stands."""
        return self._drafted_stop is not None

    @property
    def ids(self) -> list[int]:
        """Ids drafted beyond what is committed."""
        return self._sequence.answer[self._sequence.n_committed :]

    def extend(self, signals: Ids[Signal], room: int) -> None:
        """As many ids as there are `signals` now stand at the sequence's end. At most `room` of
        them are kept, and none after one that stops the answer."""
        answer = self._sequence.answer
        n = len(signals)
        begin = len(answer) - n
        found = first_stop(self._vocabulary, self._plan.rules, answer, begin)
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
        """Commit `ids` in place of the first `n_settled`, testing the stop at every id.
        log_probs: the target's, where they are verified; else the signals' own are told.

        Nothing after a stop is committed. Returns whether what was drafted behind them stays: it
        does where `ids` are just what was drafted there.
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
            self._drop_behind(tail, kept, n_settled, last)
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
            found = first_stop(self._vocabulary, self._plan.rules, answer, n_committed)
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

    def _drop_behind(
        self, tail: Ids[int], kept: Ids[int], n_settled: int, last: int | None
    ) -> None:
        """End the sequence with `kept`; what is the same stays cached. last: stopped, unshown."""
        n_used = 0
        while n_used < min(len(tail), len(kept)) and tail[n_used] == kept[n_used]:
            n_used += 1
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

"""The ids behind the commit of one answer. In: drafts, and what stands of them. Out: Emits, the
stop, honest counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Ids

from streamer.core.decoding.counts import Counts
from streamer.core.decoding.gate import Signal
from streamer.core.decoding.plan import Emit
from streamer.core.decoding.sequence import Sequence
from streamer.core.rules.settings import Rules
from streamer.core.rules.stop import Stop, first_stop
from streamer.core.text.vocabulary import Vocabulary


class Tail:
    """Owns what is drafted and not committed: it grows by `extend`, and shrinks from the front by
    `settle`."""

    def __init__(self, rules: Rules, vocabulary: Vocabulary, sequence: Sequence) -> None:
        self.counts = Counts()
        self.stop_reason: str | None = None
        # of its ids, at its front: whole blocks that the gate let pass as they were drafted
        self.num_passed = 0
        self.signals: list[Signal] = []  # of each of the others
        self._stop: Stop | None = None  # of the last id drafted, if it stands
        self._rules = rules
        self._vocabulary = vocabulary
        self._sequence = sequence
        self.emits: deque[Emit] = deque()  # what was committed and not shown yet, oldest first

    def __len__(self) -> int:
        return self.num_passed + len(self.signals)

    @property
    def is_ended(self) -> bool:
        """The last id drafted ends the answer, if it stands."""
        return self._stop is not None

    @property
    def ids(self) -> list[int]:
        """Ids drafted beyond what is committed."""
        return self._sequence.answer[self._sequence.n_committed :]

    def extend(self, n: int, signals: Ids[Signal], room: int) -> None:
        """`n` ids now stand at the sequence's end, the last ones with `signals`; those before them,
        and all that were here, are blocks that passed. Kept are `room` of them at most, and none
        after one that stops the answer, also not inside a block."""
        answer = self._sequence.answer
        n_passed = n - len(signals)
        begin = len(answer) - n
        self.counts.n_drafted += n
        found = first_stop(self._vocabulary, self._rules, answer, begin)
        n_kept = n if room <= 0 else min(n, room)
        self._stop = None
        if found is not None and found[0] - begin < n_kept:
            n_kept = found[0] - begin + 1
            self._stop = found[1]
        if n_kept < n:
            self.counts.n_wasted += n - n_kept
            self._sequence.replace_tail(self._sequence.answer_start + begin + n_kept)
        if n_passed:
            self.num_passed = len(self) + min(n_passed, n_kept)
            self.signals = []
        if signals:
            self.signals += signals[: max(0, n_kept - n_passed)]

    def settle(self, ids: Ids[int], n_settled: int, verified: bool) -> bool:
        """Commit `ids` in place of the first `n_settled`, testing the stop at every id; nothing
        after a stop is committed. Whether what was drafted behind them stays: where they are just
        those."""
        n_committed = self._sequence.n_committed
        tail = self.ids
        answer = [*self._sequence.answer[:n_committed], *ids]
        # drafted so, they were tested then: only the last one may stop
        if list(ids) == tail[: len(ids)]:
            found = (len(answer) - 1, self._stop) if self._stop and len(ids) == len(tail) else None
        else:
            found = first_stop(self._vocabulary, self._rules, answer, n_committed)
        stopped = None
        last = None
        if found is not None:
            at, stopped = found
            last = None if stopped.keep else answer[at]
            del answer[at + stopped.keep :]
            self.stop_reason = stopped.reason
        kept = answer[n_committed:]
        stands = stopped is None and kept == tail[:n_settled]
        if stands:
            n_passed = min(n_settled, self.num_passed)
            self.num_passed -= n_passed
            del self.signals[: n_settled - n_passed]
        else:
            self._drop_behind(tail, kept, n_settled, last)
        self._sequence.commit(len(kept))
        self.counts.n_committed += len(kept)
        self.counts.n_verified += len(kept) if verified else 0
        if kept:
            self.emits.append(Emit(tuple(kept), verified))
        return stands

    def settle_passed(self) -> None:
        """Commit the blocks that passed, as `settle` would."""
        n = self.num_passed
        begin = self._sequence.n_committed
        counts = self.counts
        ids = tuple(self._sequence.answer[begin : begin + n])
        stopped = None if self.signals else self._stop  # else it is behind them
        if stopped is not None and not stopped.keep:
            self.settle(ids, n, verified=False)
            return
        self._sequence.commit(n)
        counts.n_committed += n
        self.emits.append(Emit(ids, verified=False))
        self.num_passed = 0
        if stopped is not None:
            self.stop_reason = stopped.reason
            self._stop = None

    def end(self, reason: str, n_own: int | None) -> None:
        """Drop all, of which `n_own` (None: all) were drafted for the committed prefix."""
        n = len(self.ids)
        n_own = n if n_own is None else n_own
        self.counts.n_wasted += n_own
        self.counts.n_ahead_wasted += n - n_own
        self._sequence.replace_tail(self._sequence.answer_start + self._sequence.n_committed)
        self._forget()
        self.stop_reason = reason

    def _drop_behind(
        self, tail: Ids[int], kept: Ids[int], n_settled: int, last: int | None
    ) -> None:
        """Make the sequence end with `kept`; keep in the cache what is the same. last: it stopped
        and is not shown."""
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
        self.num_passed = 0
        self.signals = []
        self._stop = None

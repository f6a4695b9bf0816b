"""The ids behind the commit of one answer. In: drafts, and what stands of them. Out: Emits, the stop, honest counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Ids

from streamer.core.counts import Counts
from streamer.core.gate import Signal
from streamer.core.plan import Emit
from streamer.core.rules import Rules
from streamer.core.sequence import Sequence
from streamer.core.stop import stop
from streamer.core.vocabulary import Vocabulary


class Tail:
    """Owns what is drafted and not committed: it grows by `extend`, and shrinks from the front by `settle`."""

    def __init__(self, rules: Rules, vocabulary: Vocabulary, sequence: Sequence) -> None:
        self.counts = Counts()
        self.stop_reason: str | None = None
        self.signals: list[Signal] = []  # of each of its ids
        self.is_ended = False  # the last id drafted ends the answer, if it stands
        self._rules, self._vocabulary, self._sequence = rules, vocabulary, sequence
        self._emits: deque[Emit] = deque()

    def __len__(self) -> int:
        return len(self.signals)

    @property
    def ids(self) -> list[int]:
        """Ids drafted beyond what is committed."""
        return self._sequence.answer[self._sequence.n_committed :]

    def pop_emit(self) -> Emit | None:
        """What was committed and not shown yet, oldest first."""
        return self._emits.popleft() if self._emits else None

    @property
    def has_emits(self) -> bool:
        return bool(self._emits)

    def extend(self, signals: Ids[Signal], room: int) -> None:
        """As many ids as `signals` now stand at the sequence's end. Kept are `room` of them at most, and none after one
        that stops the answer, also not inside a block."""
        answer, n = self._sequence.answer, len(signals)
        self.counts.n_drafted += n
        for i, signal in enumerate(signals, start=len(answer) - n):
            self.signals.append(signal)
            room -= 1
            self.is_ended = stop(self._vocabulary, self._rules, answer[:i], answer[i]) is not None
            if self.is_ended or room == 0:
                self.counts.n_wasted += len(answer) - i - 1
                self._sequence.replace_tail(self._sequence.answer_start + i + 1)
                return

    def settle(self, ids: Ids[int], n_settled: int, verified: bool) -> bool:
        """Commit `ids` in place of the first `n_settled`, testing the stop at every id; nothing after a stop is
        committed. Whether what was drafted behind them stays: where they are just those."""
        answer = self._sequence.answer[: self._sequence.n_committed]
        kept: list[int] = []
        stopped = None
        for token in ids:
            stopped = stop(self._vocabulary, self._rules, answer, token)
            if stopped is None or stopped.keep:
                kept.append(token)
                answer.append(token)
            if stopped is not None:
                self.stop_reason = stopped.reason
                break
        tail = self.ids
        stands = stopped is None and kept == tail[:n_settled]
        if stands:
            del self.signals[:n_settled]
        else:
            last = token if stopped is not None and not stopped.keep else None
            self._drop_behind(tail, kept, n_settled, last)
        self._sequence.commit(len(kept))
        self.counts.n_committed += len(kept)
        self.counts.n_verified += len(kept) if verified else 0
        if kept:
            self._emits.append(Emit(tuple(kept), verified))
        return stands

    def end(self, reason: str, n_own: int | None) -> None:
        """Drop all, of which `n_own` (None: all) were drafted for the committed prefix."""
        n = len(self.ids)
        n_own = n if n_own is None else n_own
        self.counts.n_wasted += n_own
        self.counts.n_ahead_wasted += n - n_own
        self._sequence.replace_tail(self._sequence.answer_start + self._sequence.n_committed)
        self._forget()
        self.stop_reason = reason

    def _drop_behind(self, tail: Ids[int], kept: Ids[int], n_settled: int, last: int | None) -> None:
        """Make the sequence end with `kept`; keep in the cache what is the same. last: it stopped and is not shown."""
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
        self.signals, self.is_ended = [], False

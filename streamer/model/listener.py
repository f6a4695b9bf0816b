"""One stream on one model. In: log-mel windows, then ids. Out: a prefilled KV slot, then logits.

Owns the stream's KV slot and moves its sequence: prompt | audio as it arrives | suffix | answer.
Windows are encoded one by one and prefilled at once, so that after the last sample only the last
window and the suffix remain. Work for the model is written as steps (model/scheduler.py): their
caller decides what else is in the same engine step.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.turn_items import Heard
from streamer.core.decoding.sequence import Sequence
from streamer.model.audio.mel import MelWindow
from streamer.model.audio.window_ledger import WindowLedger
from streamer.model.engines.engine import Engine, Row, joined
from streamer.model.scheduler import Encode, Steps
from streamer.model.thinker import Thinker


class Listener:
    """`hear` windows, `finish` the turn, `feed` the answer's ids; `close` gives the slot back."""

    def __init__(self, thinker: Thinker, language: str = "") -> None:
        """language: of the sentence; "" is the model's first."""
        self.thinker = thinker
        self._suffix = thinker.suffixes[language]
        prompt = thinker.engine.prompt_ids
        self.sequence = Sequence(prompt, n_cached=len(prompt))
        self._slot: int | None = thinker.engine.open()
        self._ledger = WindowLedger()
        self._windows: list[MelWindow] = []
        # per window [n, hidden], kept for a redo after a stale window
        self._embeddings: list[Any] = []
        self._starts: list[int] = []  # per window, its first position
        self._tail: Any = None  # embeddings of pending audio positions

    @property
    def engine(self) -> Engine:
        """The engine that must drive this listener's steps."""
        return self.thinker.engine

    @property
    def num_reencoded(self) -> int:
        """Windows that were encoded again because the clip's maximum rose."""
        return self._ledger.num_reencoded

    def hear(self, heard: Heard) -> Steps[None] | None:
        """Steps that prefill what is complete now: new windows, and those that a louder sound made
        stale. None where there is nothing to do."""
        self._ledger.observe(heard.maximum, heard.num_taken)
        if not heard.windows and self._ledger.due(heard.num_taken) is None:
            return None
        return self._hear(heard)

    def so_far(self, window: MelWindow) -> Steps[Listener]:
        """Steps that return a listener whose turn ends with `window`, on the same KV slot after
        the positions that this one holds.

        For a sentence on a turn that goes on: nothing of this one changes, so there is nothing to
        roll back. It must not be used once this one feeds again, and need not be closed.
        """
        fork = copy.copy(self)
        fork.sequence = Sequence(self.sequence.ids, self.sequence.n_cached)
        fork._hold((yield from fork._encode(window, self._ledger.clip_max(window))))
        fork.sequence.extend(self._suffix)
        fork.sequence.start_answer()
        return fork

    def finish(
        self, rest: Iterable[MelWindow], maximum: float, prefills: bool = False
    ) -> Steps[None]:
        """The turn is over: a pending redo runs at once, the rest and the suffix stay pending for
        the first step.

        prefills: only the suffix stays pending. For a model that speaks second: it has the time,
        its first step not.
        """
        stale = self._ledger.finish(maximum)
        if stale is not None:
            yield from self._redo(stale)
        for window in rest:
            yield from self._append(window, is_urgent=True)
        if prefills:
            yield from self._prefill()
        self.sequence.extend(self._suffix)
        self.sequence.start_answer()

    def feed(self, num_logits: int) -> Steps[NDArray[np.float32]]:
        """Run the pending ids through the model: logits [num_logits, vocab] of the last of them."""
        assert self._slot is not None, "the listener is closed"
        pending = self.sequence.pending
        logits = yield Row(self._slot, self.sequence.n_cached, pending, self._tail, num_logits)
        self.sequence.mark_fed(len(pending))
        self._tail = None
        return logits

    def features(self) -> NDArray[np.float32]:
        """[mels, frames] of all windows under the clip's maximum: the stock extractor's output."""
        return np.concatenate(
            [window.features(self._ledger.maximum) for window in self._windows], axis=1
        )

    def close(self) -> None:
        """Give the KV slot back, and the sound; a second call does nothing."""
        if self._slot is not None:
            self.thinker.engine.close(self._slot)
            self._slot = None
            # An ended session stays in cycles until they are collected: 3 MB for a minute.
            self._ledger = WindowLedger()
            self._windows, self._embeddings, self._tail = [], [], None

    def _hear(self, heard: Heard) -> Steps[None]:
        for window in heard.windows:
            yield from self._append(window)
            yield from self._prefill()
        stale = self._ledger.due(heard.num_taken)
        if stale is not None:
            yield from self._redo(stale)

    def _append(self, window: MelWindow, is_urgent: bool = False) -> Steps[None]:
        """Encode the next window; its positions are pending."""
        embeddings = yield from self._encode(window, self._ledger.deliver(window), is_urgent)
        self._windows.append(window)
        self._starts.append(len(self.sequence))
        self._embeddings.append(embeddings)
        self._hold(embeddings)

    def _encode(self, window: MelWindow, maximum: float, is_urgent: bool = False) -> Steps[Any]:
        return (yield Encode(np.asarray(window.features(maximum)), is_urgent))

    def _hold(self, embeddings: Any) -> None:
        """Put audio placeholders at the sequence's end; their embeddings wait for the next step."""
        self.sequence.extend([self.thinker.shapes.audio_id] * len(embeddings))
        self._tail = embeddings if self._tail is None else joined([self._tail, embeddings])

    def _prefill(self) -> Steps[None]:
        if self.sequence.pending:
            yield from self.feed(num_logits=0)

    def _redo(self, from_index: int) -> Steps[None]:
        """Roll back to a stale window, and prefill; only what the maximum changed is encoded."""
        self.sequence.replace_tail(self._starts[from_index])
        self._tail = None
        for i, redo in enumerate(self._ledger.redo(from_index), start=from_index):
            if redo.changed:
                self._embeddings[i] = yield from self._encode(redo.window, self._ledger.maximum)
            self._hold(self._embeddings[i])
        yield from self._prefill()

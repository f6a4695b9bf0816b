"""One stream on one model. In: log-mel windows, then ids. Out: a prefilled KV slot, then logits.

Owns the stream's KV slot and moves its sequence: prompt | audio as it arrives | suffix | answer.
Windows are encoded one by one and prefilled at once, so that after the last sample only the last
window and the suffix remain. Work for the model is written as steps (model/scheduler.py): their
caller decides what else is in the same engine step.

Turns of clients go through stages. For calibration, the warm-up and benches `hear_parts` takes
whole recordings, on models that have no other user meanwhile.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ, WINDOW_SAMPLES
from streamer.core.audio.turn import Closed, Heard, Item, TurnOpened
from streamer.core.decoding.sequence import Sequence
from streamer.model.audio.mel import CLAMP, MelWindow
from streamer.model.audio.turns import TurnCutter
from streamer.model.engines.engine import Engine, Row, joined
from streamer.model.scheduler import Encode, Steps, drive
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
        # per window [n, hidden], kept for a redo after a stale window
        self._embeddings: list[Any] = []
        self._starts: list[int] = []  # per window, its first position
        self._tail: Any = None  # embeddings of pending audio positions

    @property
    def engine(self) -> Engine:
        """The engine that must drive this listener's steps."""
        return self.thinker.engine

    def hear(self, heard: Heard) -> Steps[None] | None:
        """Steps that prefill what is complete now: new windows, and those that a louder sound made
        stale. None where there is nothing to do."""
        self._ledger.observe(heard.maximum, heard.num_taken)
        if not heard.windows and self._ledger.due(heard.num_taken) is None:
            return None

        def steps() -> Steps[None]:
            for window in heard.windows:
                yield from self._append(window)
                yield from self._prefill()
            yield from self._redo(self._ledger.due(heard.num_taken))

        return steps()

    def so_far(self, window: MelWindow) -> Steps[Listener]:
        """Steps that return a listener whose turn ends with `window`, on the same KV slot after
        the positions that this one holds.

        For a sentence on a turn that goes on: nothing of this one changes, so there is nothing to
        roll back. It must not be used once this one feeds again, and need not be closed.
        """
        fork = copy.copy(self)
        fork.sequence = Sequence(self.sequence.ids, self.sequence.n_cached)
        maximum = max(self._ledger.maximum, window.maximum)
        fork._hold((yield Encode(window.features(maximum))))
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
        self._ledger.observe(maximum)
        yield from self._redo(self._ledger.stale())
        for window in rest:
            yield from self._append(window)
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
        ledger = self._ledger
        return np.concatenate([w.features(ledger.maximum) for w in ledger.windows], axis=1)

    def close(self) -> None:
        """Give the KV slot back, and the sound; a second call does nothing."""
        if self._slot is not None:
            self.thinker.engine.close(self._slot)
            self._slot = None
            # a caller may keep the ended session: 3 MB for a minute
            self._ledger = WindowLedger()
            self._embeddings, self._tail = [], None

    def _append(self, window: MelWindow) -> Steps[None]:
        """Encode the next window; its positions are pending."""
        embeddings = yield Encode(window.features(self._ledger.deliver(window)))
        self._starts.append(len(self.sequence))
        self._embeddings.append(embeddings)
        self._hold(embeddings)

    def _hold(self, embeddings: Any) -> None:
        """Put audio placeholders at the sequence's end; their embeddings wait for the next step."""
        self.sequence.extend([self.thinker.shapes.audio_id] * len(embeddings))
        self._tail = embeddings if self._tail is None else joined([self._tail, embeddings])

    def _prefill(self) -> Steps[None]:
        if self.sequence.pending:
            yield from self.feed(num_logits=0)

    def _redo(self, from_index: int | None) -> Steps[None]:
        """Roll back to a stale window, if any, and prefill; only what the maximum changed is
        encoded."""
        if from_index is None:
            return
        self.sequence.replace_tail(self._starts[from_index])
        self._tail = None
        for i, (window, is_changed) in enumerate(self._ledger.redo(from_index), start=from_index):
            if is_changed:
                self._embeddings[i] = yield Encode(window.features(self._ledger.maximum))
            self._hold(self._embeddings[i])
        yield from self._prefill()


def hear_parts(
    thinkers: Seq[Thinker],
    chunks: Iterable[NDArray[np.float32]],
    prefills: bool = True,
    measures: bool = False,
    language: str = "",
) -> Iterator[tuple[list[Listener], Closed]]:
    """Each part of a recording: a listener per model, its turn over; and how the turn closed.
    language: of the sentence; "" is the models' first.

    The slots are given back when the next part is asked for, or the iterator is closed.
    """
    listeners: list[Listener] = []
    most_s = min(thinker.card.max_turn_s for thinker in thinkers)
    try:
        for item in items_of(chunks, most_s, measures):
            if isinstance(item, TurnOpened):
                listeners = [Listener(thinker, language) for thinker in thinkers]
            for listener in listeners:
                hear(listener, item, prefills)
            if isinstance(item, Closed):
                yield listeners, item
                for listener in listeners:
                    listener.close()
    finally:
        for listener in listeners:
            listener.close()


def items_of(
    chunks: Iterable[NDArray[np.float32]], max_turn_s: float, measures: bool = False
) -> Iterator[Item]:
    """The items of a recording's turns. chunks: samples [n] float32 at 16 kHz."""
    cutter = TurnCutter(SAMPLE_RATE_HZ, max_turn_s, is_recording=True, measures=measures)
    for chunk in chunks:
        yield from cutter.push(chunk.tobytes())
    yield from cutter.commit()


def hear(listener: Listener, item: Item, prefills: bool = True) -> None:
    """Take `item` in. prefills: the turn's last window is prefilled, too, not only encoded."""
    steps = None
    if isinstance(item, Heard):
        steps = listener.hear(item)
    elif isinstance(item, Closed):
        steps = listener.finish(item.rest, item.maximum, prefills)
    if steps is not None:
        drive(listener.engine, steps)


# 100 ms. On clips of 3-45 s 23 % of the windows are encoded again, all in the background. Nothing
# is left to do after the last sample; with 1 s here, there was on one clip in 20 (2026-11).
STABLE_SAMPLES = 1_600
# After k windows were encoded again, the next redo waits for k seconds of audio: the background
# never does more than twice the work of encoding once, also in a fade-in, which rises all the time.
REST_SAMPLES = WINDOW_SAMPLES // 2
# 300 s, where the stock extractor cuts, and one for the silence around them (core/audio/turn.py);
# a raw window is 102 kB, so at most 15 MB
MAX_WINDOWS = 151


class WindowLedger:
    """The clamp under which each window of one clip was delivered, and the windows that the growing
    maximum made stale. It keeps the raw windows (at most MAX_WINDOWS).

    The features are clamped 80 dB below the maximum of the WHOLE clip, which is unknown while it is
    arriving. So each window is delivered (encoded and prefilled) under the maximum so far, and
    again if a later, higher one changes it: (max(raw, m - 8) + 4) / 4 differs under m' > m if and
    only if min(raw) < m' - 8. Times are in samples at 16 kHz of the clip, never a clock.

    The caller tells the log-mel's running maximum (`observe`), asks `due` now and then, and at the
    end `stale`. Given an index, it rolls the KV back to that window's start and prefills
    `redo(index)` again.
    """

    def __init__(self) -> None:
        self.maximum = -np.inf
        self.windows: list[MelWindow] = []
        # per window, the least value in it when it was last delivered: raw, or the clamp
        self._least: list[float] = []
        self._risen_at = 0
        self._now = 0
        self._resting_until = 0

    def observe(self, maximum: float, now_samples: int = 0) -> None:
        """Tells the running maximum over all frames known at `now_samples`; it never falls."""
        if maximum > self.maximum:
            self.maximum = maximum
            self._risen_at = now_samples

    def deliver(self, window: MelWindow) -> float:
        """Records that the next window is encoded now; returns the clip maximum to take its
        features with. Raises ValueError beyond MAX_WINDOWS."""
        if len(self.windows) >= MAX_WINDOWS:
            raise ValueError(f"the clip is longer than {MAX_WINDOWS} windows")
        self.observe(window.maximum, window.end_samples)
        self.windows.append(window)
        self._least.append(max(window.minimum, self._floor))
        return self.maximum

    def stale(self) -> int | None:
        """The first window whose features would differ under the present maximum, or None."""
        floor = self._floor
        return next((i for i, least in enumerate(self._least) if floor > least), None)

    def due(self, now_samples: int) -> int | None:
        """`stale`, once the maximum was stable for 100 ms: a rise has several steps, one redo."""
        self._now = now_samples
        if now_samples - self._risen_at < STABLE_SAMPLES or now_samples < self._resting_until:
            return None
        return self.stale()

    def redo(self, from_index: int) -> list[tuple[MelWindow, bool]]:
        """Takes all windows from `from_index` on as delivered under the present maximum.

        The caller must now prefill each of them again, in order, with features under `maximum`;
        where it is False, the old embeddings still hold.
        """
        floor, old = self._floor, self._least[from_index:]
        self._least[from_index:] = [max(least, floor) for least in old]
        self._resting_until = self._now + sum(floor > least for least in old) * REST_SAMPLES
        windows = self.windows[from_index:]
        return [(window, floor > least) for window, least in zip(windows, old, strict=True)]

    @property
    def _floor(self) -> float:
        """The clamp in float32, as `MelWindow.features` computes it."""
        return float(np.float32(self.maximum) - np.float32(CLAMP))

"""One turn, in process. In: samples as they come. Out: text deltas, each as soon as it is
committed.

Hears once (mel, voice activity), prefills every model it needs while audio arrives, then drives the
state machine until Done. Synchronous: whoever calls it decides on which thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.core.decoding.counts import Counts
from streamer.core.decoding.pace import Pace
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.speculate import Done, DraftMore, Emit, Plan, Speculator, Verify
from streamer.core.decoding.verdict import Refusal
from streamer.core.rules.sampling import Sampling
from streamer.core.text.emitter import Emitter
from streamer.model.audio.frontend import Ear
from streamer.model.audio.mel import MelWindow
from streamer.model.drafters import StepDrafter
from streamer.model.listener import Listener
from streamer.model.scheduler import drive
from streamer.model.thinker import Thinker
from streamer.model.verifier import LocalVerifier


@dataclass(frozen=True, slots=True)
class Delta:
    """Committed `ids` and the text they complete (may be empty while a character is open)."""

    text: str
    ids: tuple[int, ...]
    verified: bool
    at: float  # seconds of the turn's clock


class Turn:
    """`push` samples, `finish`, iterate `answer`, `close`. The edge may be absent (mode cloud), or
    the cloud."""

    def __init__(
        self,
        edge: Thinker | None,
        cloud: Thinker | None,
        plan: Plan,
        sampling: Sampling,
        drafter_of: Callable[[Listener], StepDrafter],
        clock: Callable[[], float] = time.perf_counter,
        pace: Pace | None = None,
    ) -> None:
        self.plan = plan
        self.sampling = sampling
        self.clock = clock
        self._pace = pace
        self.counts = Counts()
        self.stop_reason = ""
        # when the first id was there, of the model that speaks first
        self.prefilled_at: float | None = None
        self._drafter_of = drafter_of
        self._ear = Ear()
        self._listeners: list[Listener] = []
        self._edge = self._listen(edge)
        self._cloud = self._listen(cloud)
        self._rest: list[MelWindow] = []
        self._preparing: threading.Thread | None = None
        self._unprepared: Exception | None = None

    @property
    def num_samples(self) -> int:
        return self._ear.num_samples

    @property
    def last_speech_sample(self) -> int | None:
        return self._ear.last_speech_sample

    def push(self, samples: NDArray[np.float32]) -> None:
        """Hear samples [n] float32, mono 16 kHz; complete windows are encoded and prefilled on
        every model."""
        for window in self._ear.push(samples):
            for listener in self._listeners:
                drive(listener.engine, listener.hear(window))
        for listener in self._listeners:
            if listener.observe(self._ear.maximum, self._ear.num_samples):
                drive(listener.engine, listener.redo())

    def finish(self) -> None:
        """The last sample is in."""
        self._rest = self._ear.finish()

    def answer(self) -> Iterator[Delta]:
        """Yield the sentence as it commits. Sets `stop_reason`, `counts` and `prefilled_at`."""
        if not self._ear.has_speech:
            self.stop_reason = "no_speech"
            return
        spec = self._start()
        verifier: LocalVerifier | None = None
        drafter = self._drafter_of(self._edge) if self._edge else None
        emitter = Emitter(spec.vocabulary)
        while True:
            match spec.next(self.clock()):
                case DraftMore(n):
                    assert self._edge is not None
                    assert drafter is not None
                    # The first step ends the prefill, and when it does is told.
                    steps = drafter.draft(n if self.prefilled_at else 1)
                    spec.drafted(*drive(self._edge.engine, steps), self.clock())
                    self._first_step_done()
                case Verify(request):
                    verifier = verifier or self._start_verifier()
                    assert self._cloud is not None
                    verdict = drive(self._cloud.engine, verifier.verify(request))
                    self._first_step_done()
                    # in process nothing is lost or late: this is a defect
                    if isinstance(verdict, Refusal):
                        raise RuntimeError(
                            f"the verifier refused block {request.number}: {verdict.reason}"
                        )
                    spec.verdict(verdict)
                case Emit(_, verified) as emit:
                    for ids in self.plan.deltas_of(emit):
                        yield Delta(emitter.push(ids), ids, verified, self.clock())
                case Done(reason):
                    self.stop_reason = reason
                    return

    def prefilled(self) -> tuple[Listener, Listener] | None:
        """(edge, cloud) with the finished turn in, for decoding of another kind; None: nobody
        spoke."""
        assert self._edge is not None
        assert self._cloud is not None
        if not self._ear.has_speech:
            return None
        for listener in self._listeners:
            drive(listener.engine, listener.finish(self._rest, self._ear.maximum, prefills=True))
        return self._edge, self._cloud

    def close(self) -> None:
        """Give all KV slots back."""
        self._prepared()
        for listener in self._listeners:
            listener.close()

    def _listen(self, thinker: Thinker | None) -> Listener | None:
        if thinker is None:
            return None
        try:
            listener = Listener(thinker)
        except Exception:
            self.close()
            raise
        self._listeners.append(listener)
        return listener

    def _start(self) -> Speculator:
        """Finish the turn on the model that speaks first; the other follows when it is asked."""
        if self._edge is not None:
            # it hears the end while the edge drafts the first block
            if self._cloud is not None:
                self._preparing = threading.Thread(target=self._prepare, args=(self._cloud,))
                self._preparing.start()
            drive(self._edge.engine, self._edge.finish(self._rest, self._ear.maximum))
        first = self._edge or self._cloud
        assert first is not None
        spec = start_answer(self.plan, self._edge, first.thinker, self._pace)
        self.counts = spec.counts
        return spec

    def _prepared(self) -> None:
        """Wait until the cloud's thread is through: at most one window and one step."""
        if self._preparing is not None:
            self._preparing.join()

    def _first_step_done(self) -> None:
        """The first step feeds what is left of the prompt and gives the first id: prefill ends with
        it."""
        if self.prefilled_at is None:
            self.prefilled_at = self.clock()

    def _prepare(self, cloud: Listener) -> None:
        try:
            drive(
                cloud.engine,
                cloud.finish(self._rest, self._ear.maximum, prefills=self._edge is not None),
            )
        except Exception as error:  # told where the verdict is asked for
            self._unprepared = error

    def _start_verifier(self) -> LocalVerifier:
        assert self._cloud is not None
        if self._preparing is None:
            self._prepare(self._cloud)
        self._prepared()
        if self._unprepared is not None:
            raise self._unprepared
        return LocalVerifier(self._cloud, self.plan.rules, self.sampling)


def start_answer(
    plan: Plan, edge: Listener | None, first: Thinker, pace: Pace | None = None
) -> Speculator:
    """The state machine on the finished edge's sequence, or, where nothing is drafted, on one
    without a cache.

    first: the model whose vocabulary the answer is written in.
    """
    if edge is not None:
        return Speculator(plan, first.vocabulary, edge.sequence, pace)
    sequence = Sequence(first.suffix_ids)
    sequence.start_answer()
    return Speculator(plan, first.vocabulary, sequence, pace)

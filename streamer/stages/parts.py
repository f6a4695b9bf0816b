"""The models of a stream: Parts, a thread for each model, and the cloud in this process.

On a Batcher's thread, steps of many streams share the engine's steps. The event loop never waits
for torch: it hands steps over and awaits an event. Bounded by its callers: a stream has at most one
submission in hand per task, one more that hears on the target, and a slot per turn.
"""

from __future__ import annotations

import atexit
import math
import queue
import threading
from collections.abc import Callable
from collections.abc import Sequence as Ids
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio import CapacityLimiter, Semaphore

from streamer.core.attributes import (
    ATTRIBUTES,
    LevelNames,
    Phrases,
    SaidToken,
    fused_confidence,
    parse,
)
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn import Closed, Heard
from streamer.core.decoding.plan import Counts, Pace, Plan, Refusal, Verdict, VerifyRequest
from streamer.core.description import QUIET, Description, turn_warning
from streamer.core.measures.levels import level_chances, level_weights, opinion_of
from streamer.core.rules.settings import FLAT, LevelWeights, Rules, Sampling
from streamer.core.text.vocabulary import Vocabulary
from streamer.stages.events import SessionOptions

# Two contend for the interpreter lock: 64 streams take a third more CPU time (2026-11).
NUM_PIECES = 1
MOST_UNHEARD = 15  # windows of 2 s that a target keeps: 60 ms on the embedded pair
CLOSED = "the describer was closed; nothing of it can be used any more"
EXIT_S = 10.0  # to wait for the round in hand, in a process that ends without closing

# From the room of models, and from net/link.
Steps = Any  # work for a model's thread; opaque here
Model = Any  # a Batcher: `submit` steps, `listen` to a turn
Hearing = Any  # model/audio/turns.py's TurnCutter: on a worker thread, one call at a time
Hearer = Any  # model/listener.py's Listener: one turn on one model; holds a KV slot until closed
Drafter = Any  # model/decoding.py: one turn's draft
Judge = Any  # assembly.py's ModelJudge: one turn of an edge elsewhere, one call at a time
Cloud = Any  # LocalCloud, or net/link/client.py's RemoteCloud
Target = Any  # one turn there: LocalTarget, or net/link/target.py's RemoteTarget


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The models, for one stream: assembly.py makes it.

    edge: None in mode cloud. cloud: None where turns are not verified. suffix: ids after the audio.
    cut, drafts, updates: make a TurnCutter, the drafter of a turn that is over, and steps that
    return the ids of a sentence on the audio so far. phrases, level_names: to read a sentence back.
    is_measured: measures decide on words, too. max_turn_s: a turn that reaches it goes on as
    another turn. slots: a turn holds one from its first sample to its Description.

    pieces, hearing: limits of the worker threads that hear all streams of a describer. Pieces wait
    for `pieces` in order. The end of a turn skips that order, since a client waits for the first
    word.
    """

    plan: Plan
    sampling: Sampling
    vocabulary: Vocabulary
    suffix: Ids[int]
    edge: Model
    cloud: Cloud
    cut: Callable[[SessionOptions, bool], Hearing]
    drafts: Callable[[Hearer, Rules, Sampling, LevelWeights], Drafter]
    updates: Callable[[Hearer, Any, Rules, Sampling, LevelWeights], Steps]
    phrases: Phrases
    level_names: LevelNames
    is_measured: bool
    max_turn_s: float
    slots: Semaphore
    pieces: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(NUM_PIECES))
    hearing: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(NUM_PIECES + 1))
    pace: Pace = field(default_factory=Pace)

    @property
    def weighs(self) -> bool:
        """Whether measures decide on the words with the models."""
        return self.is_measured and self.plan.rules.form != ""

    def target(self) -> Target:
        """Begin a turn on the target; None where turns are not verified."""
        return None if self.cloud is None else self.cloud.listen(self.plan.rules)

    async def on_thread(self, call: Callable[..., Any], *arguments: object) -> Any:
        """The value of `call`, made on a thread that hears."""
        return await anyio.to_thread.run_sync(call, *arguments, limiter=self.hearing)

    def weights(self, heard: Closed | Heard) -> LevelWeights:
        """Log-weights of the levels in the sentence on the turn, or on the turn so far. Blocks
        until its measures are known."""
        if heard.measures is None or not self.weighs:
            return FLAT
        return level_weights(heard.measures(), self.phrases)

    def describe(
        self,
        closed: Closed,
        stop_reason: str,
        counts: Counts,
        said: Ids[SaidToken] = (),
        ttft_ms: float | None = None,
        **times: Any,
    ) -> Description:
        """The Description of a turn. said: one per id. times: further ones. Blocks as `weights`."""
        text = "".join(piece.text for piece in said)
        audio_s = closed.num_samples / SAMPLE_RATE_HZ
        from_speech_ms = None
        if ttft_ms is not None and (last := closed.last_speech) is not None:
            from_speech_ms = ttft_ms + 1000 * (audio_s - last / SAMPLE_RATE_HZ)
        measures = closed.measures() if closed.measures is not None else None
        confidence = None
        if said and measures is not None and self.weighs:
            chances = level_chances(measures)
            opinion, is_greedy = opinion_of(measures), self.sampling.temperature == 0
            known = fused_confidence(said, self.phrases, chances, opinion, is_greedy)
            confidence = {name: known.get(name) for name in ATTRIBUTES}
        faults: tuple[str, ...] = (QUIET,) if closed.is_quiet else ()
        speech_s = audio_s
        # a turn without speech is not too short; measures that are shown have their own warnings
        if stop_reason == "no_speech" or closed.curves is not None:
            speech_s = math.inf
        elif measures is not None:
            faults += measures.faults_in("en")
            speech_s = min(audio_s, measures.speech_s)
        return Description(
            file=f"turn {closed.turn}",
            text=text,
            stop_reason=stop_reason,
            mode=self.plan.mode,
            counts=counts,
            audio_s=audio_s,
            attributes=parse(text, self.phrases),
            ttft_ms=ttft_ms,
            ttft_from_speech_ms=from_speech_ms,
            warning=turn_warning(counts, self.plan.mode, speech_s, self.cloud, faults),
            turn=closed.turn,
            measures=None if closed.curves is None else measures,
            confidence=confidence,
            language=self.plan.rules.language,
            level_names=self.level_names,
            curves=closed.curves() if closed.curves is not None else None,
            **times,
        )


def poster() -> Callable[[Callable[[], object]], object]:
    """Runs a call in this event loop, asyncio's or trio's, from any thread. It does not wait for
    the call's result, as anyio's from_thread does; RuntimeError where the loop is gone."""
    loop: Any = anyio.lowlevel.current_token().native_token
    return getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon


@dataclass(eq=False)
class Ticket:
    """Steps in hand. is_urgent: as of a scheduler's job."""

    steps: Any
    is_urgent: bool
    is_done: anyio.Event = field(default_factory=anyio.Event)
    value: Any = None
    error: Exception | None = None


class Batcher:
    """`async with Batcher(rounds): await batcher.submit(steps)`, from any task of one loop.

    rounds: a StepScheduler (model/scheduler.py). Every `run` feeds one row of each job that was
    added, and returns the jobs that are done, with their value or error. listen: begins a turn on
    the model, of the sentence's language; "" is the model's first.
    """

    def __init__(self, rounds: Any, name: str, listen: Callable[[str], Hearer]) -> None:
        self.listen = listen
        self._rounds = rounds
        self._name = name
        self._inbox: queue.SimpleQueue[tuple[Ticket, bool] | None] = queue.SimpleQueue()
        self._in_hand: set[Ticket] = set()
        self._is_closed = False
        self._post: Callable[[Callable[[], object]], object] = lambda call: None

    async def __aenter__(self) -> Batcher:
        self._post = poster()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        atexit.register(self._end, EXIT_S)
        return self

    async def __aexit__(self, *error: object) -> None:
        # Reject submissions from here on; the thread would never see them.
        self._is_closed = True
        with anyio.CancelScope(shield=True):  # bounded: a round ends
            await anyio.to_thread.run_sync(self._end)
        atexit.unregister(self._end)

    def _end(self, wait_s: float | None = None) -> None:
        """Wait for the thread's end: at exit, too, since a daemon thread that comes back from torch
        would abort the process."""
        self._inbox.put(None)
        self._thread.join(wait_s)

    async def submit(self, steps: Any, is_urgent: bool = True) -> Any:
        """The value that `steps` return. Raises their errors, and as `begin`.

        A caller that is cancelled waits until the engine has let go of its steps: then its slot may
        be closed.
        """
        return await self.finished(self.begin(steps, is_urgent))

    def begin(self, steps: Any, is_urgent: bool = True) -> Ticket:
        """Hand steps over. Raises RuntimeError when the batcher is closed."""
        if self._is_closed:
            raise RuntimeError(CLOSED)
        ticket = Ticket(steps, is_urgent)
        self._inbox.put((ticket, True))
        return ticket

    async def finished(self, ticket: Ticket) -> Any:
        """As `submit`, for steps that have begun."""
        try:
            await ticket.is_done.wait()
        except anyio.get_cancelled_exc_class():
            await self.drop(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        return ticket.value

    async def drop(self, ticket: Ticket) -> None:
        """Wait until the engine has let go of the steps, done or not."""
        self._inbox.put((ticket, False))
        with anyio.CancelScope(shield=True):  # bounded: one round
            await ticket.is_done.wait()

    def _run(self) -> None:
        """The thread: take submissions, run a round, hand out results."""
        while self._take():
            for done in self._rounds.run():
                self._finish(done)
        for ticket in list(self._in_hand):
            self._rounds.drop(ticket)
            ticket.error = RuntimeError(CLOSED)
            self._finish(ticket)

    def _take(self) -> bool:
        """Take all submissions; wait for one where none is in hand. False at the end."""
        while not (len(self._rounds) and self._inbox.empty()):
            entry = self._inbox.get()
            if entry is None:
                return False
            ticket, is_new = entry
            if is_new:
                self._in_hand.add(ticket)
                self._rounds.add(ticket)
            elif ticket in self._in_hand:
                self._rounds.drop(ticket)
                self._finish(ticket)
        return True

    def _finish(self, ticket: Ticket) -> None:
        self._in_hand.discard(ticket)
        with suppress(RuntimeError):  # the event loop is gone, and with it all that waited
            self._post(ticket.is_done.set)


@dataclass(eq=False)
class LocalTarget:
    """One turn on the model that verifies; RemoteTarget of net/link offers the same methods.

    is_up: whether it is worth asking for this turn now, where its cloud is up: after a missed
    deadline only once it has answered, since each request would cost a budget. traffic: bytes up
    and down, on the way to a target elsewhere. It holds a KV slot until it is closed; no call may
    be in hand then, and `stop` comes before.

    verifier_of: of a listener, by level weights. hears_late: all audio waits for the first request.
    pieces: while others wait there, MOST_UNHEARD windows wait, too; None: each turn is verified.
    """

    model: Batcher
    hearer: Hearer
    verifier_of: Callable[..., Any]
    hears_late: bool = False
    pieces: CapacityLimiter | None = None
    is_up: bool = True
    traffic: tuple[int, int] = (0, 0)
    _unheard: list[Heard] = field(default_factory=list)  # the edge holds their windows, too
    _hearing: Ticket | None = None
    _end: tuple[Closed, LevelWeights] | None = None
    _verifier: Any = None  # model/decoding.py's Decoder, once the turn's end is heard
    # a late verdict's request is not overtaken
    _asking: anyio.Lock = field(default_factory=partial(anyio.Lock, fast_acquire=True))

    async def hear(self, heard: Heard) -> None:
        """Begin to prefill windows, or keep them for later; wait where too many are kept. An error
        comes with the next wait."""
        self._unheard.append(replace(heard, samples=None, provisional=None, measures=None))
        is_busy = self.pieces is not None and self.pieces.statistics().tasks_waiting > 0
        is_behind = sum(len(each.windows) for each in self._unheard) > MOST_UNHEARD
        if not self.hears_late and (is_behind or not is_busy):
            self._go_on()
            if is_behind:
                await self.prefilled()

    @property
    def is_hearing(self) -> bool:
        """Whether it hears in the background."""
        return self._hearing is not None and not self._hearing.is_done.is_set()

    def _go_on(self) -> None:
        """Hear all that is unheard; steps that do so already take in what comes meanwhile."""

        def steps(first: Any) -> Any:
            more = first
            while more is not None:
                yield from more
                more = self._next()

        has_failed = self._hearing is not None and self._hearing.error is not None
        if not (self.is_hearing or has_failed) and (first := self._next()) is not None:
            self._hearing = self.model.begin(steps(first), is_urgent=self._end is not None)

    def _next(self) -> Any:
        """Steps for the next items that need some."""
        while self._unheard:
            if (steps := self.hearer.hear(self._unheard.pop(0))) is not None:
                return steps
        return None

    async def finish(self, closed: Closed, weights: LevelWeights) -> None:
        """The turn is over; requests may come. A target elsewhere hears it at once; this one is
        waited for, where each turn is verified: the time is none of a request's budget. Raises the
        error with which hearing failed."""
        self._end = closed, weights
        if self._hearing is not None:
            self._hearing.is_urgent = True
            if self._hearing.error is not None:
                raise self._hearing.error
        if self.pieces is None:
            self._go_on()
            await self.prefilled()

    async def prefilled(self) -> None:
        """Wait until all that has come is prefilled, but for what waits for the first request;
        briefly where the target is away."""
        while self._hearing is not None:
            await self.model.finished(self._hearing)
            self._go_on()
            if not self.is_hearing:
                break

    async def verify(self, request: VerifyRequest) -> Verdict | Refusal:
        """Verify a block. Raises the model's errors; elsewhere TargetLost where waiting is in
        vain."""
        async with self._asking:
            await self.hear_end()
            reply: Verdict | Refusal = await self.model.submit(self._verifier.verify(request))
            self.is_up = True
            return reply

    async def hear_end(self, prefills: bool = False) -> None:
        """A second call does nothing. prefills: the last window now, not with the first request."""
        if self._verifier is not None:
            return
        assert self._end is not None
        closed, weights = self._end
        self._go_on()
        await self.prefilled()
        await self.model.submit(self.hearer.finish(closed.rest, closed.maximum, prefills))
        self._verifier = self.verifier_of(self.hearer, weights=weights)

    async def stop(self) -> None:
        """Hear no more: it may be closed then."""
        if self._hearing is not None and self.is_hearing:
            await self.model.drop(self._hearing)

    def failed(self) -> None:
        """A verdict did not come in time."""
        self.is_up = False

    def close(self) -> None:
        self.hearer.close()


@dataclass(eq=False)
class LocalCloud:
    """The cloud in this process; RemoteCloud of net/link offers the same.

    is_up: worth asking now. name, trouble (why it may be away): for error messages. verifier_of: of
    a listener, by rules and level weights. hears_late, pieces: as its targets.
    """

    model: Batcher
    verifier_of: Callable[..., Any]
    hears_late: bool = False
    pieces: CapacityLimiter | None = None
    is_up = True
    name = "the cloud model"
    trouble = "it is slow"

    def listen(self, rules: Rules) -> LocalTarget:
        verifier_of = partial(self.verifier_of, rules=rules)
        hearer = self.model.listen(rules.language)
        return LocalTarget(self.model, hearer, verifier_of, self.hears_late, self.pieces)

"""The ports of the stages: messages between them, and the models of a stream (Parts)."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from collections.abc import Sequence as Ids
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import anyio.to_thread
from anyio import BrokenResourceError, CapacityLimiter, Semaphore, WouldBlock
from anyio.streams.memory import MemoryObjectSendStream

from streamer.core.attributes import (
    ATTRIBUTES,
    LevelNames,
    Phrases,
    SaidToken,
    fused_confidence,
    parse,
)
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn_items import Closed, Heard
from streamer.core.decoding.plan import Counts, Pace, Plan
from streamer.core.description import QUIET, Description, turn_warning
from streamer.core.measures.levels import level_chances, level_weights, opinion_of
from streamer.core.rules.settings import FLAT, LevelWeights, Rules, Sampling
from streamer.core.text.vocabulary import Vocabulary
from streamer.stages.events import Event, SessionOptions

NUM_PIECES = 2  # threads that hear pieces at once
MAX_EVENTS = 256
MAX_WAIT_S = 10.0

# Parts makes these, from the room of models.
Steps = Any  # work for a model's thread; opaque here
Hearing = Any  # model/audio/turns.py's TurnCutter: on a worker thread, one call at a time
Hearer = Any  # model/listener.py's Listener: one turn on one model; holds a KV slot until closed
Drafter = Any  # model/decoding.py: one turn's draft
Judge = Any  # assembly/link.py's ModelJudge: one turn of an edge elsewhere, one call at a time
Cloud = Any  # batcher.py's LocalCloud, or net/link/client.py's RemoteCloud
Target = Any  # one turn there: batcher.py's LocalTarget, or net/link/target.py's RemoteTarget


class TargetLost(RuntimeError):
    """The target will not answer this turn any more: one line with cause and way out."""


@dataclass(frozen=True, slots=True)
class Side:
    """One model: its thread, and how a turn begins on it. listen: takes the sentence's language;
    "" is the model's first."""

    batcher: Any  # streamer/stages/batcher.py's Batcher
    listen: Callable[[str], Hearer]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The models, for one stream: assembly/models.py makes it.

    edge: None in mode cloud. cloud: None where turns are not verified. suffix: ids after the audio.
    cut, drafts, updates: make a TurnCutter, the drafter of a turn that is over, and steps that
    return the ids of a sentence on the audio so far. phrases, level_names: to read a sentence back.
    is_measured: measures decide on words, too. max_turn_s: a turn that reaches it goes on as
    another turn. slots: a turn holds one from its first sample to its Description.

    pieces, hearing, measuring: the worker threads that hear, of all streams of a describer. Pieces
    wait for one of `pieces` in order. The end of a turn does not, since a client waits for the
    first word there.
    """

    plan: Plan
    sampling: Sampling
    vocabulary: Vocabulary
    suffix: Ids[int]
    edge: Side | None
    cloud: Cloud | None
    cut: Callable[[SessionOptions, bool], Hearing]
    drafts: Callable[[Hearer, Rules, Sampling, LevelWeights], Drafter]
    updates: Callable[[Hearer, Any, Rules, Sampling, LevelWeights], Steps]
    phrases: Phrases
    level_names: LevelNames
    is_measured: bool
    max_turn_s: float
    slots: Semaphore
    pieces: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(NUM_PIECES))
    hearing: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(NUM_PIECES + 2))
    measuring: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(2))
    pace: Pace = field(default_factory=Pace)

    @property
    def weighs(self) -> bool:
        """Whether measures decide on the words with the models."""
        return self.is_measured and self.plan.rules.form != ""

    def target(self) -> Target | None:
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
        name, trouble = (self.cloud.name, self.cloud.trouble) if self.cloud else ("", "")
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
            warning=turn_warning(counts, self.plan.mode, speech_s, name, trouble, faults),
            turn=closed.turn,
            measures=None if closed.curves is None else measures,
            confidence=confidence,
            language=self.plan.rules.language,
            level_names=self.level_names,
            curves=closed.curves() if closed.curves is not None else None,
            **times,
        )


@dataclass(eq=False, slots=True)
class Command:
    """A session's request to its stages, which take them in order.

    kind: "hear": take `pcm`, fed at `fed_at` (seconds of the stream's clock), at most 100 ms of a
    live stream, 2 s of a recording. "commit": end the turn after `pcm`, which may be empty; once it
    is done, `turn` is the turn's number, or None where there was none to end. "settle": the turn
    ends `num_left` samples later; done when all before them is prefilled, and all parts before this
    one are answered. "clear": forget the turn in hand. "answer": answer the last committed turn.
    """

    kind: Literal["hear", "commit", "settle", "clear", "answer"]
    pcm: bytes = b""
    fed_at: float = 0.0
    num_left: int = 0
    turn: int | None = None
    is_done: anyio.Event = field(default_factory=anyio.Event)


class SlowReader(RuntimeError):
    """The events of a stream were not read for 10 s; that stream ends, and no other."""


Events = MemoryObjectSendStream[Event]


async def send(events: Events, event: Event) -> None:
    """Hand `event` to the reader, if there still is one. Raises SlowReader."""
    with suppress(BrokenResourceError):
        try:
            # There nearly always is room. A deadline and a turn of the event loop for each token
            # would take a third of the edge's time.
            events.send_nowait(event)
        except WouldBlock:
            try:
                with anyio.fail_after(MAX_WAIT_S):
                    await events.send(event)
            except TimeoutError:
                told = f"no event was read for {MAX_WAIT_S:g} s; read them while feeding"
                raise SlowReader(told) from None


def offer(events: Events, event: Event) -> None:
    """Hand on an event that another of its kind replaces soon: not to a slow reader."""
    if events.statistics().current_buffer_used < MAX_EVENTS // 2:
        with suppress(WouldBlock, BrokenResourceError):
            events.send_nowait(event)


async def quietly(job: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
    """A task's job; where it is cancelled, the task ends as if it had returned. anyio keeps the
    CancelledError of a task in a cycle, and with it what its frames hold: all of a session."""
    with suppress(anyio.get_cancelled_exc_class()):
        await job(*arguments)


def cause_of(error: BaseException) -> BaseException:
    """The innermost error, where a task group has wrapped it. Stages beside the one that failed may
    have found their queues closed."""
    while isinstance(error, BaseExceptionGroup):
        causes = [e for e in error.exceptions if not isinstance(e, BrokenResourceError)]
        error = (causes or error.exceptions)[0]
    return error


def reason_of(error: BaseException) -> str:
    """One line: the innermost cause."""
    cause = cause_of(error)
    return f"{type(cause).__name__}: {cause}"

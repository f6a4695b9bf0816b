"""What the stages need of the models, as Protocols: assembly/ joins them, no stage sees torch.

Steps are opaque here: a hearer, drafter or target makes them, its side's batcher runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from anyio import CapacityLimiter, Semaphore

from streamer.core.audio.turn_items import Closed, Heard, Item
from streamer.core.coach.baseline import Baseline
from streamer.core.coach.coaching import CoachEvent
from streamer.core.confidence import Piece
from streamer.core.decoding.counts import Counts
from streamer.core.decoding.speculate import Speculator
from streamer.core.description import Description
from streamer.core.measures.live_measures import Measures
from streamer.core.rules.clauses import Ranges
from streamer.core.text.emitter import Emitter
from streamer.stages.events import SessionOptions
from streamer.stages.plumbing.batcher import Batcher
from streamer.stages.plumbing.target import Cloud, Target

Steps = Any
NUM_PIECES = 2  # threads that hear pieces at once
NUM_ENDS = 2  # and beside them, ends of turns
NUM_MEASURING = 2  # and beside both, measures and coaches


@dataclass(frozen=True)
class HearingThreads:
    """The worker threads that hear, of all streams of a describer.

    pieces: pieces wait for one of these in order. The end of a turn does not, since a client waits
    for the first word there.
    """

    pieces: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(NUM_PIECES))
    limiter: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(NUM_PIECES + NUM_ENDS))
    measuring: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(NUM_MEASURING))


class Measurer(Protocol):
    """model/audio/measurer.py: one turn's measures."""

    @property
    def is_over(self) -> bool:
        """The turn's last sample is there."""
        ...

    def is_due(self, is_told: bool) -> bool:
        """Whether there is anything to do."""
        ...

    def work(self, is_told: bool) -> Measures | None:
        """Hear what waits, on a worker thread. is_told: return news, five times a second."""
        ...


class Ear(Protocol):
    """model/audio/coach_ear.py: what one session's coach hears."""

    baseline: Baseline | None

    def work(self) -> list[CoachEvent]:
        """Hear what waits, on a worker thread; what the coach says of it."""
        ...


class Hearing(Protocol):
    """model/audio/turn_cutter.py: bytes to items. On a worker thread, one call at a time."""

    @property
    def num_turns(self) -> int: ...
    @property
    def is_ending(self) -> bool: ...
    @property
    def measurer(self) -> Measurer | None:
        """Of the turn in hand; None where there is none, or measures are not asked for."""
        ...

    @property
    def coach(self) -> Ear | None:
        """Of the session, where one was asked for."""
        ...

    def push(self, pcm: bytes) -> list[Item]: ...
    def commit(self) -> list[Item]: ...
    def settle(self, num_left: int) -> list[Item]: ...
    def clear(self) -> list[Item]: ...


class Hearer(Protocol):
    """One turn on one model (model/listener.py). Holds a KV slot until it is closed."""

    def hear(self, heard: Heard) -> Steps | None: ...
    def finish(self, rest: Sequence[Any], maximum: float, prefills: bool = False) -> Steps: ...
    def close(self) -> None: ...


class Drafter(Protocol):
    """One turn's draft (model/drafters.py)."""

    def draft(self, n: int) -> Steps:
        """Steps that return up to `n` ids, and their signals."""
        ...


@dataclass(frozen=True, slots=True)
class Side:
    """One model: its thread, and how a turn begins on it."""

    batcher: Batcher
    listen: Callable[[], Hearer]


@dataclass(frozen=True, slots=True)
class Written:
    """One turn's answer, with times in ms since its last sample was fed."""

    closed: Closed
    text: str
    ids: tuple[int, ...]
    stop_reason: str
    mode: str
    counts: Counts
    ttft_ms: float | None
    prefill_ms: float | None
    total_ms: float
    pieces: tuple[Piece, ...] = ()  # one per id


class Parts(Protocol):
    """What one stream needs of the models. No `edge` in mode cloud; `cloud` where it is used."""

    @property
    def edge(self) -> Side | None: ...
    @property
    def cloud(self) -> Cloud | None: ...
    @property
    def mode(self) -> str: ...
    @property
    def max_turn_s(self) -> float:
        """A turn that reaches it goes on as another one."""
        ...

    @property
    def threads(self) -> HearingThreads:
        """The worker threads that hear, of all streams together."""
        ...

    @property
    def slots(self) -> Semaphore:
        """An anyio.Semaphore: a turn holds one from its first sample to its Description."""
        ...

    def hearing(self, options: SessionOptions) -> Hearing: ...
    def target(self) -> Target | None:
        """A turn begins where it is verified; None where it never is."""
        ...

    def ranges(self, closed: Closed) -> Ranges:
        """Of the levels that the turn's sentence may say. Blocks until its measures are known."""
        ...

    def drafter(self, edge: Hearer, ranges: Ranges) -> Drafter:
        """For a turn that is over. ranges: of the levels that its sentence may say."""
        ...

    def speculator(self, edge: Hearer | None) -> Speculator: ...
    def update(self, edge: Hearer, window: Any) -> Steps:
        """Steps that return the ids of a sentence on what was heard so far."""
        ...

    def text_of(self, ids: Sequence[int]) -> str: ...
    def emitter(self) -> Emitter: ...
    def describe(self, written: Written) -> Description: ...

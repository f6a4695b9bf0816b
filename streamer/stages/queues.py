"""Messages between the stages of one stream, in flow order, and its events' way out."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import anyio
from anyio import BrokenResourceError, WouldBlock
from anyio.streams.memory import MemoryObjectSendStream

from streamer.core.audio.turn_items import Closed
from streamer.core.rules.level_weights import LevelWeights
from streamer.stages.events import Event
from streamer.stages.ports import Hearer, Target

MAX_EVENTS = 256
MAX_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class AudioPiece:
    """PCM as it is fed to the hearing at once, and when it was fed (seconds of the stream's clock).

    At most 100 ms of a live stream, 2 s of a recording.
    """

    pcm: bytes
    fed_at: float


@dataclass(slots=True)
class Commit:
    """Ends the turn after `rest`; `turn` is its number once `is_done`, None for none."""

    rest: AudioPiece | None = None
    is_done: anyio.Event = field(default_factory=anyio.Event)
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Clear:
    """Forget the turn in hand; send Cleared."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the last committed turn."""


@dataclass(slots=True)
class Mark:
    """The turn ends `num_left` samples later. `is_done` when all before them is prefilled, and all
    parts before this one are answered."""

    num_left: int
    is_done: anyio.Event = field(default_factory=anyio.Event)


Command = AudioPiece | Commit | Clear | Answer | Mark


@dataclass(eq=False, slots=True)
class OpenTurn:
    """One turn's hearers, with KV slots until it is closed. failed: why it cannot go on."""

    number: int
    edge: Hearer | None = None
    cloud: Target | None = None
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """A turn whose audio is over and heard by the edge; its last sample was fed at `fed_at`."""

    turn: OpenTurn
    closed: Closed
    fed_at: float
    weights: LevelWeights


class SlowReader(RuntimeError):
    """The events of a stream were not read for 10 s; that stream ends, and no other."""


class Outlet:
    """The stages' end of the events: 256 of them, then 10 s for a reader that takes none."""

    def __init__(self, stream: MemoryObjectSendStream[Event]) -> None:
        self._stream = stream

    async def send(self, event: Event) -> None:
        """Hand `event` to the reader, if there still is one. Raises SlowReader."""
        with suppress(BrokenResourceError):
            try:
                # nearly always there is room, and no need of a clock
                self._stream.send_nowait(event)
            except WouldBlock:
                await self._wait(event)

    def offer(self, event: Event) -> None:
        """Hand on an event that another of its kind replaces soon: not to a slow reader."""
        if self._stream.statistics().current_buffer_used < MAX_EVENTS // 2:
            with suppress(WouldBlock, BrokenResourceError):
                self._stream.send_nowait(event)

    async def _wait(self, event: Event) -> None:
        try:
            with anyio.fail_after(MAX_WAIT_S):
                await self._stream.send(event)
        except TimeoutError:
            raise SlowReader(
                f"no event was read for {MAX_WAIT_S:g} s; read them while feeding"
            ) from None


def cause_of(error: BaseException) -> BaseException:
    """The innermost error, where a task group has wrapped it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def reason_of(error: BaseException) -> str:
    """One line: the innermost cause."""
    cause = cause_of(error)
    return f"{type(cause).__name__}: {cause}"

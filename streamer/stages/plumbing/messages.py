"""What crosses the queues between the stages of one stream: frozen dataclasses, in flow order."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from streamer.core.audio.turn_items import Closed
from streamer.core.decoding.counts import Counts
from streamer.core.decoding.verdict import Refusal, Verdict, VerifyRequest
from streamer.core.rules.clauses import Ranges
from streamer.stages.plumbing.ports import Hearer
from streamer.stages.plumbing.target import Target


@dataclass(frozen=True, slots=True)
class Piece:
    """At most 100 ms of PCM16, and when it was fed (seconds of the stream's clock)."""

    pcm: bytes
    fed_at: float


@dataclass(slots=True)
class Commit:
    """Ends the turn behind `rest`; `turn` is its number once `is_done`, None for none."""

    rest: Piece | None = None
    is_done: anyio.Event = field(default_factory=anyio.Event)
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Clear:
    """Forget the turn in hand; say Cleared."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the last committed turn."""


@dataclass(slots=True)
class Mark:
    """The turn ends `num_left` samples later. `is_done` when all before them is prefilled, and all
    parts before this one are answered."""

    num_left: int
    is_done: anyio.Event = field(default_factory=anyio.Event)


Command = Piece | Commit | Clear | Answer | Mark


@dataclass(eq=False, slots=True)
class Turn:
    """One turn's hearers, with KV slots until it is closed. failed: why it cannot go on."""

    number: int
    edge: Hearer | None = None
    cloud: Target | None = None
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """A turn whose audio is over and heard by the edge; its last sample was fed at `fed_at`.

    ranges: of the levels that its sentence may say.
    """

    turn: Turn
    closed: Closed
    fed_at: float
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Prepare:
    """Let the target hear the end of the turn, before it is asked anything."""

    ready: Ready


@dataclass(frozen=True, slots=True)
class Ask:
    """One block for the target."""

    turn: int
    target: Target
    request: VerifyRequest


@dataclass(frozen=True, slots=True)
class Settle:
    """Reply when all before it is done: then the turn's slot on the target may be closed."""

    turn: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What the target said to an Ask of `turn`, or how it failed; neither: a Settle's."""

    turn: int
    verdict: Verdict | Refusal | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """Ids that are committed now."""

    ready: Ready
    ids: tuple[int, ...]
    verified: bool
    log_probs: tuple[float, ...] = ()  # as Emit's


@dataclass(frozen=True, slots=True)
class Over:
    """An answer is over. prefilled_at: when the first id was there, in the stream's clock."""

    ready: Ready
    stop_reason: str
    mode: str
    counts: Counts
    prefilled_at: float | None
    done_at: float


@dataclass(frozen=True, slots=True)
class Failed:
    """A turn ends without a Description; see events.py's TurnFailed."""

    turn: int
    message: str
    is_target_lost: bool = False


def cause_of(error: BaseException) -> BaseException:
    """The innermost one, where a task group has wrapped it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def reason_of(error: BaseException) -> str:
    """One line: the innermost cause."""
    cause = cause_of(error)
    return f"{type(cause).__name__}: {cause}"

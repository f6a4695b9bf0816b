"""Events of a live session, how they are sent, and the session's options.

Turns of a session are numbered from 0. Times `at_ms` of speech count from the session's first
sample; those of text from the arrival of the turn's last sample.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, ClassVar, cast, get_args

import anyio
from anyio import BrokenResourceError, WouldBlock
from anyio.streams.memory import MemoryObjectSendStream

from streamer.core.audio.pcm import MAX_RATE_HZ, MIN_RATE_HZ, SAMPLE_RATE_HZ, Encoding
from streamer.core.description import Description, TextDelta
from streamer.core.measures.speech_measures import Measures as Measures
from streamer.core.measures.speech_measures import PitchReference, Voice


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """Voice activity began a turn; at_ms includes the padding before the first speech."""

    turn: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """Voice activity ended a turn; at_ms includes the silence that ended it."""

    turn: int
    at_ms: int
    last_speech_ms: int


@dataclass(frozen=True, slots=True)
class TurnCommitted:
    """The turn's audio is closed: by voice activity, `commit`, the end, or max_turn_s."""

    turn: int
    audio_s: float


@dataclass(frozen=True, slots=True)
class Cleared:
    """Audio that was not committed is forgotten, as `clear` asked. turn: the next turn's number."""

    turn: int


@dataclass(frozen=True, slots=True)
class LiveUpdate:
    """A sentence on the first part of a turn; no part of the turn's own sentence."""

    turn: int
    text: str
    ids: tuple[int, ...]
    heard_s: float


@dataclass(frozen=True, slots=True)
class TurnFailed:
    """A turn ended without its Description; committed text stays.

    message: one line, cause and way out. is_target_lost: a verdict that was needed did not come;
    else a model failed.
    """

    turn: int
    message: str
    is_target_lost: bool = False


class CoachEvent:
    """The base of the events of a session's coach (streamer/extras/coach), all dataclasses."""

    __slots__ = ()
    wire_type: ClassVar[str]
    may_be_lost: ClassVar[bool] = False  # where the reader is slow: a later one replaces it

    def as_json(self) -> dict[str, Any]:
        """Plain types, rounded. Times are seconds of the session's sound."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(cast(Any, self))}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return round(value, 3)
    return value.as_json() if hasattr(value, "as_json") else value


CoachOptions = Any  # streamer.Coach: the thresholds of a session's coach
Event = (
    SpeechStarted
    | SpeechStopped
    | TurnCommitted
    | Cleared
    | TextDelta
    | LiveUpdate
    | Measures
    | CoachEvent
    | TurnFailed
    | Description
)
MAX_EVENTS = 256
MAX_WAIT_S = 10.0


class NothingToCommit(ValueError):
    """`commit` without audio since the last turn."""


class TargetLost(RuntimeError):
    """The target will not answer this turn any more: one line with cause and way out."""


class SlowReader(RuntimeError):
    """The events of a stream were not read for 10 s; that stream ends, and no other."""


Events = MemoryObjectSendStream[Event]


async def send(events: Events, event: Event) -> None:
    """Hand `event` to the reader, if there still is one. Raises SlowReader."""
    may_be_lost = getattr(event, "may_be_lost", False)
    if may_be_lost and events.statistics().current_buffer_used >= MAX_EVENTS // 2:
        return
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


@dataclass(frozen=True, slots=True)
class TurnDetection:
    """Voice activity ends turns, by default as OpenAI's server_vad. Raises ValueError."""

    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_ms: int = 500

    def __post_init__(self) -> None:
        _check("threshold", self.threshold, 0, 1)
        _check("prefix_padding_ms", self.prefix_padding_ms, 0, 5_000)
        _check("silence_duration_ms", self.silence_ms, 1, 10_000)


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How one session listens. Raises ValueError for values out of their bounds.

    live_update_s: seconds of a turn between two LiveUpdates, None for none.
    """

    sample_rate_hz: int = SAMPLE_RATE_HZ
    turn_detection: TurnDetection | None = None
    live_update_s: float | None = None
    # a committed turn is answered at once; False: only after `answer()`
    answers_itself: bool = True
    # fed with float32 samples, full scale 1.0, each call as one piece, as fast as they are taken
    is_recording: bool = False
    # each Description has measures; live turns also give Measures events
    measures: bool = False
    # the attributes that sentences name, as Rules.form has them; "": the describer's
    said: str = ""
    # of the sentences; "": the describer's
    language: str = ""
    # pcm16: little-endian; pcmu, pcma: a byte per sample, as telephones send it
    encoding: Encoding = "pcm16"
    # gives CoachEvents, of the whole session
    coach: CoachOptions | None = None
    # the speaker's usual pitch in Hz, or "auto": each Description has `voice_pitch`
    pitch_reference: PitchReference = None

    def __post_init__(self) -> None:
        Voice(self.pitch_reference)
        if self.pitch_reference is not None and not self.measures:
            raise ValueError("pitch_reference needs measures; set measures to true as well")
        if not isinstance(self.sample_rate_hz, int):
            raise ValueError(f"sample_rate_hz is {self.sample_rate_hz!r}; give whole Hz")
        _check("sample_rate_hz", self.sample_rate_hz, MIN_RATE_HZ, MAX_RATE_HZ)
        if self.encoding not in get_args(Encoding):
            known = ", ".join(get_args(Encoding))
            raise ValueError(f"encoding is {self.encoding!r}; it may be {known}")
        if self.live_update_s is not None:
            _check("live_update_s", self.live_update_s, 0.1, 3_600)

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample as it is fed."""
        if self.is_recording:
            return 4
        return 2 if self.encoding == "pcm16" else 1


def _check(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}; it may be {least} to {most}")

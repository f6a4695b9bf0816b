"""Events of a live session, and its options.

Turns of a session are numbered from 0. Times `at_ms` of speech count from the session's first
sample; those of text from the arrival of the turn's last sample.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, cast, get_args

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


class NothingToCommit(ValueError):
    """`commit` without audio since the last turn."""


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

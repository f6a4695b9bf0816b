"""Decodes the messages of an OpenAI Realtime client, and applies its session updates.

Strict where a value matters. Fields that mean nothing here (voices, tools, instructions) are named
in the answer to the update. Both generations of the protocol are taken: the beta's fields stand
flat in the session. msgspec refuses bad base64, NaN, numbers out of range and absurd nesting by
itself; lone surrogates cannot be UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from streamer.core.attributes import chosen
from streamer.core.audio.pcm import G711_RATE_HZ, Encoding
from streamer.extras import load
from streamer.stages.events import CoachOptions, SessionOptions, TurnDetection

MAX_EVENT_BYTES = 1 << 20  # without audio; decoded values take many times the memory
Id = Annotated[str, msgspec.Meta(max_length=512)]


class BadEvent(ValueError):
    """A message that is no event of the protocol; the session goes on. event_id: what it calls
    itself, as far as it can be read."""

    def __init__(self, told: str, event_id: str | None = None) -> None:
        super().__init__(told)
        self.event_id = event_id


class Format(Struct):
    """audio/pcm: 16 bit little-endian mono. The rate is OpenAI's 24000 unless the client says
    another. audio/pcmu and audio/pcma: G.711 at 8000, which older clients name by its law."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma", "g711_ulaw", "g711_alaw"] = "audio/pcm"
    rate: int | UnsetType = UNSET


class Vad(Struct):
    """Turn detection; semantic_vad is taken as server_vad: there is voice activity alone."""

    type: Literal["server_vad", "semantic_vad"] = "server_vad"
    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 500
    create_response: bool = True
    interrupt_response: bool = True


class AudioInput(Struct):
    """format: null is the default."""

    format: Format | UnsetType | None = UNSET
    turn_detection: Vad | UnsetType | None = UNSET


class AudioConfig(Struct):
    input: AudioInput | UnsetType = UNSET


class Extensions(Struct, forbid_unknown_fields=True):
    """Ours, opt-in: `streamer.*` events; raw PCM16 in binary messages; what was taken, twice a
    second where it is news; measures of the turn in hand, five times a second; a live update every
    so many seconds, null for none, the server's default where it is left out; the attributes that
    sentences name; a coach. A name that is none of these is refused: its sender would wait in vain.
    No other struct here forbids unknown fields."""

    events: bool = False
    binary: bool = False
    acks: bool = False
    live_update_s: float | UnsetType | None = UNSET
    measures: bool = False
    # those that sentences name, among the server's
    attributes: Annotated[list[Id], msgspec.Meta(max_length=16)] | UnsetType | None = UNSET
    profile: Literal["full", "acoustic"] | UnsetType = UNSET
    # true, or an object of thresholds and perhaps a baseline: extras/coach/options.py checks it
    coach: bool | Annotated[dict[Id, Any], msgspec.Meta(max_length=32)] = False
    # the server's own: a session that is sent back as it came is not refused
    rate: int | UnsetType = UNSET
    ignored: list[str] | UnsetType = UNSET


OPTIONS = [name for name in Extensions.__struct_fields__ if name not in ("rate", "ignored")]


class SessionConfig(Struct):
    """The fields that a session.update may change; fields that are left out stay as they are."""

    type: Literal["realtime", "transcription"] | UnsetType = UNSET
    audio: AudioConfig | UnsetType = UNSET
    streamer: Extensions | UnsetType = UNSET
    # the beta's, in place of audio.input.format and audio.input.turn_detection
    input_audio_format: Literal["pcm16", "g711_ulaw", "g711_alaw"] | UnsetType | None = UNSET
    turn_detection: Vad | UnsetType | None = UNSET


class _Event(Struct):
    event_id: Id | None = None


class SessionUpdate(_Event, tag="session.update"):
    """ignored: names of the fields that change nothing; `decode` fills it."""

    session: SessionConfig = msgspec.field(default_factory=SessionConfig)
    ignored: tuple[str, ...] = ()


class BufferAppend(_Event, tag="input_audio_buffer.append", kw_only=True):
    audio: bytes


class BufferCommit(_Event, tag="input_audio_buffer.commit"):
    pass


class BufferClear(_Event, tag="input_audio_buffer.clear"):
    pass


MetadataText = Annotated[str, msgspec.Meta(max_length=512)]
Metadata = Annotated[dict[Id, MetadataText], msgspec.Meta(max_length=16)] | None


class ResponseConfig(Struct):
    """metadata: the response has it too, as clients know theirs by it."""

    metadata: Metadata = None


class ResponseCreate(_Event, tag="response.create"):
    """ignored: as that of SessionUpdate."""

    response: ResponseConfig | None = None
    ignored: tuple[str, ...] = ()

    @property
    def metadata(self) -> Metadata:
        return self.response.metadata if self.response else None


class ResponseCancel(_Event, tag="response.cancel"):
    response_id: Id | None = None


TEXTS = ("input_text", "output_text", "text")


class ItemPart(Struct):
    type: Id = ""
    text: Annotated[str, msgspec.Meta(max_length=64 << 10)] | None = None


class Item(Struct):
    id: Id | None = None
    type: Id = ""
    role: Literal["user", "assistant", "system"] = "user"
    content: Annotated[list[ItemPart], msgspec.Meta(max_length=16)] = []


class ItemCreate(_Event, tag="conversation.item.create"):
    item: Item = msgspec.field(default_factory=Item)


class ItemDelete(_Event, tag="conversation.item.delete"):
    item_id: Id = ""


class ItemRetrieve(_Event, tag="conversation.item.retrieve"):
    item_id: Id = ""


class ItemTruncate(_Event, tag="conversation.item.truncate"):
    item_id: Id = ""


ClientEvent = (
    SessionUpdate
    | BufferAppend
    | BufferCommit
    | BufferClear
    | ResponseCreate
    | ResponseCancel
    | ItemCreate
    | ItemDelete
    | ItemRetrieve
    | ItemTruncate
)
_decoder = msgspec.json.Decoder(ClientEvent)
_append_decoder = msgspec.json.Decoder(BufferAppend)


class _Fields(Struct):
    session: dict[str, Any] = {}
    response: dict[str, Any] | None = None


_fields_decoder = msgspec.json.Decoder(_Fields)
_DETECTION = dict.fromkeys(Vad.__struct_fields__)
# Fields of a session that change something, or whose real value the answer tells.
SESSION: Mapping[str, Any] = {
    **dict.fromkeys(("type", "id", "object", "model", "output_modalities", "modalities")),
    "audio": {"input": {"format": {"type": None, "rate": None}, "turn_detection": _DETECTION}},
    "input_audio_format": None,
    "turn_detection": _DETECTION,
    "streamer": None,
}
RESPONSE = dict.fromkeys(("metadata", "output_modalities", "modalities"))
MOST_IGNORED = 32


def _ignored(fields: Mapping[str, Any], obeyed: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Names of `fields` that are not among `obeyed`; null asks for nothing."""
    for name, value in fields.items():
        if name not in obeyed and value is not None:
            yield f"{at}{name[:64]}"
        elif isinstance(value, dict) and obeyed.get(name):
            yield from _ignored(value, obeyed[name], f"{at}{name}.")


def decode(message: str | bytes) -> ClientEvent:
    """Raises BadEvent."""
    is_long = len(message) > MAX_EVENT_BYTES
    try:
        event = _append_decoder.decode(message) if is_long else _decoder.decode(message)
        if isinstance(event, SessionUpdate | ResponseCreate):
            found = _fields_decoder.decode(message)
            ignored = [*_ignored(found.session, SESSION), *_ignored(found.response or {}, RESPONSE)]
            event.ignored = tuple(ignored[:MOST_IGNORED])
        return event
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        why = str(error)
        if "unknown field" in why:
            why += f"; known are {', '.join(OPTIONS)}"
        if is_long and "$.type" in why:
            why = f"only an append of audio may be longer than {MAX_EVENT_BYTES >> 20} MiB"
        raise BadEvent(f"no event of the protocol: {why}", _id_of(message)) from None


class _Named(msgspec.Struct):
    event_id: Id | None = None


_named = msgspec.json.Decoder(_Named)


def _id_of(message: str | bytes) -> str | None:
    try:
        return _named.decode(message).event_id
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


# rates of microphones
MIN_RATE_HZ = 8_000
MAX_RATE_HZ = 48_000
MIN_UPDATE_S = 0.5
PCM_RATE_HZ = 24_000  # where the client says no other
ENCODINGS: dict[str, Encoding] = {
    "audio/pcm": "pcm16",
    "pcm16": "pcm16",
    "audio/pcmu": "pcmu",
    "g711_ulaw": "pcmu",
    "audio/pcma": "pcma",
    "g711_alaw": "pcma",
}


@dataclass(frozen=True)
class SessionSettings:
    """Applies updates to the settings of one session, whose kind never changes. default_update_s:
    for a client that asks for events and does not say how often. may_say: the attributes that it
    may ask for. coach: for a client that asks for one, in place of the defaults."""

    _kind: str
    _default_update_s: float | None
    _may_say: tuple[str, ...] = ()
    _coach: CoachOptions | None = None

    def of(
        self, config: SessionConfig, options: SessionOptions, extensions: Extensions
    ) -> tuple[SessionOptions, Extensions]:
        """The settings after an update. Raises ValueError with one line."""
        if config.type is not UNSET and config.type != self._kind:
            raise ValueError(f"this is a {self._kind} session; connect anew for another kind")
        if config.streamer is not UNSET:
            extensions = config.streamer
            seconds = extensions.live_update_s
            if seconds is UNSET:
                seconds = self._default_update_s if extensions.events else None
            if seconds is not None and not seconds >= MIN_UPDATE_S:
                raise ValueError(f"live_update_s is {seconds}; it may be {MIN_UPDATE_S} to 3600")
            options = replace(
                options,
                live_update_s=seconds,
                measures=extensions.measures,
                said=self._said(extensions),
                coach=self._coach_of(extensions),
            )
            # the coach's options are kept as they are in force, not as the client wrote them
            extensions = msgspec.structs.replace(
                extensions, live_update_s=seconds, coach=options.coach is not None
            )
        heard = config.audio.input if config.audio is not UNSET else UNSET
        if config.input_audio_format is not UNSET:
            options = _in_format(options, config.input_audio_format or "pcm16", UNSET)
        options = self._detecting(options, config.turn_detection)
        if heard is not UNSET:
            if heard.format is not UNSET:
                format = heard.format or Format()
                options = _in_format(options, format.type, format.rate)
            options = self._detecting(options, heard.turn_detection)
        return options, extensions

    def _detecting(self, options: SessionOptions, vad: Vad | UnsetType | None) -> SessionOptions:
        """With this turn detection, if it is said."""
        if vad is UNSET:
            return options
        found = None
        if vad is not None:
            found = TurnDetection(vad.threshold, vad.prefix_padding_ms, vad.silence_duration_ms)
        answers = self._kind == "transcription" or bool(vad and vad.create_response)
        return replace(options, turn_detection=found, answers_itself=answers)

    def _coach_of(self, extensions: Extensions) -> CoachOptions | None:
        """Raises ValueError."""
        asked = extensions.coach
        if isinstance(asked, bool):
            return (self._coach or load("coach")()) if asked else None
        found: CoachOptions = load("coach").of(asked, self._coach)
        return found

    def _said(self, extensions: Extensions) -> str:
        """As SessionOptions has it. Raises ValueError."""
        names = extensions.attributes or None
        if names is None and extensions.profile in (UNSET, "full"):
            return ""
        asked = None if names is None else ",".join(names)
        return chosen(asked, extensions.profile or "full", self._may_say)


def _in_format(options: SessionOptions, name: str, rate: int | UnsetType) -> SessionOptions:
    """The options for audio of this format, and this rate if it is given. Raises ValueError."""
    encoding = ENCODINGS[name]
    if encoding != "pcm16":
        if rate not in (UNSET, G711_RATE_HZ):
            raise ValueError(f"audio rate {rate} is none of {name}; it is {G711_RATE_HZ} Hz")
        return replace(options, sample_rate_hz=G711_RATE_HZ, encoding=encoding)
    found = PCM_RATE_HZ if rate is UNSET else rate
    if not MIN_RATE_HZ <= found <= MAX_RATE_HZ:
        raise ValueError(f"audio rate {found} is outside {MIN_RATE_HZ}..{MAX_RATE_HZ} Hz")
    return replace(options, sample_rate_hz=found, encoding=encoding)

"""Decodes the messages of an OpenAI Realtime client, and applies its session updates.

Values that matter are checked strictly. Fields without effect here (voices, tools, instructions)
are named in the answer. Both generations of the protocol are accepted: the beta's fields stand flat
in the session, and `to_beta` gives its clients the events that they know. msgspec refuses bad
base64, NaN, numbers out of range and absurd nesting by itself; lone surrogates are not valid UTF-8.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from streamer.core.attributes import Phrases, chosen
from streamer.core.audio.pcm import G711_RATE_HZ, Encoding
from streamer.core.measures.speech_measures import PitchReference
from streamer.extras import load
from streamer.stages.events import CoachOptions, SessionOptions, TurnDetection

MAX_EVENT_BYTES = 1 << 20  # without audio; decoded values take many times the memory
MAX_MESSAGE_CHARACTERS = 220  # of an error; what it quotes of the client has under 200
INVALID = "invalid_request_error"
Id = Annotated[str, msgspec.Meta(max_length=512)]


class Refused(ValueError):
    """A message without effect but an `error`; the session goes on. event_id: its own, if known."""

    def __init__(
        self, message: str, code: str, event_id: str | None = None, kind: str = INVALID
    ) -> None:
        super().__init__(message)
        self.code, self.event_id, self.kind = code, event_id, kind


ServerEvent = dict[str, Any]


def error(message: str, code: str, cause: str | None, kind: str = INVALID) -> ServerEvent:
    """Every error event is made here, so every one is cut. cause: the client event's id."""
    found = {"message": cut(message), "type": kind, "code": code, "event_id": cause, "param": None}
    return {"type": "error", "error": found}


def cut(message: str) -> str:
    """One printable line of at most MAX_MESSAGE_CHARACTERS, with its beginning and its end."""
    line = "".join(c if c.isprintable() else "?" for c in message)
    if len(line) <= MAX_MESSAGE_CHARACTERS:
        return line
    return f"{line[: MAX_MESSAGE_CHARACTERS - 85]} ... {line[-80:]}"  # where the way out stands


class Format(Struct):
    """audio/pcm: 16 bit little-endian mono, at 24000 Hz by default. audio/pcmu and audio/pcma:
    G.711 at 8000 Hz, which older clients name by its law."""

    type: Id = "audio/pcm"
    rate: int | UnsetType = UNSET


class Vad(Struct):
    """Turn detection by voice activity; semantic_vad is treated as server_vad."""

    type: Id = "server_vad"
    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 500
    create_response: bool = True
    interrupt_response: bool = False  # what a client asks here has no effect


class AudioInput(Struct):
    """format: null means the default."""

    format: Format | UnsetType | None = UNSET
    turn_detection: Vad | UnsetType | None = UNSET


class AudioConfig(Struct):
    input: AudioInput = msgspec.field(default_factory=AudioInput)


class Extensions(Struct, forbid_unknown_fields=True):
    """Our opt-in extensions. An unknown name is refused, since its sender would wait in vain; no
    other struct here forbids unknown fields."""

    events: bool = False  # streamer.delta and streamer.description
    binary: bool = False  # binary messages are raw audio
    acks: bool = False  # streamer.ack, at most twice a second
    # seconds between two live updates: null for none, by default the server's
    live_update_s: float | UnsetType | None = UNSET
    measures: bool = False  # of the current turn, five times a second
    # those that sentences name, among the server's
    attributes: Annotated[list[Id], msgspec.Meta(max_length=16)] | UnsetType | None = UNSET
    # of the sentences, one of the server's; its first where it is left out
    language: Id | UnsetType | None = UNSET
    # the speaker's usual pitch in Hz, or "auto"; it needs events and measures
    pitch_reference: float | Id | None = None
    # true, or an object of thresholds and perhaps a baseline: extras/coach/options.py checks it
    coach: bool | Annotated[dict[Id, Any], msgspec.Meta(max_length=32)] = False
    # set by the server
    rate: int | UnsetType = UNSET
    languages: list[str] | UnsetType = UNSET
    ignored: list[str] | UnsetType = UNSET


# set by the server, accepted so that a client may send a session back unchanged
TOLD = ("id", "object", "model", "rate", "languages", "ignored")
OPTIONS = [name for name in Extensions.__struct_fields__ if name not in TOLD]


class SessionConfig(Struct):
    """The fields that a session.update may change. Absent fields keep their values."""

    type: Id | UnsetType = UNSET
    audio: AudioConfig = msgspec.field(default_factory=AudioConfig)
    streamer: Extensions | UnsetType = UNSET
    # the beta's, in place of audio.input.format and audio.input.turn_detection
    input_audio_format: Id | UnsetType | None = UNSET
    turn_detection: Vad | UnsetType | None = UNSET


class _Event(Struct):
    """ignored: names of the fields without effect; `decode` fills it."""

    event_id: Id | None = None
    ignored: tuple[str, ...] = ()


class SessionUpdate(_Event, tag="session.update", kw_only=True):
    session: SessionConfig


class BufferAppend(_Event, tag="input_audio_buffer.append", kw_only=True):
    audio: bytes


class BufferCommit(_Event, tag="input_audio_buffer.commit"):
    pass


class BufferClear(_Event, tag="input_audio_buffer.clear"):
    pass


Metadata = Annotated[dict[Id, Id], msgspec.Meta(max_length=16)] | None


class ResponseConfig(Struct):
    """metadata: copied to the response, by which clients recognise theirs."""

    metadata: Metadata = None


class ResponseCreate(_Event, tag="response.create"):
    response: ResponseConfig | None = None

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
    """previous_item_id: null for the end of the conversation, "root" for its begin."""

    item: Item = msgspec.field(default_factory=Item)
    previous_item_id: Id | None = None


BufferEvent = BufferAppend | BufferCommit | BufferClear
ClientEvent = BufferEvent | SessionUpdate | ResponseCreate | ResponseCancel | ItemCreate
# events of the protocol without meaning here -> code of their error
UNSUPPORTED = {
    "conversation.item.delete": "unsupported",
    "conversation.item.retrieve": "item_retrieve_invalid_item_id",
    "conversation.item.truncate": "unsupported",
}


class _Head(Struct):
    type: Any = None
    event_id: Id | None = None


_decoder = msgspec.json.Decoder(ClientEvent)
_append_decoder = msgspec.json.Decoder(BufferAppend)
UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeError)


def _ignored(given: Mapping[str, Any], taken: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Names of `given` that decoding left out; null has no effect anyway."""
    for name, value in given.items():
        is_text_alone = name in ("output_modalities", "modalities") and value == ["text"]
        if name not in taken and name not in TOLD and value is not None and not is_text_alone:
            yield f"{at}{name[:64]}"
        elif isinstance(value, dict) and isinstance(taken.get(name), dict):
            inner = "" if name in ("session", "response") else f"{at}{name}."
            yield from _ignored(value, taken[name], inner)


def decode(message: str | bytes) -> ClientEvent:
    """Raises Refused."""
    is_long = len(message) > MAX_EVENT_BYTES
    try:
        event = (_append_decoder if is_long else _decoder).decode(message)
        if isinstance(event, SessionUpdate | ResponseCreate):
            ignored = _ignored(msgspec.json.decode(message), msgspec.to_builtins(event))
            event.ignored = tuple(islice(ignored, 32))
        return event
    except UNREADABLE as error:
        why = str(error)
    try:
        head = msgspec.json.decode(message, type=_Head)
    except UNREADABLE:
        head = _Head()
    if isinstance(head.type, str) and (code := UNSUPPORTED.get(head.type)):
        raise Refused(f"{head.type} is not supported; items are not kept", code, head.event_id)
    if "unknown field" in why:
        why += f"; known are {', '.join(OPTIONS)}"
    if is_long and "$.type" in why:
        why = f"only an append of audio may be longer than {MAX_EVENT_BYTES >> 20} MiB"
    raise Refused(f"no event of the protocol: {why}", "invalid_event", head.event_id)


MIN_UPDATE_S = 0.5
PCM_RATE_HZ = 24_000  # by default
# encoding -> its name, and that of the beta
FORMATS: dict[Encoding, tuple[str, str]] = {
    "pcm16": ("audio/pcm", "pcm16"),
    "pcmu": ("audio/pcmu", "g711_ulaw"),
    "pcma": ("audio/pcma", "g711_alaw"),
}
ENCODINGS = {name: encoding for encoding, names in FORMATS.items() for name in names}
Kind = Literal["realtime", "transcription"]


@dataclass(frozen=True)
class ServerTerms:
    """Settings of a server that its sessions depend on."""

    hold_s: float = 30.0  # seconds that a session waits for a lost client
    # seconds between live updates, for clients that ask for events and name no interval
    live_update_s: float | None = None
    # language of sentences -> attribute -> levels, the first language is the default
    spoken: Mapping[str, Phrases] = field(default_factory=dict)
    may_say: tuple[str, ...] = ()  # the attributes that a client may ask for
    coach: CoachOptions | None = None  # for clients that ask for a coach without thresholds


def updated(
    kind: Kind,
    options: SessionOptions,
    wants: Extensions,
    config: SessionConfig,
    terms: ServerTerms,
) -> tuple[SessionOptions, Extensions]:
    """The options and extensions after an update of a session of this kind. Raises Refused."""
    heard, name = config.audio.input, config.input_audio_format
    try:
        if config.type not in (UNSET, kind):
            raise ValueError(f"this is a {kind} session; connect anew for another kind")
        if config.streamer is not UNSET:
            options, wants = _extended(options, config.streamer, terms)
        if name is not UNSET:
            options = _in_format(options, Format(name) if name else None)
        if heard.format is not UNSET:
            options = _in_format(options, heard.format)
        for vad in (config.turn_detection, heard.turn_detection):
            if vad is not UNSET:
                options = _detecting(options, vad, kind)
    except ValueError as wrong:
        raise Refused(str(wrong), "invalid_value") from None
    return options, wants


def _one_of(name: str, value: str, known: Collection[str]) -> str:
    if value not in known:
        raise ValueError(f"{name} is {value!r:.80}; it may be {', '.join(known)}")
    return value


def _detecting(options: SessionOptions, vad: Vad | None, kind: Kind) -> SessionOptions:
    found = None
    if vad is not None:
        _one_of("turn_detection.type", vad.type, ("server_vad", "semantic_vad"))
        found = TurnDetection(vad.threshold, vad.prefix_padding_ms, vad.silence_duration_ms)
    answers = kind == "transcription" or bool(vad and vad.create_response)
    return replace(options, turn_detection=found, answers_itself=answers)


def _extended(
    options: SessionOptions, asked: Extensions, terms: ServerTerms
) -> tuple[SessionOptions, Extensions]:
    """The options by these extensions, and the extensions as they are in force."""
    seconds = asked.live_update_s
    if seconds is UNSET:
        seconds = terms.live_update_s if asked.events else None
    if seconds is not None and seconds < MIN_UPDATE_S:
        raise ValueError(f"live_update_s is {seconds}; it may be {MIN_UPDATE_S} to 3600")
    if asked.pitch_reference is not None and not asked.events:
        raise ValueError("pitch_reference needs events; set events to true as well")
    coach = None
    if asked.coach is not False:
        coach = load("coach").of({} if asked.coach is True else asked.coach, terms.coach)
    language = asked.language and _one_of("language", asked.language, terms.spoken)
    options = replace(
        options,
        live_update_s=seconds,
        measures=asked.measures,
        said=chosen(",".join(asked.attributes), terms.may_say) if asked.attributes else "",
        language=language or "",
        coach=coach,
        pitch_reference=cast("PitchReference", asked.pitch_reference),
    )
    # the coach's thresholds are in the options
    return options, msgspec.structs.replace(asked, live_update_s=seconds, coach=coach is not None)


def _in_format(options: SessionOptions, format: Format | None) -> SessionOptions:
    """With audio of this format; None for the default. Raises ValueError."""
    name, rate = (format.type, format.rate) if format else ("audio/pcm", PCM_RATE_HZ)
    encoding = ENCODINGS[_one_of("the audio's format", name, ENCODINGS)]
    usual_hz = PCM_RATE_HZ if encoding == "pcm16" else G711_RATE_HZ
    if rate is UNSET:
        rate = options.sample_rate_hz if options.encoding == encoding else usual_hz
    if encoding != "pcm16" and rate != usual_hz:
        raise ValueError(f"audio rate {rate} is none of {name}; it is {usual_hz} Hz")
    return replace(options, sample_rate_hz=rate, encoding=encoding)


def to_beta(event: ServerEvent) -> list[ServerEvent]:
    """The event for a client of the protocol's beta: by its name there, and with the fields that
    were flat there; empty if the beta had none for it."""
    kind = event["type"].replace("output_text", "text")
    if kind == "conversation.item.done":
        return []
    if kind == "conversation.item.added":
        kind = "conversation.item.created"
    found = event | {"type": kind}
    for name in found.keys() & {"session", "response"}:
        found[name] = found[name] | {"modalities": ["text"]}
    if "session" in found:
        heard = found["session"]["audio"]["input"]
        found["session"]["input_audio_format"] = dict(FORMATS.values())[heard["format"]["type"]]
        found["session"]["turn_detection"] = heard["turn_detection"]
    return [found]

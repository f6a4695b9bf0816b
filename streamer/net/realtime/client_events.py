"""What a client of OpenAI Realtime may send. In: a text message. Out: a struct, or BadEvent.

Strict where a value matters, deaf to fields that mean nothing here (voices, tools, instructions).
msgspec refuses bad base64, NaN, numbers out of range and absurd nesting by itself; lone surrogates
cannot be UTF-8. What is given back to the client (ids, error texts) is bounded.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

MAX_EVENT_BYTES = 1 << 20  # of an event without audio: its values become objects of many times that
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
    format: Format | UnsetType = UNSET
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
    # true, or an object of thresholds and perhaps a baseline: core/coach/coach.py checks it
    coach: bool | Annotated[dict[Id, Any], msgspec.Meta(max_length=32)] = False
    # what the server said of itself: who sends a session back as it came is not refused
    rate: int | UnsetType = UNSET


OPTIONS = [name for name in Extensions.__struct_fields__ if name != "rate"]


class SessionConfig(Struct):
    """What a session.update may change; what is left out stays."""

    type: Literal["realtime", "transcription"] | UnsetType = UNSET
    audio: AudioConfig | UnsetType = UNSET
    streamer: Extensions | UnsetType = UNSET
    # of older clients, in place of audio.input.format
    input_audio_format: Literal["pcm16", "g711_ulaw", "g711_alaw"] | UnsetType = UNSET


class _Event(Struct):
    event_id: Id | None = None


class SessionUpdate(_Event, tag="session.update"):
    session: SessionConfig = msgspec.field(default_factory=SessionConfig)


class BufferAppend(_Event, tag="input_audio_buffer.append", kw_only=True):
    audio: bytes


class BufferCommit(_Event, tag="input_audio_buffer.commit"):
    pass


class BufferClear(_Event, tag="input_audio_buffer.clear"):
    pass


class ResponseCreate(_Event, tag="response.create"):
    pass


class ResponseCancel(_Event, tag="response.cancel"):
    response_id: Id | None = None


class ItemCreate(_Event, tag="conversation.item.create"):
    pass


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


def decode(message: str | bytes) -> ClientEvent:
    """Raises BadEvent."""
    is_long = len(message) > MAX_EVENT_BYTES
    try:
        return _append_decoder.decode(message) if is_long else _decoder.decode(message)
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

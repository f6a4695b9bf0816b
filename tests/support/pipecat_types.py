"""What pipecat's parser of realtime events demands (services/openai/realtime/events.py of 1.14), as
far as we send it.

pipecat itself drags a hundred packages behind it; these models are as strict as its own where our
events are concerned.
"""

from typing import Literal

from pydantic import BaseModel


class Format(BaseModel):
    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[24000] = 24_000


class Detection(BaseModel):
    type: Literal["server_vad"] | None = "server_vad"
    threshold: float | None = 0.5
    prefix_padding_ms: int | None = 300
    silence_duration_ms: int | None = 500


class Input(BaseModel):
    format: Format | None = None
    turn_detection: Detection | None = None


class Audio(BaseModel):
    input: Input | None = None


class Session(BaseModel):
    type: Literal["realtime"] | None = "realtime"
    object: Literal["realtime.session"] | None = None
    id: str | None = None
    model: str | None = None
    output_modalities: list[Literal["text", "audio"]] | None = None
    audio: Audio | None = None


class Content(BaseModel):
    type: Literal[
        "text", "audio", "input_text", "input_audio", "input_image", "output_text", "output_audio"
    ]
    text: str | None = None
    audio: str | None = None
    transcript: str | None = None


class Item(BaseModel):
    id: str
    object: Literal["realtime.item"] | None = None
    type: Literal["message", "function_call", "function_call_output"]
    status: Literal["completed", "in_progress", "incomplete"] | None = None
    role: Literal["user", "assistant", "system"] | None = None
    content: list[Content] | None = None


class Details(BaseModel):
    cached_tokens: int | None = 0
    text_tokens: int | None = 0
    audio_tokens: int | None = 0


class Usage(BaseModel):
    total_tokens: int
    input_tokens: int
    output_tokens: int
    input_token_details: Details
    output_token_details: Details


class Response(BaseModel):
    """Older releases want these to be there; status_details may be null, but not absent."""

    id: str
    object: Literal["realtime.response"]
    status: Literal["completed", "in_progress", "incomplete", "cancelled", "failed"]
    status_details: dict | None
    output: list[Item]
    usage: Usage | None


class Error(BaseModel):
    type: str
    code: str | None = ""
    message: str
    param: str | None = None
    event_id: str | None = None


class Event(BaseModel):
    event_id: str
    type: str


class SessionEvent(Event):
    session: Session


class ItemEvent(Event):
    previous_item_id: str | None = None
    item: Item


class ResponseEvent(Event):
    response: Response


class OutputItem(Event):
    response_id: str
    output_index: int
    item: Item


class Place(Event):
    response_id: str
    item_id: str
    output_index: int
    content_index: int


class ContentPart(Place):
    part: Content


class TextDelta(Place):
    delta: str


class TextDone(Place):
    text: str


class TranscriptDelta(Event):
    item_id: str
    content_index: int
    delta: str


class TranscriptDone(Event):
    item_id: str
    content_index: int
    transcript: str


class Started(Event):
    audio_start_ms: int
    item_id: str


class Stopped(Event):
    audio_end_ms: int
    item_id: str


class Committed(Event):
    previous_item_id: str | None = None
    item_id: str


class ErrorEvent(Event):
    error: Error


TYPES = {
    "error": ErrorEvent,
    "session.created": SessionEvent,
    "session.updated": SessionEvent,
    "input_audio_buffer.committed": Committed,
    "input_audio_buffer.cleared": Event,
    "input_audio_buffer.speech_started": Started,
    "input_audio_buffer.speech_stopped": Stopped,
    "conversation.item.added": ItemEvent,
    "conversation.item.done": ItemEvent,
    "conversation.item.input_audio_transcription.delta": TranscriptDelta,
    "conversation.item.input_audio_transcription.completed": TranscriptDone,
    "response.created": ResponseEvent,
    "response.done": ResponseEvent,
    "response.output_item.added": OutputItem,
    "response.output_item.done": OutputItem,
    "response.content_part.added": ContentPart,
    "response.content_part.done": ContentPart,
    "response.output_text.delta": TextDelta,
    "response.output_text.done": TextDone,
}

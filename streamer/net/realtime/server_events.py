"""Makes the events that the server sends, in OpenAI Realtime's shapes: dicts without `event_id`.

Every event is valid under the official client's strict types. `streamer.*` events are ours and go
only to clients that asked for them. `to_beta` renames events for clients of the beta.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from streamer.core.description import Description, TextDelta
from streamer.net.realtime import client_events as c
from streamer.stages.events import SessionOptions, TurnFailed

Event = dict[str, Any]
MODEL = "streamer"
# how a response ends -> its details
ENDS: dict[str, Event | None] = {
    "completed": None,
    "cancelled": {"type": "cancelled", "reason": "client_cancelled"},
    "failed": {"type": "failed", "error": {"type": "server_error", "code": "turn_failed"}},
    "uncommitted": {
        "type": "failed",
        "error": {
            "type": "invalid_request_error",
            "code": "input_audio_not_committed",
            "message": "audio was appended and not committed; commit it, then create a response",
        },
    },
}
MAX_MESSAGE_CHARACTERS = 220  # of an error; what it quotes of the client has under 200


def session(kind: c.Kind, session_id: str, options: SessionOptions, ours: c.Extensions) -> Event:
    """The session as it is in force, for session.created and session.updated."""
    rate, found, vad = options.sample_rate_hz, options.turn_detection, None
    if found is not None:
        times = found.threshold, found.prefix_padding_ms, found.silence_ms
        vad = c.Vad("server_vad", *times, create_response=options.answers_itself)
    # The client's strict types allow 24000 alone, so any other rate stands in our extension.
    format = c.Format(c.FORMATS[options.encoding][0], rate if rate == c.PCM_RATE_HZ else UNSET)
    heard = c.AudioConfig(c.AudioInput(format, vad))
    row: Event = {"id": session_id, **msgspec.to_builtins(c.SessionConfig(kind, heard, ours))}
    if kind == "transcription":
        return row | {"object": "realtime.transcription_session"}
    return row | {"object": "realtime.session", "model": MODEL, "output_modalities": ["text"]}


def cut(message: str) -> str:
    """One printable line of at most MAX_MESSAGE_CHARACTERS, with its beginning and its end."""
    line = "".join(c if c.isprintable() else "?" for c in message)
    if len(line) <= MAX_MESSAGE_CHARACTERS:
        return line
    return f"{line[: MAX_MESSAGE_CHARACTERS - 85]} ... {line[-80:]}"  # where the way out stands


def error(message: str, code: str, cause: str | None, kind: str = c.INVALID) -> Event:
    """Every error event is made here, so every one is cut. cause: the client event's id."""
    found = {"message": cut(message), "type": kind, "code": code, "event_id": cause, "param": None}
    return {"type": "error", "error": found}


def item_added(item_id: str, role: str, content: list[Event], previous: str | None) -> list[Event]:
    """A complete item joins the conversation."""
    row = {"previous_item_id": previous, "item": _item(item_id, role, "completed", content)}
    return [{"type": "conversation.item.added", **row}, {"type": "conversation.item.done", **row}]


def _item(item_id: str, role: str, status: str, content: list[Event]) -> Event:
    head = {"id": item_id, "object": "realtime.item", "type": "message"}
    return {**head, "role": role, "status": status, "content": content}


class Answer:
    """A response and its one item while it is written. previous: the item before it. asked: by the
    client."""

    def __init__(
        self, id: str, item: str, previous: str | None, asked: c.ResponseCreate | None
    ) -> None:
        self.id, self.text = id, ""
        self._item, self._previous = item, previous
        # where its item stands, and its text
        self._place = {"response_id": id, "output_index": 0}
        self._part = {**self._place, "item_id": item, "content_index": 0}
        self._response: Event = {
            "id": id,
            "object": "realtime.response",
            "status": "in_progress",
            "status_details": None,
            "output": [],
            "usage": None,
            "output_modalities": ["text"],
            "metadata": asked.metadata if asked else None,
        }
        if asked and asked.ignored:
            self._response["streamer"] = {"ignored": list(asked.ignored)}

    def begins(self) -> list[Event]:
        """The response and its item, both empty."""
        created = {"type": "response.created", "response": self._response}
        return [created, *self._places("added", "in_progress", [])]

    def continues(self, text: str) -> Event:
        return {"type": "response.output_text.delta", **self._part, "delta": text}

    def ends(self, status: str, num_ids: int = 0) -> list[Event]:
        """The whole text. status: of ENDS. num_ids: its tokens."""
        content = [{"type": "output_text", "text": self.text}]
        is_whole = status == "completed"
        item, added, part = self._places("done", status if is_whole else "incomplete", content)
        text = {"type": "response.output_text.done", **self._part, "text": self.text}
        return [text, part, item, added, self._done(status, [item["item"]], num_ids)]

    def empty(self, status: str) -> list[Event]:
        """There is nothing to answer. status: of ENDS."""
        return [{"type": "response.created", "response": self._response}, self._done(status, [])]

    def _places(self, step: str, status: str, content: list[Event]) -> list[Event]:
        """Its item, the item in the conversation, and the item's text."""
        item = _item(self._item, "assistant", status, content)
        part = {"type": "text", "text": self.text}
        return [
            {"type": f"response.output_item.{step}", **self._place, "item": item},
            {"type": f"conversation.item.{step}", "previous_item_id": self._previous, "item": item},
            {"type": f"response.content_part.{step}", **self._part, "part": part},
        ]

    def _done(self, status: str, output: list[Event], num_ids: int = 0) -> Event:
        details = ENDS[status]
        usage = {
            "total_tokens": num_ids,
            "input_tokens": 0,
            "output_tokens": num_ids,
            "input_token_details": {"cached_tokens": 0, "text_tokens": 0, "audio_tokens": 0},
            "output_token_details": {"text_tokens": num_ids, "audio_tokens": 0},
        }
        status = details["type"] if details else "completed"
        end = {"status": status, "status_details": details, "output": output, "usage": usage}
        return {"type": "response.done", "response": self._response | end}


def transcription(item_id: str, found: TextDelta | Description | TurnFailed) -> list[Event]:
    """An answer in a transcription session, which has no responses."""
    kind = "conversation.item.input_audio_transcription"
    place = {"item_id": item_id, "content_index": 0}
    match found:
        case TextDelta():
            delta = {"type": f"{kind}.delta", **place, "delta": found.text}
            return [delta] if found.text else []
        case Description():
            usage = {"type": "duration", "seconds": round(found.audio_s, 3)}
            text = {"transcript": found.text, "usage": usage}
            return [{"type": f"{kind}.completed", **place, **text}]
    why = {"type": "server_error", "code": "turn_failed", "message": cut(found.message)}
    return [
        error(found.message, "turn_failed", None, "server_error"),
        {"type": f"{kind}.failed", **place, "error": why},
    ]


def described(item_id: str, found: TextDelta | Description) -> Event:
    """The `streamer.*` event for a piece of an answer, or for its end."""
    place = {"item_id": item_id}
    if isinstance(found, TextDelta):
        row: Event = {"text": found.text, "ids": list(found.ids), "verified": found.verified}
        return {"type": "streamer.delta", **place, **row, "at_ms": round(found.at_ms, 3)}
    left_out = {"file", "ids", "parts"}
    if found.measures is None:
        left_out |= {"measures", "confidence"}
    row = {name: value for name, value in found.as_json().items() if name not in left_out}
    return {"type": "streamer.description", **place, "description": row}


# of events, and of a part of an item
BETA_NAMES = {
    "conversation.item.added": "conversation.item.created",
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
    "output_text": "text",
}


def to_beta(event: Event) -> list[Event]:
    """The event by the names of the protocol's beta; empty if the beta had none for it."""
    if event["type"] == "conversation.item.done":
        return []
    found = _renamed(event)
    if "session" in found:
        row = found["session"]
        heard = row.pop("audio")["input"]
        del row["type"]
        row["modalities"] = ["text"]
        row["input_audio_format"] = dict(c.FORMATS.values())[heard["format"]["type"]]
        row["turn_detection"] = heard["turn_detection"]
    return [found]


def _renamed(value: Any) -> Any:
    if isinstance(value, list):
        return [_renamed(each) for each in value]
    if not isinstance(value, dict):
        return value
    own = "metadata"  # the client's
    found = {n: each if n == own else _renamed(each) for n, each in value.items()}
    if "output_modalities" in found:
        found["modalities"] = found.pop("output_modalities")
    if found.get("type") in BETA_NAMES:
        found["type"] = BETA_NAMES[found["type"]]
    return found

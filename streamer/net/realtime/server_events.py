"""Makes the events that the server sends, in OpenAI Realtime's shapes: dicts without `event_id`.

Every event is valid under the official client's strict types (tests/net). `streamer.*` events are
ours and go only to clients that asked for them. `to_beta` renames events for the beta's clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamer.core.description import Description, TextDelta
from streamer.stages.events import CoachEvent, LiveUpdate, Measures, SessionOptions, TurnFailed

Event = dict[str, Any]
Metadata = dict[str, str] | None
CANCELLED: Event = {"type": "cancelled", "reason": "client_cancelled"}
FAILED: Event = {"type": "failed", "error": {"type": "server_error", "code": "turn_failed"}}
UNCOMMITTED: Event = {
    "type": "failed",
    "error": {
        "type": "invalid_request_error",
        "code": "input_audio_not_committed",
        "message": "audio was appended and not committed; commit it, then create a response",
    },
}
MAX_TOLD = 280  # characters of an error, which may quote the client
GAP = " ... "
TAIL = 95  # of them at the end, where the way out stands


def session(
    kind: str, session_id: str, model: str, options: SessionOptions, extensions: Event
) -> Event:
    """The session as it is in force, for session.created and session.updated."""
    detection: Event | None = None
    if (found := options.turn_detection) is not None:
        detection = {
            "type": "server_vad",
            "threshold": found.threshold,
            "prefix_padding_ms": found.prefix_padding_ms,
            "silence_duration_ms": found.silence_ms,
            "create_response": options.answers_itself,
            "interrupt_response": False,
        }
    # The client's strict types know 24000 alone: any other rate stands where they do not look.
    rate = options.sample_rate_hz
    kind_of_audio = "audio/pcm" if options.encoding == "pcm16" else f"audio/{options.encoding}"
    heard = {
        "format": {"type": kind_of_audio} | ({"rate": rate} if rate == 24_000 else {}),
        "turn_detection": detection,
    }
    ours = extensions | {"rate": rate}
    if options.coach is not None:
        ours["coach"] = options.coach.as_json()  # its thresholds, those of a default too
    common = {"id": session_id, "type": kind, "audio": {"input": heard}, "streamer": ours}
    if kind == "transcription":
        return {**common, "object": "realtime.transcription_session"}
    return {**common, "object": "realtime.session", "model": model, "output_modalities": ["text"]}


def cut(message: str) -> str:
    """One printable line of MAX_TOLD characters at most, with its beginning and its end."""
    if len(message) > MAX_TOLD:
        message = message[: MAX_TOLD - TAIL - len(GAP)] + GAP + message[-TAIL:]
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)
    return line if len(line) <= MAX_TOLD else line[: MAX_TOLD - len(GAP)] + GAP


def error(message: str, code: str, cause: str | None, kind: str = "invalid_request_error") -> Event:
    """All error events are made here, so that all are cut."""
    found = {"message": cut(message), "type": kind, "code": code, "event_id": cause, "param": None}
    return {"type": "error", "error": found}


def speech_started(item_id: str, at_ms: int) -> Event:
    kind = "input_audio_buffer.speech_started"
    return {"type": kind, "audio_start_ms": at_ms, "item_id": item_id}


def speech_stopped(item_id: str, at_ms: int) -> Event:
    kind = "input_audio_buffer.speech_stopped"
    return {"type": kind, "audio_end_ms": at_ms, "item_id": item_id}


def _item(item_id: str, role: str, status: str, content: list[Event]) -> Event:
    head = {"id": item_id, "object": "realtime.item", "type": "message"}
    return {**head, "role": role, "status": status, "content": content}


def committed(item_id: str, previous: str | None) -> list[Event]:
    """A turn's audio is an item of the conversation now."""
    content = [{"type": "input_audio", "transcript": None}]
    item = _item(item_id, "user", "completed", content)
    return [
        {"type": "input_audio_buffer.committed", "item_id": item_id, "previous_item_id": previous},
        {"type": "conversation.item.added", "previous_item_id": previous, "item": item},
        {"type": "conversation.item.done", "previous_item_id": previous, "item": item},
    ]


def item_added(item_id: str, role: str, content: list[Event], previous: str | None) -> list[Event]:
    """An item that the client made is in the conversation."""
    item = _item(item_id, role, "completed", content)
    return [
        {"type": "conversation.item.added", "previous_item_id": previous, "item": item},
        {"type": "conversation.item.done", "previous_item_id": previous, "item": item},
    ]


@dataclass
class Answer:
    """A response and its one item, as it is being written. previous: the item before it. ignored:
    names of the fields of response.create that changed nothing."""

    id: str = ""
    item: str = ""
    previous: str | None = None
    metadata: Metadata = None
    ignored: tuple[str, ...] = ()
    text: str = ""

    def as_item(self, status: str) -> Event:
        is_begun = status == "in_progress"
        content = [] if is_begun else [{"type": "output_text", "text": self.text}]
        return _item(self.item, "assistant", status, content)

    @property
    def place(self) -> Event:
        """Where its item stands."""
        return {"response_id": self.id, "output_index": 0}

    @property
    def part(self) -> Event:
        """Where its text goes."""
        return {**self.place, "item_id": self.item, "content_index": 0}


def response(
    answer: Answer, status: str, output: list[Event], details: Event | None, num_ids: int
) -> Event:
    """An answer as it stands. num_ids: its tokens, once it has ended."""
    usage: Event | None = None
    if status != "in_progress":
        usage = {
            "total_tokens": num_ids,
            "input_tokens": 0,
            "output_tokens": num_ids,
            "input_token_details": {"cached_tokens": 0, "text_tokens": 0, "audio_tokens": 0},
            "output_token_details": {"text_tokens": num_ids, "audio_tokens": 0},
        }
    found = {
        "id": answer.id,
        "object": "realtime.response",
        "status": status,
        "status_details": details,
        "output": output,
        "usage": usage,
        "output_modalities": ["text"],
        "metadata": answer.metadata,
    }
    return found | ({"streamer": {"ignored": list(answer.ignored)}} if answer.ignored else {})


def response_begins(answer: Answer) -> list[Event]:
    """An answer and its one item, both empty."""
    item = answer.as_item("in_progress")
    empty = {"part": {"type": "text", "text": ""}}
    added = {"type": "conversation.item.added", "previous_item_id": answer.previous, "item": item}
    return [
        {"type": "response.created", "response": response(answer, "in_progress", [], None, 0)},
        {"type": "response.output_item.added", **answer.place, "item": item},
        added,
        {"type": "response.content_part.added", **answer.part, **empty},
    ]


def response_ends(answer: Answer, status: str, details: Event | None, num_ids: int) -> list[Event]:
    """The whole text, and how it ended: completed, cancelled or failed, with details of that."""
    text, part = answer.text, answer.part
    item = answer.as_item("completed" if status == "completed" else "incomplete")
    done = {"type": "conversation.item.done", "previous_item_id": answer.previous, "item": item}
    return [
        {"type": "response.output_text.done", **part, "text": text},
        {"type": "response.content_part.done", **part, "part": {"type": "text", "text": text}},
        {"type": "response.output_item.done", **answer.place, "item": item},
        done,
        {"type": "response.done", "response": response(answer, status, [item], details, num_ids)},
    ]


def response_empty(answer: Answer, is_uncommitted: bool) -> list[Event]:
    """There is nothing to answer. is_uncommitted: because the client forgot to commit."""
    status, details = ("failed", UNCOMMITTED) if is_uncommitted else ("completed", None)
    return [
        {"type": "response.created", "response": response(answer, "in_progress", [], None, 0)},
        {"type": "response.done", "response": response(answer, status, [], details, 0)},
    ]


def text_delta(answer: Answer, text: str) -> Event:
    return {"type": "response.output_text.delta", **answer.part, "delta": text}


def transcription(item_id: str, found: TextDelta | Description | TurnFailed) -> list[Event]:
    """The same in a transcription session, which has no responses."""
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
    told = cut(found.message)
    why = {"type": "server_error", "code": "turn_failed", "message": told}
    return [
        error(found.message, "turn_failed", None, "server_error"),
        {"type": f"{kind}.failed", **place, "error": why},
    ]


_BETA_NAMES = {
    "conversation.item.added": "conversation.item.created",
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
}


def to_beta(event: Event) -> list[Event]:
    """The event by the names that the protocol had in its beta, or nothing where it had none."""
    kind = event["type"]
    if kind == "conversation.item.done":
        return []
    found = event | {"type": _BETA_NAMES.get(kind, kind)}
    if "item" in found:
        found["item"] = _beta_item(found["item"])
    if "response" in found:
        row = dict(found["response"])
        row["modalities"] = row.pop("output_modalities")
        found["response"] = row | {"output": [_beta_item(item) for item in row["output"]]}
    if "session" in found:
        found["session"] = _beta_session(found["session"])
    return [found]


def _beta_item(item: Event) -> Event:
    content = [
        part | {"type": "text"} if part["type"] == "output_text" else part
        for part in item["content"]
    ]
    return item | {"content": content}


def _beta_session(row: Event) -> Event:
    names = {"audio/pcm": "pcm16", "audio/pcmu": "g711_ulaw", "audio/pcma": "g711_alaw"}
    heard = row["audio"]["input"]
    left_out = ("audio", "output_modalities", "type")
    return {name: value for name, value in row.items() if name not in left_out} | {
        "modalities": ["text"],
        "input_audio_format": names[heard["format"]["type"]],
        "turn_detection": heard["turn_detection"],
    }


def live_update(item_id: str, update: LiveUpdate) -> Event:
    told = {"text": update.text, "heard_s": round(update.heard_s, 3)}
    return {"type": "streamer.live_update", "item_id": item_id, **told}


def delta(item_id: str, found: TextDelta) -> Event:
    """Committed ids with their text, where the client asked for events."""
    told = {"text": found.text, "ids": list(found.ids), "verified": found.verified}
    at_ms = round(found.at_ms, 3)
    return {"type": "streamer.delta", "item_id": item_id, **told, "at_ms": at_ms}


def measures(item_id: str, found: Measures) -> Event:
    """Measures of the turn that goes on, where the client asked for them."""
    return {"type": "streamer.measures", "item_id": item_id, **found.as_json()}


def coach(found: CoachEvent, before_s: float) -> Event:
    """before_s: of the session's audio, before the coach began."""
    row: Event = found.as_json()
    for name in row.keys() & {"t_s", "curve_s"}:
        row[name] = round(row[name] + before_s, 3)
    return {"type": found.wire_type, **row}


def description(item_id: str, found: Description) -> Event:
    """All that is known of a turn, and a warning where blocks went unverified."""
    left_out = ("file", "ids", "parts")
    row = {name: value for name, value in found.as_json().items() if name not in left_out}
    if found.measures is None:
        del row["measures"], row["confidence"]  # nothing new is sent unasked
    return {"type": "streamer.description", "item_id": item_id, "description": row}


def ack(num_bytes: int, num_messages: int) -> Event:
    """Counts of everything that was taken: bytes of PCM, client messages of any kind."""
    return {"type": "streamer.ack", "bytes": num_bytes, "messages": num_messages}


def resumed(
    num_bytes: int, num_messages: int, event: int, lost_events: int, lost_bytes: int | None
) -> Event:
    """Where a session goes on. event: the next one. lost_bytes None: the client did not ask."""
    return {
        "type": "streamer.resumed",
        "bytes": num_bytes,
        "messages": num_messages,
        "event": event,
        "lost_events": lost_events,
        "lost_bytes": lost_bytes,
    }

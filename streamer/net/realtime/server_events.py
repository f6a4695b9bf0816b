"""What the server sends, in OpenAI Realtime's shapes: dicts without `event_id`.

Every event is valid under the official client's strict types (tests/net). `streamer.*` events are
ours and go only to clients that asked for them.
"""

from __future__ import annotations

from typing import Any

from streamer.core.description import Description, TextDelta
from streamer.stages.events import (
    BaselineKnown,
    CoachNews,
    LiveUpdate,
    Measures,
    Nudge,
    SessionOptions,
)

Event = dict[str, Any]
MAX_TOLD = 280  # characters of an error, which may quote the client
GAP = " ... "
TAIL = 95  # of these, at the end: there stands the way out


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
    # The client's strict types know 24000 alone: any other rate is told where they do not look.
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


def answer_item(item_id: str, status: str, text: str | None) -> Event:
    content = [] if text is None else [{"type": "output_text", "text": text}]
    return _item(item_id, "assistant", status, content)


def response(
    response_id: str, status: str, output: list[Event], details: Event | None, num_ids: int
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
    return {
        "id": response_id,
        "object": "realtime.response",
        "status": status,
        "status_details": details,
        "output": output,
        "usage": usage,
        "output_modalities": ["text"],
    }


def response_begins(response_id: str, item_id: str) -> list[Event]:
    """An answer and its one item, both empty."""
    place = {"response_id": response_id, "output_index": 0}
    item = answer_item(item_id, "in_progress", None)
    empty = {"part": {"type": "text", "text": ""}}
    return [
        {"type": "response.created", "response": response(response_id, "in_progress", [], None, 0)},
        {"type": "response.output_item.added", **place, "item": item},
        {"type": "conversation.item.added", "previous_item_id": None, "item": item},
        {"type": "response.content_part.added", **_part(response_id, item_id), **empty},
    ]


def _part(response_id: str, item_id: str) -> Event:
    """Where an answer's text goes."""
    place = {"response_id": response_id, "output_index": 0}
    return {**place, "item_id": item_id, "content_index": 0}


def response_ends(
    response_id: str, item_id: str, text: str, status: str, details: Event | None, num_ids: int
) -> list[Event]:
    """The whole text, and how it ended: completed, cancelled or failed, with details of that."""
    place = {"response_id": response_id, "output_index": 0}
    part = _part(response_id, item_id)
    item = answer_item(item_id, "completed" if status == "completed" else "incomplete", text)
    done = response(response_id, status, [item], details, num_ids)
    return [
        {"type": "response.output_text.done", **part, "text": text},
        {"type": "response.content_part.done", **part, "part": {"type": "text", "text": text}},
        {"type": "response.output_item.done", **place, "item": item},
        {"type": "conversation.item.done", "previous_item_id": None, "item": item},
        {"type": "response.done", "response": done},
    ]


def text_delta(response_id: str, item_id: str, text: str) -> Event:
    part = _part(response_id, item_id)
    return {"type": "response.output_text.delta", **part, "delta": text}


def transcription_delta(item_id: str, text: str) -> Event:
    kind = "conversation.item.input_audio_transcription.delta"
    return {"type": kind, "item_id": item_id, "content_index": 0, "delta": text}


def transcription_done(item_id: str, text: str, seconds: float) -> Event:
    kind = "conversation.item.input_audio_transcription.completed"
    usage = {"type": "duration", "seconds": round(seconds, 3)}
    place = {"item_id": item_id, "content_index": 0}
    return {"type": kind, **place, "transcript": text, "usage": usage}


def live_update(item_id: str, update: LiveUpdate) -> Event:
    told = {"text": update.text, "heard_s": round(update.heard_s, 3)}
    return {"type": "streamer.live_update", "item_id": item_id, **told}


def delta(item_id: str, found: TextDelta) -> Event:
    """Committed ids with their text, where the client asked for events."""
    told = {"text": found.text, "ids": list(found.ids), "verified": found.verified}
    at_ms = round(found.at_ms, 3)
    return {"type": "streamer.delta", "item_id": item_id, **told, "at_ms": at_ms}


def measures(item_id: str, found: Measures) -> Event:
    """What is measured of a turn that goes on, where the client asked for it."""
    return {"type": "streamer.measures", "item_id": item_id, **found.as_json()}


def nudge(found: Nudge, before_s: float) -> Event:
    """before_s: of the session's audio, before the coach began."""
    return {"type": "streamer.nudge", **_later(found.as_json(), before_s)}


def baseline(found: BaselineKnown, before_s: float) -> Event:
    """How the speaker usually speaks: what a client may keep, and give back."""
    row = {"t_s": round(found.t_s + before_s, 3), "baseline": found.baseline.as_json()}
    return {"type": "streamer.baseline", **row}


def coach(found: CoachNews, before_s: float) -> Event:
    """What the coach hears."""
    return {"type": "streamer.coach", **_later(found.as_json(), before_s)}


def _later(row: Event, seconds: float) -> Event:
    return row | {name: round(row[name] + seconds, 3) for name in ("t_s", "curve_s") if name in row}


def description(item_id: str, found: Description) -> Event:
    """All that is known of a turn, and a warning where blocks went unverified."""
    left_out = ("file", "ids", "parts")
    row = {name: value for name, value in found.as_json().items() if name not in left_out}
    if found.measures is None:
        del row["measures"], row["confidence"]  # nothing new is sent unasked
    return {"type": "streamer.description", "item_id": item_id, "description": row}


def transcription_failed(item_id: str, message: str) -> Event:
    kind = "conversation.item.input_audio_transcription.failed"
    found = {"type": "server_error", "code": "turn_failed", "message": cut(message)}
    return {"type": kind, "item_id": item_id, "content_index": 0, "error": found}


def ack(num_bytes: int, num_messages: int) -> Event:
    """What was taken: bytes of PCM, and the client's messages of any kind."""
    return {"type": "streamer.ack", "bytes": num_bytes, "messages": num_messages}


def resumed(
    num_bytes: int, num_messages: int, event: int, lost_events: int, lost_bytes: int | None
) -> Event:
    """Where a session goes on. event: the next one. lost_bytes None: nobody asked."""
    return {
        "type": "streamer.resumed",
        "bytes": num_bytes,
        "messages": num_messages,
        "event": event,
        "lost_events": lost_events,
        "lost_bytes": lost_bytes,
    }

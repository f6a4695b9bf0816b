"""The protocol of one session: client and session events in, server events out.

Pure bookkeeping of items, responses and the settings in force. session.py calls the stream and
sends the events. These are dicts in OpenAI Realtime's shapes, without `event_id`, and valid under
the official client's strict types. `streamer.*` events go only to clients that asked for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import msgspec
from msgspec import UNSET

from streamer.core.attributes import parse
from streamer.core.description import Description, TextDelta
from streamer.net.realtime import client_events as c
from streamer.net.realtime.client_events import ServerEvent as Out
from streamer.stages import events

MODEL = "streamer"
# 65 s at 24 kHz, more than a turn; websockets keeps a whole message in memory
MAX_APPEND_BYTES = 3 << 20

BUFFER = "input_audio_buffer"
# how a response ends -> its details
ENDS: dict[str, Out | None] = {
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


@dataclass(eq=False)
class Conversation:
    """Call `opened`, then `heard` for the session's events, and a method for each client event, as
    they happen. These raise Refused. is_beta: the client speaks the protocol's beta."""

    id: str  # a secret: with it, the session can be resumed
    kind: c.Kind = "realtime"
    terms: c.ServerTerms = field(default_factory=c.ServerTerms)
    is_beta: bool = False

    def __post_init__(self) -> None:
        # its part in the ids of items and events, not enough to resume; the parts before it name
        # the process, and are the same for many sessions
        self.name = self.id.rpartition("_")[2][:8]
        self._text = "text" if self.is_beta else "output_text"  # an answer's content
        # in force; at first OpenAI's defaults, and no extension
        self.options = events.SessionOptions(c.PCM_RATE_HZ, events.TurnDetection())
        self.wants = c.Extensions(live_update_s=None)
        self.turns = Turns()
        self._num_streams = 0  # before the present one
        self._before_ms = 0  # of audio in them
        # a commit was answered by itself, so a response.create for it asks for nothing more
        self._may_ask = False
        # the item at the end of the conversation; each item names the one before it
        self._last: str | None = None
        self._own = count()  # items of the client's own text, and responses without a turn
        # the response that is being written; turns are answered one after another
        self._answer: Answer | None = None
        # turn -> the response.create that asks for it
        self._asked: dict[int, c.ResponseCreate] = {}

    def opened(self) -> list[Out]:
        return [{"type": "session.created", "session": self._session()}]

    def appended(self, message: c.BufferAppend | bytes) -> bytes:
        """The audio of an event, or of a binary message, if the client has asked for those."""
        if isinstance(message, bytes) and not self.wants.binary:
            raise c.Refused("binary messages need session.streamer.binary", "binary_not_enabled")
        pcm = message if isinstance(message, bytes) else message.audio
        if len(pcm) > MAX_APPEND_BYTES:
            text = f"append at most {MAX_APPEND_BYTES >> 20} MiB of audio at a time"
            raise c.Refused(text, "append_too_large")
        return pcm

    def committed(self, turn: int) -> None:
        """The client has ended this turn. Raises NothingToCommit if it is answered already."""
        if turn <= self.turns.done:
            raise events.NothingToCommit
        self.turns.closed(turn, self.options.answers_itself)
        self._may_ask = True

    def reopened(self, num_bytes: int, before: events.SessionOptions) -> None:
        """Another stream, with turns from 0 on, follows this audio, which had options `before`."""
        self._num_streams += 1
        self._before_ms += 1000 * num_bytes // (before.sample_bytes * before.sample_rate_hz)
        self.turns = Turns()
        self._asked.clear()

    def heard(self, event: events.Event) -> list[Out]:
        """The server events for a session event."""
        if isinstance(event, events.CoachEvent):
            row = event.as_json()
            for name in row.keys() & {"t_s", "curve_s"}:  # of the session, as all its times
                row[name] = round(row[name] + self._before_ms / 1000, 3)
            return [{"type": event.wire_type, **row}]
        item = self._item(event.turn)
        place = {"item_id": item}
        match event:
            case events.SpeechStarted():
                self.turns.is_open = True
                at_ms = event.at_ms + self._before_ms
                return [{"type": f"{BUFFER}.speech_started", "audio_start_ms": at_ms, **place}]
            case events.SpeechStopped():
                at_ms = event.at_ms + self._before_ms
                return [{"type": f"{BUFFER}.speech_stopped", "audio_end_ms": at_ms, **place}]
            case events.TurnCommitted():
                self.turns.closed(event.turn, self.options.answers_itself)
                previous = self._add(item)
                out = {"type": f"{BUFFER}.committed", **place, "previous_item_id": previous}
                content = [{"type": "input_audio", "transcript": None}]
                return [out, *item_added(item, "user", content, previous)]
            case events.Cleared():
                self.turns.is_open = False
                return [{"type": f"{BUFFER}.cleared"}]
            case events.LiveUpdate():
                spoken = self.terms.spoken
                phrases = spoken.get(self.options.language or next(iter(spoken), ""), {})
                row = {"attributes": parse(event.text, phrases), "heard_s": round(event.heard_s, 3)}
                return [{"type": "streamer.live_update", **place, "text": event.text, **row}]
            case events.Measures():
                return [{"type": "streamer.measures", **place, **event.as_json()}]
        return self._answered(item, event)

    def _answered(self, item: str, event: TextDelta | Description | events.TurnFailed) -> list[Out]:
        """An answer goes on, or ends."""
        of_kind = transcription if self.kind == "transcription" else self._response
        out = of_kind(item, event)
        if not isinstance(event, TextDelta):
            self.turns.done = max(self.turns.done, event.turn)
        if self.wants.events and not isinstance(event, events.TurnFailed):
            out.append(described(item, event))
        return out

    def _response(self, item: str, event: TextDelta | Description | events.TurnFailed) -> list[Out]:
        answer, out = self._answer, []
        response = self._item(event.turn, "resp")
        if answer is None or answer.id != response:
            own, asked = f"{item}_answer", self._asked.pop(event.turn, None)
            answer = self._answer = Answer(response, own, self._add(own), asked, self._text)
            out = answer.begins()
        match event:
            case TextDelta():
                answer.text += event.text
                return [*out, answer.continues(event.text)] if event.text else out
            case events.TurnFailed():
                out.append(c.error(event.message, "turn_failed", None, "server_error"))
                return out + answer.ends("failed")
        answer.text = event.text
        status = "cancelled" if event.stop_reason == "cancelled" else "completed"
        return out + answer.ends(status, event.n_tokens)

    def update(self, event: c.SessionUpdate) -> list[Out]:
        """Other `options` may be in force from here on."""
        before, turns = self.options, self.turns
        options, wants = c.updated(self.kind, before, self.wants, event.session, self.terms)
        waits = not before.answers_itself and (turns.is_open or turns.is_unasked)
        if options != before and waits:
            text = "audio waits to be committed or answered"
            ways = "do that, or clear it, before it is heard by other options"
            raise c.Refused(f"{text}; {ways}", "session_busy")
        self.options, self.wants = options, wants
        return [{"type": "session.updated", "session": self._session(event.ignored)}]

    def respond(self, event: c.ResponseCreate) -> list[Out] | None:
        """None: the stream has to answer the last committed turn. If there is nothing to answer,
        an empty response: some clients' receive loops end with any error."""
        if self.kind == "transcription":
            raise c.Refused("a transcription session answers by itself", "unsupported")
        turns = self.turns
        may_ask, self._may_ask = self._may_ask, False
        if turns.is_unasked:
            self._asked[max(turns.asked, turns.done) + 1] = event  # a long turn has several parts
            turns.asked = turns.committed
            return None
        if may_ask:  # the turn is answered by itself
            response = self._item(turns.asked, "resp")
            has_begun = self._answer is not None and self._answer.id == response
            if not has_begun:
                self._asked[turns.asked] = event
            if not has_begun or event.metadata is None:
                return []
        if turns.asked > turns.done:
            text = "a response is in progress; wait for response.done, or cancel it"
            raise c.Refused(text, "conversation_already_has_active_response")
        answer = Answer(f"resp_{self.name}_own_{next(self._own)}", "", None, event, self._text)
        return answer.empty("uncommitted" if turns.is_open else "completed")

    def cancelled(self, event: c.ResponseCancel) -> None:
        """The client cancels a response in progress, or one that was asked for."""
        turns = self.turns
        known = {self._item(turn, "resp") for turn in range(turns.done + 1, turns.asked + 1)}
        if not known or (event.response_id is not None and event.response_id not in known):
            text = "Cancellation failed: no such response is in progress"  # as clients match it
            raise c.Refused(text, "response_cancel_not_active")

    def created(self, event: c.ItemCreate) -> list[Out]:
        """Acknowledge a text. It changes no answer: answers are about audio alone."""
        item = event.item
        if item.type != "message" or any(part.type not in c.TEXTS for part in item.content):
            text = "only messages of text are taken as items; append audio, and commit it"
            raise c.Refused(text, "unsupported")
        name = item.id or f"item_{self.name}_own_{next(self._own)}"
        content = [{"type": part.type, "text": part.text} for part in item.content]
        return item_added(name, item.role, content, self._add(name, event.previous_item_id))

    def _session(self, ignored: tuple[str, ...] = ()) -> Out:
        """The session as it is in force, for session.created and session.updated."""
        options, found, vad = self.options, self.options.turn_detection, None
        rate = options.sample_rate_hz
        if found is not None:
            times = found.threshold, found.prefix_padding_ms, found.silence_ms
            vad = c.Vad("server_vad", *times, create_response=options.answers_itself)
        ours = msgspec.structs.replace(self.wants, ignored=list(ignored), rate=rate)
        if options.coach is not None:
            ours.coach = options.coach.as_json()  # with the thresholds in force
        if languages := list(self.terms.spoken):
            ours.language, ours.languages = options.language or languages[0], languages
        # the client's strict types allow 24000 alone, so any other rate stands in our extension
        format = c.Format(c.FORMATS[options.encoding][0], rate if rate == c.PCM_RATE_HZ else UNSET)
        config = c.SessionConfig(self.kind, c.AudioConfig(c.AudioInput(format, vad)), ours)
        row: Out = {"id": self.id, **msgspec.to_builtins(config)}
        if self.kind == "transcription":
            return row | {"object": "realtime.transcription_session"}
        return row | {"object": "realtime.session", "model": MODEL, "output_modalities": ["text"]}

    def _add(self, item: str, after: str | None = None) -> str | None:
        """Add an item, at the end unless `after` says where; return the one before it."""
        previous = None if after == "root" else after or self._last
        if previous == self._last:
            self._last = item
        return previous

    def _item(self, turn: int, of: str = "item") -> str:
        """The id of a turn's item, or of its response (`of` is "resp")."""
        return f"{of}_{self.name}_{self._num_streams}_{turn}"


@dataclass
class Turns:
    """Which turns are open, committed, asked for, answered. Turns count from 0; each number is that
    of the latest such turn, or -1."""

    committed: int = -1  # its audio is over
    asked: int = -1
    done: int = -1  # described or failed; earlier turns that were not asked for never will be
    # there is audio that is not committed: voice activity has begun a turn, or without it, audio
    # was taken since the last commit
    is_open: bool = False

    def closed(self, turn: int, is_asked: bool) -> None:
        """The turn's audio is over. is_asked: it is answered without a request."""
        self.is_open = False
        self.committed = max(self.committed, turn)
        if is_asked:
            self.asked = max(self.asked, turn)

    @property
    def is_unasked(self) -> bool:
        """Whether a committed turn waits to be asked for."""
        return self.committed > max(self.asked, self.done)


def item_added(item_id: str, role: str, content: list[Out], previous: str | None) -> list[Out]:
    """A complete item joins the conversation."""
    row = {"previous_item_id": previous, "item": _item(item_id, role, "completed", content)}
    return [{"type": "conversation.item.added", **row}, {"type": "conversation.item.done", **row}]


def _item(item_id: str, role: str, status: str, content: list[Out]) -> Out:
    head = {"id": item_id, "object": "realtime.item", "type": "message"}
    return {**head, "role": role, "status": status, "content": content}


class Answer:
    """A response and its one item while it is written. previous: the item before it. asked: by the
    client. kind: of the item's content."""

    def __init__(
        self, id: str, item: str, previous: str | None, asked: c.ResponseCreate | None, kind: str
    ) -> None:
        self.id, self.text, self._kind = id, "", kind
        self._item, self._previous = item, previous
        # where its item stands, and its text
        self._place = {"response_id": id, "output_index": 0}
        self._part = {**self._place, "item_id": item, "content_index": 0}
        self._response: Out = {
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

    def begins(self) -> list[Out]:
        """The response and its item, both empty."""
        created = {"type": "response.created", "response": self._response}
        return [created, *self._places("added", "in_progress", [])]

    def continues(self, text: str) -> Out:
        return {"type": "response.output_text.delta", **self._part, "delta": text}

    def ends(self, status: str, num_ids: int = 0) -> list[Out]:
        """The whole text. status: of ENDS. num_ids: its tokens."""
        content = [{"type": self._kind, "text": self.text}]
        is_whole = status == "completed"
        item, added, part = self._places("done", status if is_whole else "incomplete", content)
        text = {"type": "response.output_text.done", **self._part, "text": self.text}
        return [text, part, item, added, self._done(status, [item["item"]], num_ids)]

    def empty(self, status: str) -> list[Out]:
        """There is nothing to answer. status: of ENDS."""
        return [{"type": "response.created", "response": self._response}, self._done(status, [])]

    def _places(self, step: str, status: str, content: list[Out]) -> list[Out]:
        """Its item, the item in the conversation, and the item's text."""
        item = _item(self._item, "assistant", status, content)
        part = {"type": "text", "text": self.text}
        return [
            {"type": f"response.output_item.{step}", **self._place, "item": item},
            {"type": f"conversation.item.{step}", "previous_item_id": self._previous, "item": item},
            {"type": f"response.content_part.{step}", **self._part, "part": part},
        ]

    def _done(self, status: str, output: list[Out], num_ids: int = 0) -> Out:
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


def transcription(item_id: str, found: TextDelta | Description | events.TurnFailed) -> list[Out]:
    """An answer in a transcription session, which has no responses."""
    kind = "conversation.item.input_audio_transcription"
    place = {"item_id": item_id, "content_index": 0}
    match found:
        case TextDelta():
            return [{"type": f"{kind}.delta", **place, "delta": found.text}] if found.text else []
        case Description():
            usage = {"type": "duration", "seconds": round(found.audio_s, 3)}
            text = {"transcript": found.text, "usage": usage}
            return [{"type": f"{kind}.completed", **place, **text}]
    error = c.error(found.message, "turn_failed", None, "server_error")
    return [error, {"type": f"{kind}.failed", **place, "error": error["error"]}]


def described(item_id: str, found: TextDelta | Description) -> Out:
    """The `streamer.*` event for a piece of an answer, or for its end."""
    place = {"item_id": item_id}
    if isinstance(found, TextDelta):
        row = {"text": found.text, "ids": list(found.ids), "verified": found.verified}
        return {"type": "streamer.delta", **place, **row, "at_ms": round(found.at_ms, 3)}
    left_out = {"file", "ids", "parts"}
    if found.measures is None:
        left_out |= {"measures", "confidence"}
    row = {name: value for name, value in found.as_json().items() if name not in left_out}
    return {"type": "streamer.description", **place, "description": row}

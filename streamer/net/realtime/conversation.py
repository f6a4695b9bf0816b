"""The protocol of one session: client and session events in, server events out.

Pure bookkeeping of items, responses and the settings in force. session.py calls the stream and
sends the events.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import msgspec

from streamer.core.attributes import parse
from streamer.core.description import Description, TextDelta
from streamer.net.realtime import client_events as c
from streamer.net.realtime import server_events as s
from streamer.net.realtime.server_events import Event as Out
from streamer.stages.events import (
    Cleared,
    CoachEvent,
    Event,
    LiveUpdate,
    Measures,
    SessionOptions,
    SpeechStarted,
    SpeechStopped,
    TurnCommitted,
    TurnDetection,
    TurnFailed,
)

# 65 s at 24 kHz, more than a turn; websockets keeps a whole message in memory
MAX_APPEND_BYTES = 3 << 20

BUFFER = "input_audio_buffer"
NOTHING = "the input audio buffer is empty; append audio first"


class Conversation:
    """Call `opened`, then `heard` for the session's events, and a method for each client event, as
    they happen. All but `opened` and `heard` raise Refused. is_beta: the client speaks the beta of
    the protocol."""

    def __init__(
        self,
        session_id: str,
        kind: c.Kind = "realtime",
        terms: c.ServerTerms | None = None,
        is_beta: bool = False,
    ) -> None:
        # a secret: with it, the session can be resumed
        self.id = session_id
        # its part in the ids of items and events, not enough to resume; the parts before it name
        # the process, and are the same for many sessions
        self.name = session_id.rpartition("_")[2][:8]
        self.is_beta = is_beta
        self.kind = kind
        # in force; at first OpenAI's defaults, and no extension
        self.options = SessionOptions(c.PCM_RATE_HZ, TurnDetection())
        self.wants = c.Extensions(live_update_s=None)
        self.turns = Turns()
        self._terms = terms or c.ServerTerms()
        # streams before the present one, and ms of audio in them
        self._num_streams = 0
        self._before_ms = 0
        # a commit was answered by itself, so a response.create for it asks for nothing more
        self._may_ask = False
        # the item at the end of the conversation; each item names the one before it
        self._last: str | None = None
        # items of the client's own text, and responses without a turn
        self._own = count()
        # the response that is being written; turns are answered one after another
        self._answer: s.Answer | None = None
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
        """The client has ended this turn, unless voice activity had and it was answered."""
        if turn <= self.turns.done:
            raise c.Refused(NOTHING, "input_audio_buffer_commit_empty")
        self.turns.closed(turn, self.options.answers_itself)
        self._may_ask = True

    def reopened(self, num_bytes: int, before: SessionOptions) -> None:
        """Another stream goes on after this audio, which had the options `before`; its turns are
        numbered from 0 again."""
        self._num_streams += 1
        self._before_ms += 1000 * num_bytes // (before.sample_bytes * before.sample_rate_hz)
        self.turns = Turns()
        self._asked.clear()

    def heard(self, event: Event) -> list[Out]:
        """The server events for a session event."""
        if isinstance(event, CoachEvent):
            row = event.as_json()
            for name in row.keys() & {"t_s", "curve_s"}:  # of the session, as all its times
                row[name] = round(row[name] + self._before_ms / 1000, 3)
            return [{"type": event.wire_type, **row}]
        item = self._item(event.turn)
        place = {"item_id": item}
        match event:
            case SpeechStarted():
                self.turns.is_open = True
                at_ms = event.at_ms + self._before_ms
                return [{"type": f"{BUFFER}.speech_started", "audio_start_ms": at_ms, **place}]
            case SpeechStopped():
                at_ms = event.at_ms + self._before_ms
                return [{"type": f"{BUFFER}.speech_stopped", "audio_end_ms": at_ms, **place}]
            case TurnCommitted():
                self.turns.closed(event.turn, self.options.answers_itself)
                previous = self._add(item)
                out = {"type": f"{BUFFER}.committed", **place, "previous_item_id": previous}
                content = [{"type": "input_audio", "transcript": None}]
                return [out, *s.item_added(item, "user", content, previous)]
            case Cleared():
                self.turns.is_open = False
                return [{"type": f"{BUFFER}.cleared"}]
            case LiveUpdate():
                spoken = self._terms.spoken
                phrases = spoken.get(self.options.language or next(iter(spoken), ""), {})
                row = {"attributes": parse(event.text, phrases), "heard_s": round(event.heard_s, 3)}
                return [{"type": "streamer.live_update", **place, "text": event.text, **row}]
            case Measures():
                return [{"type": "streamer.measures", **place, **event.as_json()}]
        return self._answered(item, event)

    def _answered(self, item: str, event: TextDelta | Description | TurnFailed) -> list[Out]:
        """An answer goes on, or ends."""
        if self.kind == "transcription":
            out = s.transcription(item, event)
        else:
            out = self._response(event)
        if not isinstance(event, TextDelta):
            self.turns.done = max(self.turns.done, event.turn)
        if self.wants.events and not isinstance(event, TurnFailed):
            out.append(s.described(item, event))
        return out

    def _response(self, event: TextDelta | Description | TurnFailed) -> list[Out]:
        response, item = self._item(event.turn, "resp"), f"{self._item(event.turn)}_answer"
        answer, out = self._answer, []
        if answer is None or answer.id != response:
            asked = self._asked.pop(event.turn, None)
            answer = self._answer = s.Answer(response, item, self._add(item), asked)
            out = answer.begins()
        match event:
            case TextDelta():
                answer.text += event.text
                return [*out, answer.continues(event.text)] if event.text else out
            case TurnFailed():
                out.append(s.error(event.message, "turn_failed", None, "server_error"))
                return out + answer.ends("failed")
        answer.text = event.text
        status = "cancelled" if event.stop_reason == "cancelled" else "completed"
        return out + answer.ends(status, event.n_tokens)

    def update(self, event: c.SessionUpdate) -> list[Out]:
        """Other `options` may be in force from here on."""
        before, turns = self.options, self.turns
        options, wants = c.updated(self.kind, before, self.wants, event.session, self._terms)
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
        if turns.is_unasked:
            self._asked[max(turns.asked, turns.done) + 1] = event  # a long turn has several parts
            turns.asked = turns.committed
            return None
        may_ask, self._may_ask = self._may_ask, False
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
        answer = s.Answer(f"resp_{self.name}_own_{next(self._own)}", "", None, event)
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
        return s.item_added(name, item.role, content, self._add(name, event.previous_item_id))

    def _session(self, ignored: tuple[str, ...] = ()) -> Out:
        told = {"ignored": list(ignored), "rate": self.options.sample_rate_hz}
        ours = msgspec.structs.replace(self.wants, **told)
        if (coach := self.options.coach) is not None:
            ours.coach = coach.as_json()  # with the thresholds in force
        if languages := list(self._terms.spoken):
            ours.language, ours.languages = self.options.language or languages[0], languages
        return s.session(self.kind, self.id, self.options, ours)

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

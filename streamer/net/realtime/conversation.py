"""One connection's protocol. In: client and session events. Out: server events, actions.

Pure bookkeeping of items, responses and what is in force; the server performs the actions and sends
the events.
"""

from __future__ import annotations

import msgspec

from streamer.core.coach.coach import Coach
from streamer.core.description import Description, TextDelta
from streamer.net.realtime import client_events as c
from streamer.net.realtime import server_events as s
from streamer.net.realtime.actions import Action, Do, Feed, Reopen
from streamer.net.realtime.answer_in_hand import AnswerInHand
from streamer.net.realtime.server_events import Event as Out
from streamer.net.realtime.settings_of import SettingsOf
from streamer.net.realtime.turn_numbers import Turns
from streamer.stages.events import (
    BaselineKnown,
    Cleared,
    CoachNews,
    Event,
    LiveUpdate,
    Measures,
    Nudge,
    SessionOptions,
    SpeechStarted,
    SpeechStopped,
    TurnCommitted,
    TurnDetection,
    TurnFailed,
)

MAX_APPEND_BYTES = 3 << 20  # 65 s at 24 kHz, more than a turn; websockets keeps a message in memory
Result = tuple[list[Out], list[Action]]


class Conversation:
    """`opened`, then `client` and `heard` in the order in which things happen."""

    def __init__(
        self,
        session_id: str,
        model: str,
        is_transcription: bool,
        live_update_s: float | None = None,
        may_say: tuple[str, ...] = (),
        coach: Coach | None = None,
    ) -> None:
        self.id = session_id  # a secret: who knows it may resume
        self.options = SessionOptions(24_000, TurnDetection())  # as OpenAI's
        self.extensions = c.Extensions(live_update_s=None)
        self._model = model
        self._kind = "transcription" if is_transcription else "realtime"
        self._num_sessions = 0  # that came before the present one
        self._before_ms = 0  # of audio, in them
        self.turns = Turns()
        self._may_ask = False  # for an answer that comes by itself
        self._last_item: str | None = None
        self._answer = AnswerInHand(self._kind == "transcription")
        self._settings = SettingsOf(self._kind, live_update_s, may_say, coach)

    @property
    def name(self) -> str:
        """Of the ids of items and events; not enough of `id` to resume. What comes before its last
        part, the process, is the same for many sessions."""
        return self.id.rpartition("_")[2][:8]

    def opened(self) -> list[Out]:
        return [{"type": "session.created", "session": self._session()}]

    def client(self, event: c.ClientEvent) -> Result:
        """What a client event brings."""
        match event:
            case c.SessionUpdate(session=config):
                return self._update(config, event.event_id)
            case c.BufferAppend(audio=audio):
                return self._append(audio, event.event_id)
            case c.BufferCommit():
                return [], [Do("commit", event.event_id)]
            case c.BufferClear():
                return [], [Do("clear", event.event_id)]
            case c.ResponseCreate():
                return self._respond(event.event_id)
            case c.ResponseCancel():
                return self._cancel(event)
            case c.ItemCreate():
                text = "items are made of audio only; append it"
            case _:
                text = f"{event.__struct_config__.tag} is not supported; items are not kept"
        return _refused(text, "unsupported", event.event_id)

    def audio_of(self, message: str | bytes) -> bytes | None:
        """The PCM of a message that is nothing but audio, else None."""
        if isinstance(message, bytes):
            return message if self.extensions.binary else None
        try:
            event = c.decode(message)
        except c.BadEvent:
            return None
        return event.audio if isinstance(event, c.BufferAppend) else None

    def binary(self, pcm: bytes) -> Result:
        """A binary message: raw PCM16, where the client has asked for that."""
        if not self.extensions.binary:
            text = "binary messages need session.streamer.binary"
            return _refused(text, "binary_not_enabled", None)
        return self._append(pcm, None)

    def fed(self, num_bytes: int) -> None:
        """So many bytes of audio were taken."""
        self.turns.fed(num_bytes, self.options.turn_detection is not None)

    def committed(self, turn: int) -> None:
        """The client has ended this turn."""
        self.turns.closed(turn, self.options.answers_itself)
        self._may_ask = True

    def reopened(self, num_bytes: int, before: SessionOptions) -> None:
        """Another session goes on under this one's name, after so much audio by the options
        `before`; its turns are numbered from 0 again."""
        self._num_sessions += 1
        bytes_per_s = before.sample_bytes * before.sample_rate_hz
        self._before_ms += 1000 * num_bytes // bytes_per_s
        self.turns = Turns()

    def nothing_to_commit(self, cause: str | None) -> list[Out]:
        text = "the input audio buffer is empty; append audio first"
        return [s.error(text, "input_audio_buffer_commit_empty", cause)]

    def heard(self, event: Event) -> list[Out]:
        """What a session event tells the client."""
        before_s = self._before_ms / 1000
        match event:
            case Nudge():
                return [s.nudge(event, before_s)]
            case BaselineKnown():
                return [s.baseline(event, before_s)]
            case CoachNews():
                return [s.coach(event, before_s)]
        item = self._item(event.turn) if not isinstance(event, Description) else ""
        match event:
            case SpeechStarted(at_ms=at_ms):
                self.turns.started()
                return [s.speech_started(item, at_ms + self._before_ms)]
            case SpeechStopped(at_ms=at_ms):
                return [s.speech_stopped(item, at_ms + self._before_ms)]
            case TurnCommitted(turn=turn):
                self.turns.closed(turn, self.options.answers_itself)
                previous = self._last_item
                self._last_item = item
                return s.committed(item, previous)
            case Cleared():
                self.turns.cleared()
                return [{"type": "input_audio_buffer.cleared"}]
            case LiveUpdate():
                return [s.live_update(item, event)]
            case Measures():
                return [s.measures(item, event)]
            case TextDelta():
                is_told = self.extensions.events
                return self._answer.delta(event, item, self._place(event.turn), is_told)
            case TurnFailed():
                self.turns.answered(event.turn)
                return self._answer.failed(event, item, self._place(event.turn))
        self.turns.answered(event.turn)
        item = self._item(event.turn)
        out = self._answer.described(event, item, self._place(event.turn))
        return [*out, s.description(item, event)] if self.extensions.events else out

    def _append(self, pcm: bytes, cause: str | None) -> Result:
        if len(pcm) > MAX_APPEND_BYTES:
            text = f"append at most {MAX_APPEND_BYTES >> 20} MiB of audio at a time"
            return _refused(text, "append_too_large", cause)
        return [], [Feed(pcm)] if pcm else []

    def _update(self, config: c.SessionConfig, cause: str | None) -> Result:
        try:
            options, extensions = self._settings.of(config, self.options, self.extensions)
        except ValueError as wrong:
            return _refused(str(wrong), "invalid_value", cause)
        is_same = options == self.options
        is_waiting = self.turns.is_open or self.turns.is_unasked
        if not is_same and not self.options.answers_itself and is_waiting:
            text = "audio waits to be committed or answered"
            ways = "do that, or clear it, before it is heard by other options"
            return _refused(f"{text}; {ways}", "session_busy", cause)
        self.options = options
        self.extensions = extensions
        out: list[Out] = [{"type": "session.updated", "session": self._session()}]
        return out, [] if is_same else [Reopen(options)]

    def _respond(self, cause: str | None) -> Result:
        if self._kind == "transcription":
            return _refused("a transcription session answers by itself", "unsupported", cause)
        if self.options.answers_itself and self._may_ask:
            self._may_ask = False
            return [], []
        if not self.turns.is_unasked:
            text = "there is no turn to answer; append audio and commit first"
            return _refused(text, "response_create_nothing_to_answer", cause)
        self.turns.ask()
        return [], [Do("answer", cause)]

    def _cancel(self, event: c.ResponseCancel) -> Result:
        """The response in hand, or one that was asked for and has not begun."""
        turns = self.turns
        known = {self._place(turn)[0] for turn in range(turns.done + 1, turns.asked + 1)}
        if not known or (event.response_id is not None and event.response_id not in known):
            text = "no such response is in progress"
            return _refused(text, "response_cancel_not_active", event.event_id)
        return [], [Do("cancel", event.event_id)]

    def _session(self) -> Out:
        extensions = msgspec.to_builtins(self.extensions)
        return s.session(self._kind, self.id, self._model, self.options, extensions)

    def _item(self, turn: int) -> str:
        return f"item_{self.name}_{self._num_sessions}_{turn}"

    def _place(self, turn: int) -> tuple[str, str]:
        """(response id, id of its item)."""
        item = self._item(turn)
        return item.replace("item_", "resp_"), f"{item}_answer"


def _refused(text: str, code: str, cause: str | None) -> Result:
    """An error event, and nothing to do."""
    return [s.error(text, code, cause)], []

"""One connection's protocol, without a socket. In: client events and session events. Out: server events, actions.

Pure bookkeeping of items, responses and what is in force; the server performs the actions and sends the events.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from streamer.core.chunker import MAX_RATE_HZ, MIN_RATE_HZ
from streamer.core.results import Description, TextDelta
from streamer.net import client_events as c
from streamer.net import server_events as s
from streamer.net.server_events import Event as Out
from streamer.stages.events import (
    Cleared,
    Event,
    LiveUpdate,
    SessionOptions,
    SpeechStarted,
    SpeechStopped,
    TurnCommitted,
    TurnDetection,
    TurnFailed,
)


@dataclass(frozen=True, slots=True)
class Feed:
    pcm: bytes


@dataclass(frozen=True, slots=True)
class Reopen:
    """Listen by other options from here on; what is not committed is dropped."""

    options: SessionOptions


@dataclass(frozen=True, slots=True)
class Do:
    """Call this method of the session: commit, clear, answer or cancel. `cause`: the client event's id."""

    name: str
    cause: str | None


Action = Feed | Reopen | Do
Result = tuple[list[Out], list[Action]]


class Conversation:
    """`opened`, then `client` and `heard` in the order in which things happen."""

    def __init__(
        self, session_id: str, model: str, is_transcription: bool, live_update_s: float | None = None
    ) -> None:
        self.id = session_id  # a secret: who knows it may resume
        self.options = SessionOptions(24_000, TurnDetection())  # as OpenAI's
        self.extensions = c.Extensions(live_update_s=None)
        self._model = model
        self._default_update_s = live_update_s  # where a client asks for events and does not say how often
        self._kind = "transcription" if is_transcription else "realtime"
        self._num_sessions = 0  # that came before the present one
        self._num_waiting = 0  # turns committed and not yet asked for
        self._last_item: str | None = None
        self._answering: str | None = None  # the response in hand
        self._text = ""

    @property
    def name(self) -> str:
        """Of the ids of items and events; not enough of `id` to resume."""
        return self.id[5:13]

    def opened(self) -> list[Out]:
        return [{"type": "session.created", "session": self._session()}]

    def client(self, event: c.ClientEvent) -> Result:
        """What a client event brings."""
        match event:
            case c.SessionUpdate(session=config):
                return self._update(config, event.event_id)
            case c.Append(audio=audio):
                return [], [Feed(audio)] if audio else []
            case c.Commit():
                return [], [Do("commit", event.event_id)]
            case c.Clear():
                return [], [Do("clear", event.event_id)]
            case c.ResponseCreate():
                return self._respond(event.event_id)
            case c.ResponseCancel():
                if self._answering is None:
                    return [s.error("no response is in progress", "response_cancel_not_active", event.event_id)], []
                return [], [Do("cancel", event.event_id)]
            case c.ItemCreate():
                return [s.error("items are made of audio only; append it", "unsupported", event.event_id)], []
            case _:
                text = f"{event.__struct_config__.tag} is not supported; items are not kept"
                return [s.error(text, "unsupported", event.event_id)], []

    def audio_of(self, message: str | bytes) -> bytes | None:
        """The PCM of a message that is nothing but audio, else None."""
        if isinstance(message, bytes):
            return message if self.extensions.binary else None
        try:
            event = c.decode(message)
        except c.BadEvent:
            return None
        return event.audio if isinstance(event, c.Append) else None

    def binary(self, pcm: bytes) -> Result:
        """A binary message: raw PCM16, where the client has asked for that."""
        if not self.extensions.binary:
            return [s.error("binary messages need session.streamer.binary", "binary_not_enabled", None)], []
        return [], [Feed(pcm)]

    def done(self, name: str) -> None:
        """The session did what a `Do` asked for."""
        if name == "commit":
            self._num_waiting += 1

    def reopened(self) -> None:
        """Another session goes on under this one's name; its turns are numbered from 0 again."""
        self._num_sessions += 1
        self._num_waiting = 0

    def nothing_to_commit(self, cause: str | None) -> list[Out]:
        text = "the input audio buffer is empty; append audio first"
        return [s.error(text, "input_audio_buffer_commit_empty", cause)]

    def heard(self, event: Event) -> list[Out]:
        """What a session event tells the client."""
        item = self._item(event.turn) if not isinstance(event, Description) else ""
        match event:
            case SpeechStarted():
                return [{"type": "input_audio_buffer.speech_started", "audio_start_ms": event.at_ms, "item_id": item}]
            case SpeechStopped():
                self._num_waiting += not self.options.answers_itself
                return [{"type": "input_audio_buffer.speech_stopped", "audio_end_ms": event.at_ms, "item_id": item}]
            case TurnCommitted():
                previous, self._last_item = self._last_item, item
                return s.committed(item, previous)
            case Cleared():
                return [{"type": "input_audio_buffer.cleared"}]
            case LiveUpdate():
                return [s.live_update(item, event)]
            case TextDelta():
                return self._delta(event, item)
            case TurnFailed():
                return self._failed(event, item)
        return self._described(event)

    def _update(self, config: c.SessionConfig, cause: str | None) -> Result:
        options, extensions = self.options, self.extensions
        if config.streamer is not c.UNSET:
            extensions = config.streamer
            seconds = extensions.live_update_s
            if seconds is c.UNSET:
                seconds = self._default_update_s if extensions.events else None
            extensions = msgspec.structs.replace(extensions, live_update_s=seconds)
            options = replace(options, live_update_s=seconds)
        heard = config.audio.input if config.audio is not c.UNSET else c.UNSET
        if heard is not c.UNSET and heard.format is not c.UNSET:
            options = replace(options, sample_rate_hz=heard.format.rate)
        if heard is not c.UNSET and heard.turn_detection is not c.UNSET:
            vad = heard.turn_detection
            found = None
            if vad is not None:
                found = TurnDetection(vad.threshold, vad.prefix_padding_ms, vad.silence_duration_ms)
            answers = self._kind == "transcription" or bool(vad and vad.create_response)
            options = replace(options, turn_detection=found, answers_itself=answers)
        wrong = _wrong(self._kind, config, options)
        if wrong is not None:
            return [s.error(wrong, "invalid_value", cause)], []
        actions: list[Action] = [] if options == self.options else [Reopen(options)]
        self.options, self.extensions = options, extensions
        return [{"type": "session.updated", "session": self._session()}], actions

    def _respond(self, cause: str | None) -> Result:
        if self._kind == "transcription":
            return [s.error("a transcription session answers by itself", "unsupported", cause)], []
        if self._num_waiting == 0:
            text = "there is no turn to answer; append audio and commit first"
            return [s.error(text, "response_create_nothing_to_answer", cause)], []
        self._num_waiting = 0
        return [], [] if self.options.answers_itself else [Do("answer", cause)]

    def _delta(self, event: TextDelta, item: str) -> list[Out]:
        out = self._begin(event.turn)
        self._text += event.text
        if event.text:
            if self._kind == "transcription":
                out.append(s.transcription_delta(item, event.text))
            else:
                out.append(s.text_delta(*self._place(event.turn), event.text))
        if self.extensions.events:
            out.append({"type": "streamer.delta", "item_id": item, "text": event.text, "ids": list(event.ids),
                        "verified": event.verified, "at_ms": round(event.at_ms, 3)})  # fmt: skip
        return out

    def _described(self, found: Description) -> list[Out]:
        item, status = self._item(found.turn), "cancelled" if found.stop_reason == "cancelled" else "completed"
        out = self._begin(found.turn)
        details = {"type": "cancelled", "reason": "client_cancelled"} if status == "cancelled" else None
        if self._kind == "transcription":
            out.append(s.transcription_done(item, found.text, found.audio_s))
        else:
            out += s.response_ends(*self._place(found.turn), found.text, status, details, found.n_tokens)
        self._answering, self._text = None, ""
        return [*out, s.description(item, found)] if self.extensions.events else out

    def _failed(self, event: TurnFailed, item: str) -> list[Out]:
        out = [s.error(event.message, "turn_failed", None, "server_error")]
        if self._kind == "transcription":
            out.append(s.transcription_done(item, self._text, 0.0))
        else:
            out = [*self._begin(event.turn), *out]
            details = {"type": "failed", "error": {"type": "server_error", "code": "turn_failed"}}
            out += s.response_ends(*self._place(event.turn), self._text, "failed", details, 0)
        self._answering, self._text = None, ""
        return out

    def _begin(self, turn: int) -> list[Out]:
        """The response's first events, once."""
        if self._answering is not None or self._kind == "transcription":
            return []
        self._answering, self._text = self._place(turn)[0], ""
        return s.response_begins(*self._place(turn))

    def _session(self) -> Out:
        extensions = msgspec.to_builtins(self.extensions)
        return s.session(self._kind, self.id, self._model, self.options, extensions)

    def _item(self, turn: int) -> str:
        return f"item_{self.name}_{self._num_sessions}_{turn}"

    def _place(self, turn: int) -> tuple[str, str]:
        """(response id, id of its item)."""
        item = self._item(turn)
        return item.replace("item_", "resp_"), f"{item}_answer"


def _wrong(kind: str, config: c.SessionConfig, options: SessionOptions) -> str | None:
    """Why a session.update cannot be taken, or None."""
    if config.type is not c.UNSET and config.type != kind:
        return f"this is a {kind} session; connect anew for another kind"
    if not max(8_000, MIN_RATE_HZ) <= options.sample_rate_hz <= min(48_000, MAX_RATE_HZ):
        return f"audio rate {options.sample_rate_hz} is outside 8000..48000 Hz"
    found = options.turn_detection
    if found is not None and not (
        0 <= found.threshold <= 1 and 0 <= found.prefix_padding_ms <= 5_000 and 0 < found.silence_ms <= 10_000
    ):
        return "turn_detection needs threshold 0..1, prefix_padding_ms 0..5000, silence_duration_ms 1..10000"
    if options.live_update_s is not None and not 0.5 <= options.live_update_s <= 3_600:
        return "live_update_s must be 0.5..3600"
    return None

"""The answer that is being written. In: a turn's text and its end. Out: server events.

`place` is the response's id and that of its item.
"""

from __future__ import annotations

from streamer.core.description import Description, TextDelta
from streamer.net.realtime import server_events as s
from streamer.net.realtime.server_events import Event as Out
from streamer.stages.events import TurnFailed


class AnswerInHand:
    """Of one session; turns are answered one after another."""

    def __init__(self, is_transcription: bool) -> None:
        self._is_transcription = is_transcription
        self._is_begun = False
        self._text = ""

    def delta(
        self, event: TextDelta, item: str, place: tuple[str, str], is_told: bool
    ) -> list[Out]:
        """is_told: the client wants the ids, too."""
        out = self._begin(place)
        self._text += event.text
        if event.text:
            if self._is_transcription:
                out.append(s.transcription_delta(item, event.text))
            else:
                out.append(s.text_delta(*place, event.text))
        if is_told:
            out.append(s.delta(item, event))
        return out

    def described(self, found: Description, item: str, place: tuple[str, str]) -> list[Out]:
        """The turn is over."""
        status = "completed"
        details: Out | None = None
        if found.stop_reason == "cancelled":
            status = "cancelled"
            details = {"type": "cancelled", "reason": "client_cancelled"}
        out = self._begin(place)
        if self._is_transcription:
            out.append(s.transcription_done(item, found.text, found.audio_s))
        else:
            out += s.response_ends(*place, found.text, status, details, found.n_tokens)
        self._is_begun = False
        return out

    def failed(self, event: TurnFailed, item: str, place: tuple[str, str]) -> list[Out]:
        """The turn ends without its sentence."""
        out = [s.error(event.message, "turn_failed", None, "server_error")]
        if self._is_transcription:
            out.append(s.transcription_failed(item, event.message))
        else:
            out = [*self._begin(place), *out]
            details = {"type": "failed", "error": {"type": "server_error", "code": "turn_failed"}}
            out += s.response_ends(*place, self._text, "failed", details, 0)
        self._is_begun = False
        return out

    def _begin(self, place: tuple[str, str]) -> list[Out]:
        """The response's first events, once."""
        if self._is_begun:
            return []
        self._is_begun = True
        self._text = ""
        if self._is_transcription:
            return []
        return s.response_begins(*place)

"""What a session.update changes. In: its fields, what is in force. Out: what is in force then."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from streamer.core.attributes import chosen
from streamer.core.audio import g711
from streamer.core.audio.g711 import Encoding
from streamer.core.coach.coach import Coach
from streamer.net.realtime import client_events as c
from streamer.stages.events import SessionOptions, TurnDetection

# of microphones
MIN_RATE_HZ = 8_000
MAX_RATE_HZ = 48_000
MIN_UPDATE_S = 0.5
PCM_RATE_HZ = 24_000  # where the client says no other
ENCODINGS: dict[str, Encoding] = {
    "audio/pcm": "pcm16",
    "pcm16": "pcm16",
    "audio/pcmu": "pcmu",
    "g711_ulaw": "pcmu",
    "audio/pcma": "pcma",
    "g711_alaw": "pcma",
}


@dataclass(frozen=True)
class SettingsOf:
    """Of one session, which is of one kind for life. default_update_s: for a client that asks for
    events and does not say how often. may_say: the attributes that it may ask for.
    coach: for a client that asks for one, in place of the defaults."""

    _kind: str
    _default_update_s: float | None
    _may_say: tuple[str, ...] = ()
    _coach: Coach | None = None

    def of(
        self, config: c.SessionConfig, options: SessionOptions, extensions: c.Extensions
    ) -> tuple[SessionOptions, c.Extensions]:
        """What is in force after an update. Raises ValueError with one line."""
        if config.type is not c.UNSET and config.type != self._kind:
            raise ValueError(f"this is a {self._kind} session; connect anew for another kind")
        if config.streamer is not c.UNSET:
            extensions = config.streamer
            seconds = extensions.live_update_s
            if seconds is c.UNSET:
                seconds = self._default_update_s if extensions.events else None
            if seconds is not None and not seconds >= MIN_UPDATE_S:
                raise ValueError(f"live_update_s is {seconds}; it may be {MIN_UPDATE_S} to 3600")
            options = replace(
                options,
                live_update_s=seconds,
                measures=extensions.measures,
                said=self._said(extensions),
                coach=self._coach_of(extensions),
            )
            # the coach's options are kept as they are in force, not as the client wrote them
            extensions = msgspec.structs.replace(
                extensions, live_update_s=seconds, coach=options.coach is not None
            )
        heard = config.audio.input if config.audio is not c.UNSET else c.UNSET
        if config.input_audio_format is not c.UNSET:
            options = _in_format(options, config.input_audio_format, c.UNSET)
        if heard is not c.UNSET and heard.format is not c.UNSET:
            options = _in_format(options, heard.format.type, heard.format.rate)
        if heard is not c.UNSET and heard.turn_detection is not c.UNSET:
            vad = heard.turn_detection
            found = None
            if vad is not None:
                found = TurnDetection(vad.threshold, vad.prefix_padding_ms, vad.silence_duration_ms)
            answers = self._kind == "transcription" or bool(vad and vad.create_response)
            options = replace(options, turn_detection=found, answers_itself=answers)
        return options, extensions

    def _coach_of(self, extensions: c.Extensions) -> Coach | None:
        """Raises ValueError."""
        asked = extensions.coach
        if isinstance(asked, bool):
            return (self._coach or Coach()) if asked else None
        return Coach.of(asked, self._coach)

    def _said(self, extensions: c.Extensions) -> str:
        """As SessionOptions has it. Raises ValueError."""
        names = extensions.attributes or None
        if names is None and extensions.profile in (c.UNSET, "full"):
            return ""
        asked = None if names is None else ",".join(names)
        return chosen(asked, extensions.profile or "full", self._may_say)


def _in_format(options: SessionOptions, name: str, rate: int | c.UnsetType) -> SessionOptions:
    """For audio of this format, and rate if it is told. Raises ValueError."""
    encoding = ENCODINGS[name]
    if encoding != "pcm16":
        if rate not in (c.UNSET, g711.RATE_HZ):
            raise ValueError(f"audio rate {rate} is none of {name}; it is {g711.RATE_HZ} Hz")
        return replace(options, sample_rate_hz=g711.RATE_HZ, encoding=encoding)
    found = PCM_RATE_HZ if rate is c.UNSET else rate
    if not MIN_RATE_HZ <= found <= MAX_RATE_HZ:
        raise ValueError(f"audio rate {found} is outside {MIN_RATE_HZ}..{MAX_RATE_HZ} Hz")
    return replace(options, sample_rate_hz=found, encoding=encoding)

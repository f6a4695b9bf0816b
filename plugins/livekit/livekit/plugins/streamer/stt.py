"""An STT that wraps another one and adds `metadata["voice_profile"]` to its final transcripts.

Frames go to the inner STT at once; a copy goes to a streamer session. A final transcript waits for
its profile for `deadline_s` at most, and goes on without one after that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable
from contextlib import suppress
from functools import partial
from typing import Literal

import numpy as np
from livekit.agents import stt
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, NOT_GIVEN, APIConnectOptions
from pydantic import BaseModel

from streamer import BackgroundSession, Config, Description, voice_line, voice_profile

logger = logging.getLogger("livekit.plugins.streamer")
DEADLINE_S = 0.5


class VoiceContext(BaseModel):
    """How the user spoke last. LiveKit adds `to_instructions()` to the prompt."""

    line: str
    profile: dict[str, dict]

    def to_instructions(self) -> str:
        return self.line


class STT(stt.STT):
    def __init__(
        self,
        *,
        stt: stt.STT,
        deadline_s: float = DEADLINE_S,
        language: Literal["en", "zh"] | None = None,
        **options: object,
    ) -> None:
        """stt: the one that transcribes; it must stream (wrap another one in
        livekit.agents.stt.StreamAdapter). deadline_s: how long a final transcript may wait for its
        profile. language: of the profile and the line, which the model must speak; None: English,
        with any model. options: those of streamer.Describer.open, such as mode="edge".

        Raises ValueError for an inner STT that does not stream and for a deadline or a language of
        another kind, streamer.ConfigError for options.
        """
        if not stt.capabilities.streaming:
            raise ValueError("the inner STT does not stream; wrap it in StreamAdapter(stt=, vad=)")
        if not isinstance(deadline_s, int | float) or not deadline_s >= 0:
            raise ValueError(f"deadline_s is {deadline_s!r}; give seconds, 0 or more")
        if language not in (None, "en", "zh"):
            raise ValueError(f"language is {language!r}; give en or zh")
        super().__init__(capabilities=stt.capabilities)
        self._recognize_metrics_needed = False  # the inner one's are handed on
        self._inner, self._deadline_s = stt, deadline_s
        self._config = Config.of(None, {**options, "language": language})
        self._hand_on_metrics = partial(self.emit, "metrics_collected")
        stt.on("metrics_collected", self._hand_on_metrics)
        stt.on("error", self._hand_on_error)

    @property
    def model(self) -> str:
        return self._inner.model

    @property
    def provider(self) -> str:
        return self._inner.provider

    def _hand_on_error(self, error: stt.STTError) -> None:
        """One that ends the inner stream ends ours, which tells it then."""
        if error.recoverable:
            self.emit("error", error)

    def _update_session_keyterms(self, keyterms: list[str]) -> None:
        self._inner._update_session_keyterms(keyterms)

    def _push_conversation_item(self, item: object) -> None:
        self._inner._push_conversation_item(item)

    async def _recognize_impl(self, buffer, *, language=NOT_GIVEN, conn_options):
        """The caller, `recognize`, tries again by itself."""
        once = APIConnectOptions(max_retry=0, timeout=conn_options.timeout)
        return await self._inner.recognize(buffer, language=language, conn_options=once)

    def stream(
        self, *, language=NOT_GIVEN, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> SpeechStream:
        inner = self._inner.stream(language=language, conn_options=conn_options)
        return SpeechStream(self, inner, conn_options)

    def prewarm(self) -> None:
        self._inner.prewarm()

    async def aclose(self) -> None:
        self._inner.off("metrics_collected", self._hand_on_metrics)
        self._inner.off("error", self._hand_on_error)
        await self._inner.aclose()


class SpeechStream(stt.RecognizeStream):
    """Events of the inner stream; final transcripts carry a voice profile."""

    def __init__(self, own: STT, inner: stt.RecognizeStream, conn_options: APIConnectOptions):
        # the inner stream tries again by itself
        once = APIConnectOptions(max_retry=0, timeout=conn_options.timeout)
        super().__init__(stt=own, conn_options=once)
        self._inner, self._deadline_s = inner, own._deadline_s
        self._voice = BackgroundSession(own._config)
        self._language = "zh" if own._config.language == "zh" else "en"

    @property
    def start_time_offset(self) -> float:
        return self._inner.start_time_offset

    @start_time_offset.setter
    def start_time_offset(self, value: float) -> None:
        self._inner.start_time_offset = value

    @property
    def start_time(self) -> float:
        return self._inner.start_time

    async def _metrics_monitor_task(self, event_aiter: AsyncIterable[stt.SpeechEvent]) -> None:
        """The inner stream tells its usage; told here again it would count twice."""
        async for _ in event_aiter:
            pass

    async def _run(self) -> None:
        """Until the input ends. Errors of the inner stream are its own: they end this one."""
        tasks = [asyncio.create_task(each()) for each in (self._listen, self._pump)]
        try:
            async for event in self._inner:
                await self._emit(event)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._inner.aclose()

    async def _listen(self) -> None:
        """A model that fails is logged once; transcripts go on without profiles."""
        try:
            await self._voice.run()
        except Exception as error:
            logger.error("streamer failed, no voice profiles from here on: %s", error)

    async def _pump(self) -> None:
        """Frames to the inner stream at once, a copy to the session."""
        async for item in self._input_ch:
            if isinstance(item, self._FlushSentinel):
                self._inner.flush()
                continue
            self._inner.push_frame(item)
            samples = np.frombuffer(item.data, np.int16).reshape(-1, item.num_channels)
            self._voice.feed(samples.mean(1).astype(np.int16).tobytes(), item.sample_rate)
        self._inner.end_input()

    async def _emit(self, event: stt.SpeechEvent) -> None:
        kinds = stt.SpeechEventType
        if event.type in (kinds.START_OF_SPEECH, kinds.INTERIM_TRANSCRIPT):
            self._voice.begin()
        if event.type == kinds.FINAL_TRANSCRIPT and event.alternatives:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._deadline_s):
                    self._add_profile(event.alternatives[0], await self._voice.end())
        self._event_ch.send_nowait(event)

    def _add_profile(self, data: stt.SpeechData, found: Description | None) -> None:
        if found is None or not (profile := voice_profile(found, self._language)):
            return
        line = voice_line(found, self._language)
        data.metadata = {**(data.metadata or {}), "voice_profile": profile, "voice_line": line}
        self.context = VoiceContext(line=line, profile=profile)

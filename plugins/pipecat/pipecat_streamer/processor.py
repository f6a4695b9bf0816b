"""A frame processor that listens beside the pipeline and pushes a VoiceProfileFrame after each
utterance.

It passes every frame on at once. A description that is not there when the user speaks again is
dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from loguru import logger
from pipecat.frames.frames import (
    CancelFrame,
    DataFrame,
    EndFrame,
    Frame,
    InputAudioRawFrame,
    LLMMessagesAppendFrame,
    StartFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from streamer import BackgroundSession, Config, Description, voice_line, voice_profile


@dataclass
class VoiceProfileFrame(DataFrame):
    """How the user spoke: streamer's sentence, a line for a prompt, and
    {attribute: {"label", "level", "confidence", "value", "error", "unit"}}."""

    text: str = ""
    line: str = ""
    profile: dict[str, dict[str, Any]] = field(default_factory=dict)


class VoiceProfileProcessor(FrameProcessor):
    """Place it after `transport.input()`; the transport, or a VADProcessor before this one, reports
    voice activity."""

    def __init__(
        self,
        *,
        tells_llm: bool = False,
        language: Literal["en", "zh"] | None = None,
        options: dict[str, Any] | None = None,
        **others: Any,
    ) -> None:
        """tells_llm: append the line to the LLM's context. language: of the text, the profile and
        the line, which the model must speak; None: the model's first, with an English line.
        options: those of streamer.Describer.open, such as {"mode": "edge"}. others: those of a
        FrameProcessor, such as name. Raises streamer.ConfigError, and ValueError for another
        language."""
        super().__init__(**others)
        if language not in (None, "en", "zh"):
            raise ValueError(f"language is {language!r}; give en or zh")
        self._tells_llm = tells_llm
        self._config = Config.of(
            None, {**(options or {}), **({"language": language} if language else {})}
        )
        self._language = "zh" if self._config.language == "zh" else "en"
        self._voice = BackgroundSession(self._config)
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = 0

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)
        match frame:
            case InputAudioRawFrame():
                samples = np.frombuffer(frame.audio, np.int16).reshape(-1, frame.num_channels)
                self._voice.feed(samples.mean(1).astype(np.int16).tobytes(), frame.sample_rate)
            case StartFrame():
                await self._stop()  # of an earlier pipeline
                self._voice = BackgroundSession(self._config)
                self._start(self._listen())
            case VADUserStartedSpeakingFrame():
                self._turn += 1
                self._voice.begin()
            case VADUserStoppedSpeakingFrame():
                self._start(self._describe(self._voice.end(), self._turn))
            case EndFrame() | CancelFrame():
                await self._stop()

    async def cleanup(self) -> None:
        await super().cleanup()
        await self._stop()

    async def _listen(self) -> None:
        """A model that fails is logged once; the pipeline goes on without profiles."""
        try:
            await self._voice.run()
        except Exception as error:
            logger.error(f"streamer failed, no voice profiles from here on: {error}")

    async def _describe(self, ended: Coroutine[Any, Any, Description | None], turn: int) -> None:
        found = await ended
        if (
            found is not None
            and turn == self._turn
            and (profile := voice_profile(found, self._language))
        ):
            await self._push(found, profile)

    async def _push(self, found: Description, profile: dict[str, dict[str, Any]]) -> None:
        line = voice_line(found, self._language)
        await self.push_frame(VoiceProfileFrame(text=found.text, line=line, profile=profile))
        if self._tells_llm:
            message = {"role": "developer", "content": line}
            await self.push_frame(LLMMessagesAppendFrame(messages=[message], run_llm=False))

    def _start(self, work: Any) -> None:
        task = self.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop(self) -> None:
        for task in list(self._tasks):
            await self.cancel_task(task)

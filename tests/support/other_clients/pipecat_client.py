"""pipecat's OpenAIRealtimeLLMService: initial messages, then a turn by voice activity."""

import asyncio
import json
import sys
from pathlib import Path

from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    InputAudioRawFrame,
    LLMFullResponseEndFrame,
    LLMRunFrame,
    LLMTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService


class Sink(FrameProcessor):
    def __init__(self):
        super().__init__()
        self.text, self.errors, self.ended = "", [], asyncio.Queue()

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        match frame:
            case LLMTextFrame():
                self.text += frame.text
            case ErrorFrame():
                self.errors.append(frame.error)
            case LLMFullResponseEndFrame():
                self.ended.put_nowait(self.text)
        await self.push_frame(frame, direction)


async def main(url, recording):
    heard = events.AudioInput(turn_detection=events.TurnDetection())
    properties = events.SessionProperties(
        output_modalities=["text"], audio=events.AudioConfiguration(input=heard)
    )
    settings = OpenAIRealtimeLLMService.Settings(session_properties=properties)
    llm = OpenAIRealtimeLLMService(api_key="none", base_url=url, settings=settings)
    pair = LLMContextAggregatorPair(LLMContext([{"role": "user", "content": "Say hello"}]))
    sink = Sink()
    parts = [pair.user(), llm, sink, pair.assistant()]
    task = PipelineTask(Pipeline(parts), params=PipelineParams(audio_in_sample_rate=24_000))
    pcm = Path(recording).read_bytes()[44:]

    async def speak():
        await task.queue_frames([LLMRunFrame()])
        empty = await asyncio.wait_for(sink.ended.get(), 60)
        for at in range(0, len(pcm), 4_800):
            await task.queue_frames([InputAudioRawFrame(pcm[at : at + 4_800], 24_000, 1)])
        text = await asyncio.wait_for(sink.ended.get(), 60)
        await task.queue_frames([EndFrame()])
        return {"texts": [text], "empty": [empty], "errors": sink.errors}

    _, found = await asyncio.gather(PipelineRunner(handle_sigint=False).run(task), speak())
    print(json.dumps(found))


asyncio.run(main(*sys.argv[1:]))

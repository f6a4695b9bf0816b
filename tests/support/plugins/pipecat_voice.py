"""The pipecat processor in a pipeline, with voice activity as given, as JSON."""

import asyncio
import json
import sys

import numpy as np
import soundfile
from pipecat.frames.frames import (
    EndFrame,
    InputAudioRawFrame,
    LLMMessagesAppendFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.workers.runner import WorkerRunner
from pipecat_streamer import VoiceProfileFrame, VoiceProfileProcessor


class Sink(FrameProcessor):
    def __init__(self):
        super().__init__()
        self.profiles, self.messages, self.num_audio = asyncio.Queue(), [], 0

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        match frame:
            case InputAudioRawFrame():
                self.num_audio += 1
            case VoiceProfileFrame():
                self.profiles.put_nowait(frame)
            case LLMMessagesAppendFrame():
                self.messages += frame.messages
        await self.push_frame(frame, direction)


async def main(recording):
    sink = Sink()
    voice = VoiceProfileProcessor(tells_llm=True, language="zh", options={"mode": "edge"})
    worker = PipelineWorker(Pipeline([voice, sink]))
    samples, rate = soundfile.read(recording, dtype="int16")
    samples = np.concatenate([np.zeros(rate, np.int16), samples])
    step = rate // 50

    async def speak():
        found = []
        for _ in range(2):
            for at in range(0, len(samples), step):
                audio = samples[at : at + step].tobytes()
                await worker.queue_frame(InputAudioRawFrame(audio, rate, 1))
                if at == (rate + step) // step * step:
                    await worker.queue_frame(VADUserStartedSpeakingFrame())
                await asyncio.sleep(0.004)  # five times as fast as speech
            await worker.queue_frame(VADUserStoppedSpeakingFrame())
            found.append(await asyncio.wait_for(sink.profiles.get(), 60))
        await worker.queue_frame(EndFrame())
        return found

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    _, found = await asyncio.gather(runner.run(), speak())
    told = {f"{n}s": [getattr(frame, n) for frame in found] for n in ("text", "line", "profile")}
    num_audio = [sink.num_audio, 2 * -(-len(samples) // step)]
    print(json.dumps(told | {"messages": sink.messages, "num_audio": num_audio}))


asyncio.run(main(*sys.argv[1:]))

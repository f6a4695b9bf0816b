"""Prints how you speak, from the microphone. It needs `pipecat-ai[local,silero]`."""

import asyncio

from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineTask
from pipecat.processors.audio.vad_processor import VADProcessor
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.transports.local.audio import LocalAudioTransport, LocalAudioTransportParams
from pipecat_streamer import VoiceProfileFrame, VoiceProfileProcessor


class Printer(FrameProcessor):
    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, VoiceProfileFrame):
            print(frame.text, frame.line, sep="\n")
        await self.push_frame(frame, direction)


async def main():
    transport = LocalAudioTransport(LocalAudioTransportParams(audio_in_enabled=True))
    vad = VADProcessor(vad_analyzer=SileroVADAnalyzer())
    parts = [transport.input(), vad, VoiceProfileProcessor(), Printer()]
    await PipelineRunner().run(PipelineTask(Pipeline(parts)))


if __name__ == "__main__":
    asyncio.run(main())

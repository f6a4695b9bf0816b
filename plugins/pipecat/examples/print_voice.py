"""Prints how somebody speaks: in a recording, 16 kHz mono, or else at the microphone, which needs
`pipecat-ai[local]`."""

import asyncio
import sys

import numpy as np
import soundfile
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames.frames import EndFrame, InputAudioRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.audio.vad_processor import VADProcessor
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.workers.runner import WorkerRunner
from pipecat_streamer import VoiceProfileFrame, VoiceProfileProcessor


class Printer(FrameProcessor):
    def __init__(self):
        super().__init__()
        self.printed = asyncio.Event()

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, VoiceProfileFrame):
            print(frame.text, frame.line, sep="\n", flush=True)
            self.printed.set()
        await self.push_frame(frame, direction)


def microphone():
    from pipecat.transports.local.audio import LocalAudioTransport, LocalAudioTransportParams

    return LocalAudioTransport(LocalAudioTransportParams(audio_in_enabled=True)).input()


async def play(worker, recording, printed):
    """As a microphone brings it; the end comes when the first utterance is printed."""
    samples, rate = soundfile.read(recording, dtype="int16")
    samples = np.concatenate([samples, np.zeros(2 * rate, np.int16)])
    for at in range(0, len(samples), rate // 50):
        piece = samples[at : at + rate // 50].tobytes()
        await worker.queue_frame(InputAudioRawFrame(piece, rate, 1))
        await asyncio.sleep(0.02)
    await asyncio.wait_for(printed.wait(), 60)
    await worker.queue_frame(EndFrame())


async def main(recording=None):
    printer = Printer()
    heard = [VADProcessor(vad_analyzer=SileroVADAnalyzer()), VoiceProfileProcessor(), printer]
    worker = PipelineWorker(Pipeline(heard if recording else [microphone(), *heard]))
    runner = WorkerRunner()
    await runner.add_workers(worker)
    work = [runner.run()]
    if recording:
        work.append(play(worker, recording, printer.printed))
    await asyncio.gather(*work)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

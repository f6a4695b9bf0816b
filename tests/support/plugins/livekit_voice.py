"""The LiveKit plug-in around an STT that invents its words: two utterances of a recording. In: a
recording. Out: a JSON object."""

import asyncio
import json
import sys

import numpy as np
import soundfile
from livekit import rtc
from livekit.agents import stt
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS
from livekit.plugins import streamer

Kind = stt.SpeechEventType


class Words(stt.STT):
    def __init__(self):
        capabilities = stt.STTCapabilities(streaming=True, interim_results=False)
        super().__init__(capabilities=capabilities)

    async def _recognize_impl(self, *_, **__):
        raise NotImplementedError

    def stream(self, *, language=None, conn_options=DEFAULT_API_CONNECT_OPTIONS):
        return WordStream(stt=self, conn_options=conn_options)


class WordStream(stt.RecognizeStream):
    """Speech starts at the first loud frame and ends at a flush."""

    async def _run(self):
        speaks = False
        async for item in self._input_ch:
            if isinstance(item, self._FlushSentinel):
                if speaks:
                    data = stt.SpeechData(language="zh", text="words", metadata={"own": 1})
                    self._event_ch.send_nowait(
                        stt.SpeechEvent(Kind.FINAL_TRANSCRIPT, alternatives=[data])
                    )
                    self._event_ch.send_nowait(stt.SpeechEvent(Kind.END_OF_SPEECH))
                speaks = False
            elif not speaks and np.abs(np.frombuffer(item.data, np.int16)).max() > 1_000:
                speaks = True
                self._event_ch.send_nowait(stt.SpeechEvent(Kind.START_OF_SPEECH))


async def main(recording):
    samples, rate = soundfile.read(recording, dtype="int16")
    pause = np.zeros(rate, np.int16)
    stream = streamer.STT(stt=Words(), deadline_s=60, mode="edge").stream()

    async def speak(samples):
        for at in range(0, len(samples) - rate // 100, rate // 100):
            data = samples[at : at + rate // 100].tobytes()
            stream.push_frame(rtc.AudioFrame(data, rate, 1, rate // 100))
            await asyncio.sleep(0.002)  # five times as fast as speech
        stream.flush()

    async def read():
        return [event async for event in stream]

    reading = asyncio.create_task(read())
    for _ in range(2):
        await speak(np.concatenate([pause, samples]))
        await asyncio.sleep(1)
    stream.end_input()
    events = await asyncio.wait_for(reading, 120)
    finals = [e.alternatives[0] for e in events if e.type == Kind.FINAL_TRANSCRIPT]
    found = {
        "kinds": [event.type.value for event in events],
        "texts": [data.text for data in finals],
        "metadata": [data.metadata for data in finals],
        "instructions": stream.context.to_instructions(),
    }
    print(json.dumps(found))


asyncio.run(main(*sys.argv[1:]))

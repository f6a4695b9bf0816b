"""The LiveKit plug-in around an invented STT, and failures, as JSON."""

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
        capabilities = stt.STTCapabilities(streaming=True, interim_results=False, keyterms=True)
        super().__init__(capabilities=capabilities)
        self.keyterms = None

    def _update_session_keyterms(self, keyterms):
        self.keyterms = keyterms

    _recognize_impl = None  # abstract, and never called: it streams

    def stream(self, *, language=None, conn_options=DEFAULT_API_CONNECT_OPTIONS):
        return WordStream(stt=self, conn_options=conn_options)


class WordStream(stt.RecognizeStream):
    """Speech starts at the first loud frame and ends at a flush."""

    async def _run(self):
        speaks, send = False, self._event_ch.send_nowait
        async for item in self._input_ch:
            is_flush = isinstance(item, self._FlushSentinel)
            if is_flush and speaks:
                data = stt.SpeechData(language="zh", text="words", metadata={"own": 1})
                send(stt.SpeechEvent(Kind.FINAL_TRANSCRIPT, alternatives=[data]))
                send(stt.SpeechEvent(Kind.END_OF_SPEECH))
                used = stt.RecognitionUsage(audio_duration=1)
                send(stt.SpeechEvent(Kind.RECOGNITION_USAGE, recognition_usage=used))
                speaks = False
            elif not (
                is_flush or speaks or np.abs(np.frombuffer(item.data, np.int16)).max() < 1_000
            ):
                speaks = True
                send(stt.SpeechEvent(Kind.START_OF_SPEECH))


async def speak(stream, samples, rate):
    for at in range(0, len(samples) - rate // 100, rate // 100):
        data = samples[at : at + rate // 100].tobytes()
        stream.push_frame(rtc.AudioFrame(data, rate, 1, rate // 100))
        await asyncio.sleep(0.002)  # five times as fast as speech
    stream.flush()


async def read(stream):
    return [event async for event in stream]


async def failing_model(samples, rate):
    """Texts and metadata without a model."""
    stream = streamer.STT(stt=Words(), edge="/nowhere", mode="edge").stream()
    await speak(stream, samples[: 2 * rate], rate)
    stream.end_input()
    events = await asyncio.wait_for(read(stream), 60)
    finals = [e.alternatives[0] for e in events if e.type == Kind.FINAL_TRANSCRIPT]
    return [(data.text, data.metadata) for data in finals]


async def main(recording):
    samples, rate = soundfile.read(recording, dtype="int16")
    pause = np.zeros(rate, np.int16)
    inner, metrics = Words(), []
    own = streamer.STT(stt=inner, deadline_s=60, mode="edge")
    own.on("metrics_collected", metrics.append)
    own._update_session_keyterms(["term"])
    stream = own.stream()
    stream.start_time_offset = 7.0
    reading = asyncio.create_task(read(stream))
    for _ in range(2):
        await speak(stream, np.concatenate([pause, samples]), rate)
        await asyncio.sleep(1)
    stream.end_input()
    events = await asyncio.wait_for(reading, 120)
    finals = [e.alternatives[0] for e in events if e.type == Kind.FINAL_TRANSCRIPT]
    found = {
        "kinds": [event.type.value for event in events],
        "texts": [data.text for data in finals],
        "metadata": [data.metadata for data in finals],
        "instructions": stream.context.to_instructions(),
        "num_metrics": len(metrics),
        "inner": [inner.keyterms, int(stream._inner.start_time_offset)],
        "failing_model": await failing_model(samples, rate),
    }
    print(json.dumps(found))


asyncio.run(main(*sys.argv[1:]))

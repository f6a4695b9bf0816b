"""An agent that hears how the user speaks, in its own `stt_node`: no wrapper around the STT."""

import asyncio
from contextlib import suppress

from livekit.agents import Agent, stt

from streamer import BackgroundSession, voice_line


class Listener(Agent):
    deadline_s = 0.5  # the longest wait of a final transcript

    async def stt_node(self, audio, model_settings):
        voice = BackgroundSession()
        running = asyncio.create_task(voice.run())

        async def heard():
            async for frame in audio:
                voice.feed(bytes(frame.data), frame.sample_rate)
                yield frame

        try:
            async for event in Agent.default.stt_node(self, heard(), model_settings):
                if event.type == stt.SpeechEventType.START_OF_SPEECH:
                    voice.begin()
                if event.type == stt.SpeechEventType.FINAL_TRANSCRIPT:
                    with suppress(TimeoutError):
                        if found := await asyncio.wait_for(voice.end(), self.deadline_s):
                            event.alternatives[0].metadata = {"voice_line": voice_line(found)}
                yield event
        finally:
            running.cancel()
            await asyncio.wait([running])

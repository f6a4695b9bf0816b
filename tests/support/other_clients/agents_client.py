"""openai-agents' realtime session: a turn by voice activity, as a JSON object."""

import asyncio
import json
import sys
from pathlib import Path

from agents.realtime import RealtimeAgent, RealtimeRunner


async def main(url, recording):
    settings = {"modalities": ["text"], "turn_detection": {"type": "semantic_vad"}}
    agent = RealtimeAgent(name="a", instructions="be kind")
    runner = RealtimeRunner(agent, config={"model_settings": settings})
    pcm = Path(recording).read_bytes()[44:]
    errors, text = [], ""
    async with await runner.run(model_config={"url": url, "api_key": "none"}) as session:
        for at in range(0, len(pcm), 4_800):
            await session.send_audio(pcm[at : at + 4_800])
        async for event in session:
            if event.type == "error":
                errors.append(str(event.error))
            if event.type == "history_updated":
                for item in event.history:
                    if getattr(item, "role", "") == "assistant" and item.content:
                        text = item.content[0].text or text
            if event.type == "agent_end":
                break
    print(json.dumps({"texts": [text], "empty": [], "errors": errors}))


asyncio.run(main(*sys.argv[1:]))

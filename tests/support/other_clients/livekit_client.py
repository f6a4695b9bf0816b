"""LiveKit's RealtimeModel: two turns, one with nothing to answer, an interruption."""

import asyncio
import json
import sys
from pathlib import Path

from livekit import rtc
from livekit.plugins import openai


async def text_of(session):
    event = await asyncio.wait_for(session.generate_reply(), 60)
    return [
        "".join([piece async for piece in message.text_stream])
        async for message in event.message_stream
    ]


async def main(url, recording):
    model = openai.realtime.RealtimeModel(
        base_url=url, api_key="none", model="streamer", modalities=["text"], turn_detection=None
    )
    session = model.session()
    chain, errors = [], []
    session.on("remote_item_added", lambda e: chain.append((e.previous_item_id, e.item.id)))
    session.on("error", lambda e: errors.append(str(e.error)))
    pcm = Path(recording).read_bytes()[44:]
    texts = []
    for _ in range(2):
        for at in range(0, len(pcm), 4_800):
            piece = pcm[at : at + 4_800]
            session.push_audio(rtc.AudioFrame(piece, 24_000, 1, len(piece) // 2))
        session.commit_audio()
        texts += await text_of(session)
    session.interrupt()
    empty = await text_of(session)
    await session.aclose()
    print(json.dumps({"texts": texts, "empty": empty, "chain": chain, "errors": errors}))


asyncio.run(main(sys.argv[1].replace("ws", "http", 1).removesuffix("/realtime"), sys.argv[2]))

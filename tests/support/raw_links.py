"""A link to a verifier, message by message."""

import anyio
from patience import PATIENCE_S

from streamer.core.link import wire
from streamer.core.rules.settings import Rules
from streamer.model.checkpoint.card import read_card
from streamer.model.thinker import EMBEDDED

PHRASES = read_card(EMBEDDED / "cloud").phrases


def opening(channel=0, session=b"s" * 16, epoch=1, **changed):
    rules = vars(Rules()) | {"phrases": PHRASES}
    fields = {
        "version": wire.VERSION,
        "model": "",
        "tokenizer": "x",
        "language": "zh",
        "rules": rules,
        "sampling": (0.0, 1.0, 0),
    }
    return wire.Open(channel, session, epoch, **(fields | changed))


async def say(ws, *messages):
    for message in messages:
        await ws.send(wire.encode(message))


async def hear(ws):
    with anyio.fail_after(PATIENCE_S):
        return wire.decode_down(await ws.recv())

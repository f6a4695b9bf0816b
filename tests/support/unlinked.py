"""An edge's turn without a socket."""

import asyncio
from types import SimpleNamespace

import toy_parts

from streamer.core.audio.turn import Heard
from streamer.core.rules.settings import Rules, Sampling
from streamer.net.link.target import DecodingTerms, RemoteTarget

HEARS = {"on_model": lambda model: None, "verdict_came": lambda: None}


async def turn_without_socket(*pieces, weights=None, vocabulary=toy_parts.VOCABULARY):
    """A turn with these pieces of samples [n] float32; over if there are weights."""
    verifier = SimpleNamespace(eager=True)
    terms = DecodingTerms(vocabulary, Sampling())
    cloud = SimpleNamespace(
        clock=lambda: 0.0, why_not=None, verifier=verifier, terms=terms, **HEARS
    )
    turn = RemoteTarget(cloud, Rules())
    for samples in pieces:
        await turn.hear(Heard(0, (), 0.0, samples=samples))
    if weights is not None:
        turn.finish(None, weights)
    return turn


def said_by(messages):
    """The edge's messages until something has to happen first."""
    return list(iter(messages.__next__, None))


async def ask(turn, *requests):
    """Requests by `verify`: tasks that await the replies."""
    asked = [asyncio.create_task(turn.verify(request)) for request in requests]
    await asyncio.sleep(0)
    return asked

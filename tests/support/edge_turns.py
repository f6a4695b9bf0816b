"""A turn on a link, by hand. In: a link. Out: what it heard and asked."""

from __future__ import annotations

import anyio
import numpy as np
from far import MODEL, finish, hear
from patience import PATIENCE_S

from streamer.core.decoding.verdict import VerifyRequest, prefix_hash
from streamer.core.link.decoding_terms import DecodingTerms
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules

TERMS = DecodingTerms(MODEL.tokenizer, MODEL.language, MODEL.num_ids, Rules(), Sampling())
FIRST = VerifyRequest(1, 0, prefix_hash(()), (), ())


def sound(seconds):
    return (
        np.random.default_rng(0).integers(-9_000, 9_000, int(seconds * 16_000)).astype(np.float32)
        / 32768
    )


async def speak_and_ask(link, seconds, wanted):
    """A turn, and its first verdict."""
    target = link.listen()
    await hear(target, sound(seconds))
    await finish(target)
    with anyio.fail_after(PATIENCE_S):
        assert (await target.verify(FIRST)).next_id == wanted
    target.close()

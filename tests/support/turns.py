"""Turns as PCM, and their events."""

from __future__ import annotations

import random

import numpy as np
from speech import RATE_HZ

SILENCE = np.zeros(RATE_HZ, np.float32)


def pcm(*parts):
    return (np.concatenate(parts) * 32767).astype("<i2").tobytes()


async def feed_in_pieces(session, data, seed):
    """Bytes cut at random, odd ones too."""
    chance, at = random.Random(seed), 0
    while at < len(data):
        n = chance.choice([1, 2, 641, 3_200, 20_001, 200_000])
        await session.feed(data[at : at + n])
        at += n


async def one_turn(session):
    return [event async for event in session]

"""Turns as PCM, and their events."""

from __future__ import annotations

import numpy as np
from speech import RATE_HZ

SILENCE = np.zeros(RATE_HZ, np.float32)


def pcm(*parts):
    return (np.concatenate(parts) * 32767).astype("<i2").tobytes()


async def one_turn(session):
    return [event async for event in session]

"""Live sessions whose Parts (streamer/stages/parts.py) a test may wrap."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from speech import RATE_HZ, pcm

SILENCE = np.zeros(RATE_HZ, np.float32)


def same(one):
    return one


@dataclass(frozen=True)
class Between:
    """Parts whose drafters, targets and edge's batcher are wrapped."""

    parts: Any
    drafter_of: Callable[[Any], Any] = same
    target_of: Callable[[Any], Any] = same
    batcher_of: Callable[[Any], Any] = same

    def __getattr__(self, name):
        return getattr(self.parts, name)

    @property
    def edge(self):
        return self.parts.edge and self.batcher_of(self.parts.edge)

    def drafts(self, *arguments):
        return self.drafter_of(self.parts.drafts(*arguments))

    def target(self):
        found = self.parts.target()
        return found and self.target_of(found)


@dataclass(frozen=True)
class Passing:
    """A drafter, target, batcher or engine as it is; a subclass adds to one method."""

    inner: Any

    def __getattr__(self, name):
        return getattr(self.inner, name)


def slots_free(models):
    """KV slots of each model."""
    return [thinker.engine.num_free for thinker in models.pair if thinker is not None]


async def turn_of(session, samples):
    """The events of one turn: these samples [n], then a commit."""
    await session.feed(pcm(samples))
    await session.commit()
    return [event async for event in session]


async def feed_in_pieces(session, data, seed):
    """Bytes cut at random, odd ones too."""
    chance, at = random.Random(seed), 0
    while at < len(data):
        n = chance.choice([1, 2, 641, 3_200, 20_001, 200_000])
        await session.feed(data[at : at + n])
        at += n

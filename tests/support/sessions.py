"""Live sessions whose Parts (streamer/stages/ports.py) a test may wrap."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from speech import RATE_HZ

from streamer.stages.ports import Side

SILENCE = np.zeros(RATE_HZ, np.float32)
Wrap = Callable[[Any], Any]


@dataclass(frozen=True)
class Between:
    """Parts whose drafters, targets and edge's batcher are wrapped."""

    parts: Any
    drafter_of: Wrap | None = None
    target_of: Wrap | None = None
    batcher_of: Wrap | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.parts, name)

    @property
    def edge(self) -> Side | None:
        side = self.parts.edge
        return side and replace(side, batcher=_wrapped(side.batcher, self.batcher_of))

    def drafts(self, *arguments: Any) -> Any:
        return _wrapped(self.parts.drafts(*arguments), self.drafter_of)

    def target(self) -> Any:
        return _wrapped(self.parts.target(), self.target_of)


def _wrapped(one: Any, wrap: Wrap | None) -> Any:
    return one if one is None or wrap is None else wrap(one)


@dataclass(frozen=True)
class Passing:
    """A drafter, target, batcher or engine as it is; a subclass adds to one method."""

    inner: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def slots_free(models):
    """KV slots of each model."""
    return [thinker.engine.slots.num_free for thinker in models.pair if thinker is not None]


async def feed_in_pieces(session, data, seed):
    """Bytes cut at random, odd ones too."""
    chance, at = random.Random(seed), 0
    while at < len(data):
        n = chance.choice([1, 2, 641, 3_200, 20_001, 200_000])
        await session.feed(data[at : at + n])
        at += n

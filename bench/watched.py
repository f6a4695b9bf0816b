"""What the stages ask of the models, seen by a bench. In: options, as Describer takes them. Out:
Parts that note and slow what goes through them.

The stages know the models as Parts alone (streamer/stages/ports.py). So what stands
between the two sees every call, and no method of either is replaced.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from streamer.assembly.link import background
from streamer.assembly.models import Models
from streamer.assembly.parts import LiveParts, open_parts
from streamer.core.decoding.verdict import Refusal, Verdict, VerifyRequest
from streamer.core.link.edge_turn import EdgeTurn
from streamer.stages.ports import Side

POLL_S = 0.001
Wrap = Callable[[Any], Any]


@asynccontextmanager
async def opened(models: Models) -> AsyncIterator[LiveParts]:
    """The parts of a stream, with these models loaded and linked to a verifier elsewhere."""
    async with AsyncExitStack() as stack:
        group = None
        if models.verifier_url is not None:
            group = await stack.enter_async_context(background())
        yield await stack.enter_async_context(open_parts(models, group))


@dataclass(frozen=True)
class Between:
    """Parts as they are, but for what each turn gets of them, and for the edge's batcher."""

    parts: Any
    drafter_of: Wrap | None = None
    target_of: Wrap | None = None
    emitter_of: Wrap | None = None
    batcher_of: Wrap | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.parts, name)

    @property
    def edge(self) -> Side | None:
        side = self.parts.edge
        return side and replace(side, batcher=_wrapped(side.batcher, self.batcher_of))

    def drafter(self, edge: Any, ranges: Any) -> Any:
        return _wrapped(self.parts.drafter(edge, ranges), self.drafter_of)

    def target(self) -> Any:
        return _wrapped(self.parts.target(), self.target_of)

    def emitter(self) -> Any:
        return _wrapped(self.parts.emitter(), self.emitter_of)


def _wrapped(one: Any, wrap: Wrap | None) -> Any:
    return one if one is None or wrap is None else wrap(one)


@dataclass(frozen=True)
class Passing:
    """A drafter, target, emitter, batcher or engine as it is: who watches one adds to a method, and
    hands on."""

    inner: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class SlowEdge:
    """Every token that an edge drafts takes `edge_s` longer, however many come of one step."""

    def __init__(self, edge_s: float) -> None:
        self._edge_s = edge_s
        self.num_slept = 0  # ids that were waited for

    def drafter(self, fast: Any) -> SlowDrafter:
        return SlowDrafter(fast, self._sleep)

    def _sleep(self, num_ids: int) -> None:
        for _ in range(num_ids):
            time.sleep(self._edge_s)
        self.num_slept += num_ids


@dataclass(frozen=True)
class SlowDrafter(Passing):
    """Every call takes longer by what `sleep` takes for as many ids as it drafted."""

    sleep: Callable[[int], None]

    def draft(self, n: int) -> Any:
        return self._slowed(self.inner.draft(n))

    def _slowed(self, steps: Any) -> Any:
        drafted = yield from steps
        self.sleep(len(drafted[0]))
        return drafted


class Ends:
    """How long a turn's first request waits for a verifier elsewhere, which has not heard the
    turn's end yet. One turn at a time; `forget` the one before."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.wait_ms = 0.0
        self._is_asked = False

    def target(self, target: Any) -> Any:
        """To be told to Between."""
        return WatchedTarget(target, self) if hasattr(target, "turn") else target

    async def watch(self, turn: EdgeTurn) -> None:
        """From the turn's first request on: until its end is heard, or there is a reply."""
        if self._is_asked:
            return
        self._is_asked = True
        asked_at = time.perf_counter()
        while not turn.is_ready:
            await asyncio.sleep(POLL_S)
            self.wait_ms = 1_000 * (time.perf_counter() - asked_at)


@dataclass(frozen=True)
class WatchedTarget(Passing):
    """One turn of those that Ends watches."""

    ends: Ends

    async def verify(self, request: VerifyRequest) -> Verdict | Refusal:
        watching = asyncio.create_task(self.ends.watch(self.inner.turn))
        try:
            reply: Verdict | Refusal = await self.inner.verify(request)
            return reply
        finally:
            watching.cancel()

"""A cloud model in this process, on a thread of its own, as the stages ask it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio

from streamer.core.audio.turn_items import Closed, Heard
from streamer.core.decoding.verdict import Refusal, Verdict, VerifyRequest
from streamer.core.rules.level_weights import LevelWeights
from streamer.core.rules.settings import Rules
from streamer.stages.batcher import Batcher
from streamer.stages.ports import Hearer, Side


class LocalTarget:
    """See ports.py's Target. Holds a KV slot until it is closed; no call may be in hand then.

    After a missed deadline it is not asked again before it has answered: each request would cost a
    budget.
    """

    def __init__(
        self,
        batcher: Batcher,
        hearer: Hearer,
        verifier_of: Callable[[Any, LevelWeights], Any],
        prefills: Callable[[], bool],
        hears_late: bool = False,
    ) -> None:
        """hears_late: all audio waits for `finish`, which then hears it."""
        self._batcher = batcher
        self._hearer = hearer
        self._verifier_of = verifier_of
        self._prefills = prefills
        self.is_up = True
        self._hears_late = hears_late
        self._unheard: list[Heard] = []  # the edge holds their windows, too
        self._verifier: Any = None  # model/decoding.py's LocalVerifier, once the turn is over
        # a late verdict's request is not overtaken
        self._one_at_a_time = anyio.Lock(fast_acquire=True)
        self._begun: set[int] = set()  # numbers of requests that the model was given

    async def hear(self, heard: Heard) -> None:
        """Prefill complete windows, if there are any."""
        if self._hears_late:
            self._unheard.append(replace(heard, samples=None, provisional=None, measures=None))
        elif (steps := self._hearer.hear(heard)) is not None:
            await self._batcher.submit(steps)

    async def finish(self, closed: Closed, weights: LevelWeights) -> None:
        """Hear the last window. Prefill it now if `prefills` says so, else at the first request."""
        self._hears_late = False
        for heard in self._unheard:
            await self.hear(heard)
        self._unheard.clear()
        steps = self._hearer.finish(closed.rest, closed.maximum, self._prefills())
        await self._batcher.submit(steps)
        self._verifier = self._verifier_of(self._hearer, weights)

    async def prefilled(self) -> None:
        """Nothing to do: `hear` waits for it."""

    async def verify(self, request: VerifyRequest) -> Verdict | Refusal:
        """Raises the model's errors."""
        async with self._one_at_a_time:
            self._begun.add(request.number)
            reply: Verdict | Refusal = await self._batcher.submit(self._verifier.verify(request))
            self.is_up = True
            return reply

    def has_sent(self, number: int) -> bool:
        return number in self._begun

    def failed(self) -> None:
        """No verdict came in time."""
        self.is_up = False

    @property
    def traffic(self) -> tuple[int, int]:
        return 0, 0

    def close(self) -> None:
        """Give the KV slot back; a second call does nothing."""
        self._hearer.close()


class LocalCloud:
    """See ports.py's Cloud."""

    is_up = True
    is_remote = False
    hears_late = False  # a turn is heard when it is asked about
    model = ""
    is_linked = True
    unheard_s = 0.0
    name = "the cloud model"
    trouble = "it is slow"

    def __init__(
        self, side: Side, verifier_of: Callable[[Any, Rules, LevelWeights], Any], follows_edge: bool
    ) -> None:
        """follows_edge: an edge drafts first, and an idle cloud has that time to prefill.
        verifier_of: of a listener, by rules and level weights."""
        self.side = side
        self._follows_edge = follows_edge
        self._verifier_of = verifier_of

    @property
    def is_busy(self) -> bool:
        return self.side.batcher.is_busy

    def listen(self, rules: Rules) -> LocalTarget:
        return LocalTarget(
            self.side.batcher,
            self.side.listen(rules.language),
            lambda listener, weights: self._verifier_of(listener, rules, weights),
            self._has_time,
            self.hears_late,
        )

    def _has_time(self) -> bool:
        return self._follows_edge and not self.is_busy

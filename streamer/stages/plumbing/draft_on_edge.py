"""Drafting on the edge's thread, as long as the state machine asks for nothing but the edge.

A block then costs no trip to the event loop and back, and the next one is drafted while the last
one is being sent. Any other action is returned to the stage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from streamer.core.decoding.plan import Action, DraftMore, Emit
from streamer.core.decoding.speculate import Speculator
from streamer.stages.plumbing.batcher import post_to_this_loop
from streamer.stages.plumbing.messages import Failed, Over, Ready, Said, Turn
from streamer.stages.plumbing.ports import Drafter, Parts
from streamer.stages.plumbing.put import put
from streamer.stages.plumbing.target import Cloud

# deltas that the next stage has no room for; then drafting waits for it
MAX_UNSAID = 8


def may_ask(cloud: Cloud | None, turn: Turn) -> bool:
    """Whether it is worth asking about `turn` now."""
    return cloud is not None and cloud.is_up and turn.cloud is not None and turn.cloud.is_up


class Drafting:
    """One turn's answer on its edge, whose turn is over.

    `draft` gives steps for the edge's batcher; they return an action, or None where the state
    machine is to be asked again. Call `flush` after them. Do not touch it while steps run.

    prefilled_at: when the first id was there; its step ends the prefill.
    """

    def __init__(
        self,
        ready: Ready,
        parts: Parts,
        said: MemoryObjectSendStream[Said | Over | Failed],
        clock: Callable[[], float],
        is_cancelled: Callable[[], bool],
    ) -> None:
        edge = ready.turn.edge
        assert edge is not None
        self.spec: Speculator = parts.speculator(edge)
        self.prefilled_at: float | None = None
        self._edge = edge
        self._drafter: Drafter | None = None  # made on the edge's thread
        self._ready = ready
        self._parts = parts
        self._said = said
        self._clock = clock
        self._is_cancelled = is_cancelled
        self._post = post_to_this_loop()
        self._unsaid: deque[Said] = deque()

    def draft(self, wanted: DraftMore) -> Generator[Any, Any, Action | None]:
        """Draft what is `wanted`, and on, as long as nothing but the edge is needed."""
        drafter = self._drafter or self._parts.drafter(self._edge, self._ready.ranges)
        self._drafter = drafter
        while True:
            # The first id by itself: it tells when the prefill was over.
            is_first = self.prefilled_at is None
            ids, signals = yield from drafter.draft(1 if is_first else wanted.n)
            now = self._clock()
            self.prefilled_at = self.prefilled_at or now
            self.spec.drafted(ids, signals, now)
            action = self._next()
            if not isinstance(action, DraftMore):
                return action
            wanted = action

    async def flush(self) -> None:
        """Hand on what the next stage had no room for."""
        # steps that have returned left no call behind: nobody else hands out
        while self._unsaid:
            await put(self._said, self._unsaid.popleft())

    def _next(self) -> Action | None:
        """The next action but Emit, which is done here; None where the stage has a word in it."""
        cloud = self._parts.cloud
        while not (
            self._is_cancelled() or self.spec.num_in_flight or len(self._unsaid) > MAX_UNSAID
        ):
            action = self.spec.next(self._clock(), may_ask(cloud, self._ready.turn))
            if not isinstance(action, Emit):
                return action
            self._say(action)
        return None

    def _say(self, emit: Emit) -> None:
        self._unsaid.append(Said(self._ready, emit.ids, emit.verified, emit.log_probs))
        self._post(self._hand_out)

    def _hand_out(self) -> None:
        """On the event loop: what there is room for."""
        try:
            while self._unsaid:
                self._said.send_nowait(self._unsaid[0])
                self._unsaid.popleft()
        except anyio.WouldBlock:
            return
        # the stream is ending: nobody reads
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._unsaid.clear()

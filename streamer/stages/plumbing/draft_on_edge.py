"""What the edge does alone, on its thread: hear the end, draft, gate, show. Out: what it needs.

The state machine is driven here while it asks for the edge only; whatever else it wants comes back
as an action. So a block costs no way to the event loop and back, and the next one is drafted while
the last one is on its way out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from streamer.core.decoding.plan import Action, DraftMore, Emit
from streamer.core.decoding.speculate import Speculator
from streamer.core.rules.clauses import Ranges
from streamer.stages.plumbing.batcher import post_to_this_loop
from streamer.stages.plumbing.messages import Failed, Over, Ready, Said, Turn
from streamer.stages.plumbing.ports import Parts
from streamer.stages.plumbing.put import put
from streamer.stages.plumbing.target import Cloud

# deltas that the next stage has no room for; then drafting waits for it
MAX_UNSAID = 8


def may_ask(cloud: Cloud | None, turn: Turn) -> bool:
    """Whether it is worth asking about `turn` now."""
    return cloud is not None and cloud.is_up and turn.cloud is not None and turn.cloud.is_up


class Drafting:
    """One turn's answer on its edge. `begin`, then `draft` are steps for the edge's batcher; they
    return an action, or None where the state machine is to be asked anew. `flush` behind each of
    them. Not to be touched while steps run.
    """

    def __init__(
        self,
        ready: Ready,
        parts: Parts,
        said: MemoryObjectSendStream[Said | Over | Failed],
        clock: Callable[[], float],
        is_cancelled: Callable[[], bool],
    ) -> None:
        self.spec: Speculator
        # when the first id was there: its step ends the prefill
        self.prefilled_at: float | None = None
        self.is_held = False  # to the levels that may be said: it drafts
        self._ready = ready
        self._parts = parts
        self._said = said
        self._clock = clock
        self._is_cancelled = is_cancelled
        self._post = post_to_this_loop()
        self._unsaid: deque[Said] = deque()

    def begin(self, known: Sequence[Ranges]) -> Generator[Any, Any, Action | None]:
        """Hear the turn's end, and draft the first id if it does not depend on the levels that may
        be said. Then, where these are `known` by now, draft on. Else `hold` comes before the next
        draft; any other action does not wait for it."""
        action = yield from self._hear_end()
        if isinstance(action, DraftMore):
            ids, signals = yield from self._drafter.open()
            self.prefilled_at = self._clock()
            if ids:
                self.spec.drafted(ids, signals, self.prefilled_at, self._drafter.says_nothing)
                action = self._show()
        if not known:
            return action
        self._hold(known[0])
        action = action or self._next()
        return (yield from self.draft(action)) if isinstance(action, DraftMore) else action

    def _show(self) -> Action | None:
        """Hand out what is committed. No target is asked before it is known what may be said: its
        time would run."""
        if self._parts.mode == "edge":
            return self._next()
        while (emit := self.spec.shown()) is not None:
            self._say(emit)
        return None

    def hold(self, ranges: Ranges) -> Generator[Any, Any, Action | None]:
        """Say levels within `ranges` from now on, and draft. Time has passed, which is no time of
        drafting: so the state machine is asked anew."""
        self._hold(ranges)
        action = self._next()
        return (yield from self.draft(action)) if isinstance(action, DraftMore) else action

    def _hold(self, ranges: Ranges) -> None:
        self.is_held = True
        if ranges:
            self._drafter.hold(ranges)

    def _hear_end(self) -> Generator[Any, Any, Action | None]:
        closed = self._ready.closed
        edge = self._ready.turn.edge
        assert edge is not None
        yield from edge.finish(closed.rest, closed.maximum)
        self.spec, self._drafter = self._parts.speculator(edge), self._parts.drafter(edge)
        return self._next()

    def draft(self, wanted: DraftMore) -> Generator[Any, Any, Action | None]:
        """Draft what is `wanted`, and on, as long as nothing but the edge is needed."""
        while True:
            # The first id alone: when prefill was over is told.
            drafter = self._drafter
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

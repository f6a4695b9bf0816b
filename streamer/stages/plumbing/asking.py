"""One turn's questions to its target. In: what the state machine asks. Out: replies, told to it.

Between here and the target lie the two queues of the verify stage. Their ends are draft's, which
lends them for a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from streamer.core.decoding.counts import Counts
from streamer.core.decoding.speculate import Speculator
from streamer.core.decoding.verdict import Refusal, Verdict, VerifyRequest
from streamer.stages.plumbing.messages import Ask, Prepare, Ready, Reply, Settle
from streamer.stages.plumbing.put import put
from streamer.stages.plumbing.target import TargetLost


class Asking:
    """`prepare`, then `ask` and `reply`; `settle` when the turn is over.

    lost: why the target will answer no more.
    """

    def __init__(
        self,
        ready: Ready,
        requests: MemoryObjectSendStream[Prepare | Ask | Settle],
        replies: MemoryObjectReceiveStream[Reply],
        clock: Callable[[], float],
    ) -> None:
        self.lost: str | None = None
        self._ready = ready
        self._turn = ready.turn.number
        self._target = ready.turn.cloud
        self._requests = requests
        self._replies = replies
        self._clock = clock
        self._is_prepared = False
        self._num_asked = self._num_replied = 0
        self._num_calls = self._num_failures = 0  # of the state machine, as last seen
        # request -> its draft's ids, as counted; those without a reply
        self._asked: dict[int, int] = {}
        self._waiting: anyio.CancelScope | None = None

    async def prepare(self) -> None:
        """Let the target hear the turn's end, once."""
        if not self._is_prepared:
            self._is_prepared = True
            await put(self._requests, Prepare(self._ready))

    async def ask(self, request: VerifyRequest, counts: Counts) -> None:
        """Send one block. counts: with this request, unless it was refused and is sent again."""
        await self.prepare()
        assert self._target is not None
        self._num_asked += 1
        if counts.cloud_calls > self._num_calls:
            self._num_calls = counts.cloud_calls
            self._asked[request.number] = len(request.draft)
        await put(self._requests, Ask(self._turn, self._target, request))

    async def reply(self, spec: Speculator, until: float) -> None:
        """Wait for a reply, until `until` (the state machine's deadline), or cancelled."""
        with anyio.move_on_after(max(0.0, until - self._clock())) as self._waiting:
            self._take(spec, await self._replies.receive())

    def cancel(self) -> None:
        """Wait for no reply any more."""
        if self._waiting is not None:
            self._waiting.cancel()

    def take_replies(self, spec: Speculator) -> None:
        """Those that came while the edge drafted ahead."""
        with suppress(anyio.WouldBlock):
            while True:
                self._take(spec, self._replies.receive_nowait())

    def see_failures(self, spec: Speculator) -> None:
        """The target learns that it was too slow, or gone."""
        if spec.num_failures > self._num_failures and self._target is not None:
            self._num_failures = spec.num_failures
            self._target.failed()

    async def settle(self) -> None:
        """Wait until the target has let go of the turn: it has, where all was replied to."""
        if self._num_asked == self._num_replied and (self._num_replied or not self._is_prepared):
            return
        await put(self._requests, Settle(self._turn))
        async for reply in self._replies:
            if reply == Reply(self._turn):
                return

    def count_sent(self, counts: Counts) -> None:
        """What was asked and never left was neither uploaded nor a call."""
        if self._target is None:
            return
        counts.bytes_up, counts.bytes_down = self._target.traffic
        for number, n_drafted in self._asked.items():
            if not self._target.has_sent(number):
                counts.cloud_calls -= 1
                counts.n_uploaded -= n_drafted

    def _take(self, spec: Speculator, reply: Reply) -> None:
        assert reply.turn == self._turn, "an earlier turn was not settled"
        self._num_replied += 1
        match reply:
            case Reply(error=TargetLost() as error):
                self.lost = str(error)
                spec.failed()
            case Reply(error=Exception() as error):
                raise error
            case Reply(verdict=Refusal() as refusal):
                self._asked.pop(refusal.number, None)
                spec.refused(refusal)
            case Reply(verdict=Verdict() as verdict):
                self._asked.pop(verdict.number, None)
                spec.verdict(verdict, self._clock())

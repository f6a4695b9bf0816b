"""One turn on a verifier, who judges it, its link. In: its work, in order. Out: replies.

`run` is its life, a task of its own: what one turn brings, or breaks, is its own.
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import Protocol

import anyio
import numpy as np

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.decoding.verdict import Refusal
from streamer.core.link import packing, wire
from streamer.core.link.send_window import PIECE_SAMPLES
from streamer.core.link.verifier_turn import Broken, End, Hear, ServedTurn, VerifyWork, Work
from streamer.net.service.metrics import VerifierMetrics
from streamer.stages.ports import Judge

# messages of one turn that wait, 2 MB at most; then its link waits. An edge of ours sends fewer
MAX_WORK = 32
# a turn on a living link of which nothing is heard: nobody speaks so slowly
MAX_TURN_IDLE_S = 300.0
_logger = logging.getLogger("streamer")


class DownLink(Protocol):
    """A link, as far as a turn needs it. tenant: whose it is (net/service/admission.py)."""

    tenant: str

    def say(self, message: wire.Down) -> None: ...


class RunningTurn:
    """`give` it work; `over` is set when `run` has ended."""

    def __init__(
        self, state: ServedTurn, judge: Judge, link: DownLink, metrics: VerifierMetrics
    ) -> None:
        self.state = state
        self.judge = judge
        self.link: DownLink | None = link
        self.tenant = link.tenant
        self.came_back = anyio.Event()
        self.over = anyio.Event()
        self.scope = anyio.CancelScope()
        self._metrics = metrics
        self._is_prefilled = False
        self._num_prefilled = 0
        self._give, self._work = anyio.create_memory_object_stream[tuple[int, Work]](MAX_WORK)
        self._next: tuple[int, Work] | None = None  # taken while looking for more audio

    @property
    def lag_s(self) -> float:
        """Seconds of audio that came and are not heard."""
        return (self.state.num_samples - self._num_prefilled) / SAMPLE_RATE_HZ

    def say(self, message: wire.Down) -> None:
        """To the link it is on; with none, the edge will ask again."""
        if self.link is not None:
            self.link.say(message)

    def say_opened(self, model: str) -> None:
        t = self.state
        self.say(wire.OpenedMessage(t.channel, t.epoch, t.num_samples, model))
        if self._is_prefilled:
            self._say_heard()

    def reject(self, broken: Broken) -> None:
        self.say(wire.Rejected(self.state.channel, self.state.epoch, broken.is_final, str(broken)))

    async def give(self, work: Work) -> None:
        """Have it done; waits while MAX_WORK wait. Nothing is done of a turn that has ended."""
        try:
            await self._give.send((self.state.epoch, work))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def run(self) -> None:
        """The turn's life; its slot is given back at the end, whatever happens."""
        try:
            with self.scope:
                await self._do_all()
        except Broken as broken:
            self.reject(broken)
        except Exception as error:  # this turn's alone
            self._metrics.failed.inc()
            _logger.error("turn.failed", exc_info=error)
            self.reject(Broken("internal error; the verifier's log says more"))
        finally:
            self.judge.close()
            self._give.close()
            self._work.close()

    async def _do_all(self) -> None:
        while True:
            epoch, work = await self._take()
            match work:
                case Hear(samples):
                    await self._hear(samples)
                case End():
                    if not self._is_prefilled:
                        await self.judge.finish()
                        self._is_prefilled = True
                        self._num_prefilled = self.state.num_samples
                    self._say_heard()
                case VerifyWork():
                    await self._judge(epoch, work)

    async def _take(self) -> tuple[int, Work]:
        if self._next is not None:
            taken = self._next
            self._next = None
            return taken
        with anyio.move_on_after(MAX_TURN_IDLE_S):
            return await self._work.receive()
        raise Broken(f"nothing came for {MAX_TURN_IDLE_S:g} s", is_final=False)

    async def _hear(self, samples: np.ndarray) -> None:
        """Prefill them [n] and tell the edge, so that it may send more. Small pieces that wait
        behind them are heard with them, up to half a second: a hop to a thread for every 20 ms
        would cost more than hearing them."""
        pieces = [samples]
        while self._next is None and sum(map(len, pieces)) < PIECE_SAMPLES:
            try:
                self._next = self._work.receive_nowait()
            except anyio.WouldBlock:
                break
            if isinstance(self._next[1], Hear):
                pieces.append(self._next[1].samples)
                self._next = None
        together = np.concatenate(pieces)
        await self.judge.hear(together)
        self._num_prefilled += len(together)
        self._say_heard()

    async def _judge(self, epoch: int, work: VerifyWork) -> None:
        """One verdict, or those of a whole answer. Those of an older link are not worth a step."""
        state = self.state
        if epoch != state.epoch:
            return
        async with aclosing(self.judge.judge(work.request, work.runs_on)) as replies:
            since = anyio.current_time()
            async for reply in replies:
                now = anyio.current_time()
                self._metrics.judging.inc(now - since)
                since = now
                if epoch != state.epoch:
                    return
                if isinstance(reply, Refusal):
                    self._metrics.refused.labels(reply.reason).inc()
                    self.say(wire.Refused(state.channel, epoch, reply.number, reply.reason))
                else:
                    self._metrics.verdict(work.request, reply)
                    self.say(packing.judged_message(state.channel, epoch, reply))

    def _say_heard(self) -> None:
        t = self.state
        self.say(wire.HeardMessage(t.channel, t.epoch, self._num_prefilled, self._is_prefilled))

"""Every turn of a verifier, by its session and by its link's channel. In: messages. Out: work done in order, replies.

One task per turn does its work: what one turn brings, or breaks, is its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Protocol

import anyio
import numpy as np
from anyio.abc import TaskGroup

from streamer.core import wire
from streamer.core.served import Broken, End, Hear, House, Judge, ServedTurn, Work
from streamer.core.verify import Refusal
from streamer.net.admission import Admission
from streamer.net.metrics import VerifierMetrics
from streamer.stages.parts import Judge as JudgeOfTurn

MAX_WORK = 64  # messages of one turn that wait; then its link waits
MAX_TURN_IDLE_S = 300.0  # a turn on a living link of which nothing is heard: nobody speaks so slowly
_logger = logging.getLogger("streamer")


class Speaker(Protocol):
    """A link, as far as a turn needs it."""

    def say(self, message: wire.Down) -> None: ...


class Tenant:
    """A turn, who hears and judges it, and the link it is on now."""

    def __init__(self, turn: ServedTurn, judge: JudgeOfTurn, link: Speaker) -> None:
        self.turn, self.judge = turn, judge
        self.link: Speaker | None = link
        self.is_prefilled = False
        self.num_prefilled = 0
        self.came_back = anyio.Event()
        self.over = anyio.Event()
        self.scope = anyio.CancelScope()
        self.give, self.work = anyio.create_memory_object_stream[tuple[int, Work]](MAX_WORK)

    def say(self, message: wire.Down) -> None:
        """To the link it is on; with none, the edge will ask again."""
        if self.link is not None:
            self.link.say(message)

    def say_heard(self) -> None:
        t = self.turn
        self.say(wire.Heard(t.channel, t.epoch, self.num_prefilled, self.is_prefilled))


class Tenancy:
    """`open`, `take`, `close` by links; `detach` a link that is gone."""

    def __init__(
        self, open_judge: Callable[[ServedTurn], JudgeOfTurn], house: House, admission: Admission,
        metrics: VerifierMetrics, hold_s: float,
    ) -> None:  # fmt: skip
        self._open_judge, self._house, self._admission, self._metrics = open_judge, house, admission, metrics
        self._hold_s = hold_s
        self._tenants: dict[bytes, Tenant] = {}  # the longest held come before those held later
        self._channels: dict[tuple[Speaker, int], Tenant] = {}
        self._group: TaskGroup

    def start(self, group: TaskGroup) -> None:
        """Turns run in `group`."""
        self._group = group

    @property
    def num_held(self) -> int:
        """Turns without a link."""
        return sum(tenant.link is None for tenant in self._tenants.values())

    async def open(self, link: Speaker, message: wire.Open) -> None:
        """A new turn, or one that goes on. Raises Broken."""
        if (link, message.channel) in self._channels:
            raise Broken(f"channel {message.channel} is taken")
        tenant = self._tenants.get(message.session)
        if tenant is None:
            tenant = await self._begin(link, message)
        else:
            tenant.turn.reopen(message)
            self._unlink(tenant)
            tenant.link = link
            tenant.came_back.set()
            self._metrics.resumed.inc()
        self._channels[link, message.channel] = tenant
        turn = tenant.turn
        tenant.say(wire.Opened(turn.channel, turn.epoch, turn.num_samples, self._house.model))
        if tenant.is_prefilled:
            tenant.say_heard()

    async def take(self, link: Speaker, message: wire.Audio | wire.Finish | wire.Verify | wire.Decode) -> None:
        """A turn's message; of a channel without a turn, none: it was rejected, and more was on its way."""
        tenant = self._channels.get((link, message.channel))
        if tenant is None:
            return
        if isinstance(message, wire.Verify | wire.Decode) and message.epoch != tenant.turn.epoch:
            tenant.say(wire.Refused(message.channel, message.epoch, message.number, "epoch"))
            return
        try:
            work = tenant.turn.take(message)
        except Broken as broken:
            self._break(tenant, broken)
            return
        if work is not None:
            try:
                await tenant.give.send((tenant.turn.epoch, work))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # it has just ended

    async def close(self, link: Speaker, channel: int) -> None:
        """The edge needs the turn no more."""
        tenant = self._channels.get((link, channel))
        if tenant is not None:
            await self._end(tenant)

    def detach(self, link: Speaker) -> None:
        """The link is gone; its turns are held."""
        for tenant in [t for (of, _), t in self._channels.items() if of is link]:
            self._unlink(tenant)
            if self._tenants.pop(tenant.turn.session, None) is not None:
                self._tenants[tenant.turn.session] = tenant
                tenant.came_back = anyio.Event()
                self._group.start_soon(self._hold, tenant)

    async def all_over(self) -> None:
        """Returns when no turn with a link is left."""
        while waiting := [tenant for tenant in self._tenants.values() if tenant.link is not None]:
            await waiting[0].over.wait()

    async def _begin(self, link: Speaker, message: wire.Open) -> Tenant:
        turn = ServedTurn(self._house, message)
        while self._admission.is_full:  # others may come while the held one ends
            held = next((t for t in self._tenants.values() if t.link is None), None)
            if held is None:
                raise Broken(f"all {self._admission.max_sessions} sessions are taken", is_final=False)
            await self._end(held)
        if self._admission.is_draining:
            raise Broken("the verifier is going down", is_final=False)
        try:
            tenant = Tenant(turn, self._open_judge(turn), link)
        except Exception as error:
            _logger.error("turn.failed", exc_info=error)
            raise Broken("the verifier cannot open a turn; its log says more", is_final=False) from None
        self._tenants[turn.session] = tenant
        self._admission.num_sessions += 1
        self._group.start_soon(self._run, tenant)
        return tenant

    async def _run(self, tenant: Tenant) -> None:
        """The turn's life; its slot is given back at the end, whatever happens."""
        try:
            with tenant.scope:
                await self._work(tenant)
        except Broken as broken:
            self._reject(tenant, broken)
        except Exception as error:  # this turn's alone
            self._metrics.failed.inc()
            _logger.error("turn.failed", exc_info=error)
            self._reject(tenant, Broken("internal error; the verifier's log says more"))
        finally:
            tenant.judge.close()
            tenant.give.close()
            tenant.work.close()
            self._unlink(tenant)
            self._strike(tenant)
            self._admission.num_sessions -= 1
            tenant.over.set()

    async def _work(self, tenant: Tenant) -> None:
        while True:
            with anyio.move_on_after(MAX_TURN_IDLE_S) as patience:
                epoch, work = await tenant.work.receive()
            if patience.cancelled_caught:
                raise Broken(f"nothing came for {MAX_TURN_IDLE_S:g} s", is_final=False)
            match work:
                case Hear(samples):
                    await self._hear(tenant, samples)
                case End():
                    if not tenant.is_prefilled:
                        await tenant.judge.finish()
                        tenant.is_prefilled, tenant.num_prefilled = True, tenant.turn.num_samples
                    tenant.say_heard()
                case Judge():
                    await self._judge(tenant, epoch, work)

    async def _hear(self, tenant: Tenant, samples: np.ndarray) -> None:
        """All the audio that waits, at once: a hop to a thread for every 20 ms would cost more than hearing them."""
        await tenant.judge.hear(samples)
        tenant.num_prefilled += len(samples)
        if not tenant.work.statistics().current_buffer_used:
            tenant.say_heard()

    async def _judge(self, tenant: Tenant, epoch: int, work: Judge) -> None:
        """One verdict, or those of a whole answer. Those of an older link are not worth a step."""
        turn = tenant.turn
        if epoch != turn.epoch:
            return
        async with aclosing(tenant.judge.judge(work.request, work.runs_on)) as replies:
            since = anyio.current_time()
            async for reply in replies:
                now = anyio.current_time()
                self._metrics.judging.inc(now - since)
                since = now
                if epoch != turn.epoch:
                    return
                if isinstance(reply, Refusal):
                    self._metrics.refused.labels(reply.reason).inc()
                    tenant.say(wire.Refused(turn.channel, epoch, reply.number, reply.reason))
                else:
                    self._metrics.verdict(work.request, reply)
                    tenant.say(wire.Judged(turn.channel, epoch, reply.number, reply.n_accepted, reply.next_id))

    async def _hold(self, tenant: Tenant) -> None:
        """Until the edge comes back, or for `hold_s`."""
        with anyio.move_on_after(self._hold_s):
            await tenant.came_back.wait()
            return
        await self._end(tenant)

    async def _end(self, tenant: Tenant) -> None:
        self._unlink(tenant)
        self._strike(tenant)
        tenant.scope.cancel()
        await tenant.over.wait()

    def _break(self, tenant: Tenant, broken: Broken) -> None:
        self._reject(tenant, broken)
        self._unlink(tenant)
        self._strike(tenant)
        tenant.scope.cancel()

    def _strike(self, tenant: Tenant) -> None:
        """Nobody can come back to it any more."""
        if self._tenants.get(tenant.turn.session) is tenant:
            del self._tenants[tenant.turn.session]

    def _reject(self, tenant: Tenant, broken: Broken) -> None:
        tenant.say(wire.Rejected(tenant.turn.channel, tenant.turn.epoch, broken.is_final, str(broken)))

    def _unlink(self, tenant: Tenant) -> None:
        for key in [key for key, t in self._channels.items() if t is tenant]:
            del self._channels[key]
        tenant.link = None

"""Every turn of a verifier, by its session and by its link's channel. In: messages of links. Out:
each at its turn."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from streamer.core.link import wire
from streamer.core.link.verifier_turn import Broken, House, ServedTurn
from streamer.net.link.served_turn import Speaker, Tenant
from streamer.net.service.admission import Admission
from streamer.net.service.metrics import VerifierMetrics
from streamer.stages.plumbing.ports import Judge

_logger = logging.getLogger("streamer")


class Tenancy:
    """`open`, `take`, `close` by links; `detach` a link that is gone."""

    def __init__(
        self,
        open_judge: Callable[[ServedTurn], Judge],
        house: House,
        admission: Admission,
        metrics: VerifierMetrics,
        hold_s: float,
    ) -> None:
        self._open_judge = open_judge
        self._house = house
        self._admission = admission
        self._metrics = metrics
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
        if message.session not in self._tenants:
            turn = ServedTurn(self._house, message)
            # meanwhile another link may have opened the session; after it nothing waits
            await self._make_room()
        if (tenant := self._tenants.get(message.session)) is None:
            tenant = self._begin(link, turn)
        else:
            tenant.turn.reopen(message)
            self._unlink(tenant)
            tenant.link = link
            tenant.came_back.set()
            self._metrics.resumed.inc()
        self._channels[link, message.channel] = tenant
        tenant.say_opened(self._house.model)

    async def take(
        self,
        link: Speaker,
        message: wire.AudioMessage | wire.Finish | wire.VerifyMessage | wire.Decode,
    ) -> None:
        """A turn's message; of a channel without a turn, none: it was rejected, and more was on its
        way."""
        tenant = self._channels.get((link, message.channel))
        if tenant is None:
            return
        if (
            isinstance(message, wire.VerifyMessage | wire.Decode)
            and message.epoch != tenant.turn.epoch
        ):
            tenant.say(wire.Refused(message.channel, message.epoch, message.number, "epoch"))
            return
        try:
            work = tenant.turn.take(message)
        except Broken as broken:
            tenant.reject(broken)
            self._let_go(tenant)
            return
        if work is not None:
            await tenant.give(work)

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

    async def _make_room(self) -> None:
        """For one turn more: the one held longest goes. Raises Broken where none can go, or nobody
        may come."""
        while self._admission.is_full:  # others may come while the held one ends
            held = next((t for t in self._tenants.values() if t.link is None), None)
            if held is None:
                raise Broken(
                    f"all {self._admission.max_sessions} sessions are taken", is_final=False
                )
            await self._end(held)
        if self._admission.is_draining:
            raise Broken("the verifier is going down", is_final=False)

    def _begin(self, link: Speaker, turn: ServedTurn) -> Tenant:
        try:
            tenant = Tenant(turn, self._open_judge(turn), link, self._metrics)
        except Exception as error:
            _logger.error("turn.failed", exc_info=error)
            raise Broken(
                "the verifier cannot open a turn; its log says more", is_final=False
            ) from None
        self._tenants[turn.session] = tenant
        self._admission.num_sessions += 1
        self._group.start_soon(self._live, tenant)
        return tenant

    async def _live(self, tenant: Tenant) -> None:
        """The turn, to its end; then its place is free."""
        try:
            await tenant.run()
        finally:
            self._unlink(tenant)
            self._strike(tenant)
            self._admission.num_sessions -= 1
            tenant.over.set()

    async def _hold(self, tenant: Tenant) -> None:
        """Until the edge comes back, or for `hold_s`; to a verifier that is going down nobody can
        come back."""
        came_back = tenant.came_back  # of this hold: there may be another one by its end
        with anyio.move_on_after(0.0 if self._admission.is_draining else self._hold_s):
            await came_back.wait()
        if not came_back.is_set():  # it may have come back just as the time was over
            await self._end(tenant)

    async def _end(self, tenant: Tenant) -> None:
        self._let_go(tenant)
        await tenant.over.wait()

    def _let_go(self, tenant: Tenant) -> None:
        self._unlink(tenant)
        self._strike(tenant)
        tenant.scope.cancel()

    def _strike(self, tenant: Tenant) -> None:
        """Nobody can come back to it any more."""
        if self._tenants.get(tenant.turn.session) is tenant:
            del self._tenants[tenant.turn.session]

    def _unlink(self, tenant: Tenant) -> None:
        for key in [key for key, t in self._channels.items() if t is tenant]:
            del self._channels[key]
        tenant.link = None

"""A verifier's turns, by session and link's channel. In: messages. Out: each at its turn."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from streamer.core.link import wire
from streamer.core.link.verifier_turn import Broken, ServedTurn, VerifierModel
from streamer.net.link.served_turn import DownLink, RunningTurn
from streamer.net.service.admission import Admission
from streamer.net.service.metrics import VerifierMetrics
from streamer.stages.ports import Judge

_logger = logging.getLogger("streamer")


class ServedTurns:
    """`open`, `take`, `close` by links; `detach` a link that is gone."""

    def __init__(
        self,
        open_judge: Callable[[ServedTurn], Judge],
        model: VerifierModel,
        admission: Admission,
        metrics: VerifierMetrics,
        hold_s: float,
    ) -> None:
        self._open_judge = open_judge
        self._model = model
        self._admission = admission
        self._metrics = metrics
        self._hold_s = hold_s
        self._turns: dict[bytes, RunningTurn] = {}  # the longest held come before those held later
        self._channels: dict[tuple[DownLink, int], RunningTurn] = {}
        self._group: TaskGroup

    def start(self, group: TaskGroup) -> None:
        """Turns run in `group`."""
        self._group = group

    @property
    def num_held(self) -> int:
        """Turns without a link."""
        return sum(turn.link is None for turn in self._turns.values())

    @property
    def lag_s(self) -> float:
        """Of the turn that is furthest behind."""
        return max((turn.lag_s for turn in self._turns.values()), default=0.0)

    async def open(self, link: DownLink, message: wire.Open) -> None:
        """A new turn, or one that goes on. Raises Broken."""
        if (link, message.channel) in self._channels:
            raise Broken(f"channel {message.channel} is taken")
        if message.session not in self._turns:
            state = ServedTurn(self._model, message)
            # meanwhile another link may have opened the session; after it nothing waits
            await self._make_room(link.tenant)
        if (turn := self._turns.get(message.session)) is None:
            turn = self._begin(link, state)
        else:
            turn.state.reopen(message)
            self._unlink(turn)
            turn.link = link
            turn.came_back.set()
            self._metrics.resumed.inc()
        self._channels[link, message.channel] = turn
        turn.say_opened(self._model.fingerprint)

    async def take(self, link: DownLink, message: wire.OfTurn) -> None:
        """A turn's message; of a rejected turn more may be on its way, and is dropped."""
        turn = self._channels.get((link, message.channel))
        if turn is None:
            return
        if (
            isinstance(message, wire.VerifyMessage | wire.Decode)
            and message.epoch != turn.state.epoch
        ):
            turn.say(wire.Refused(message.channel, message.epoch, message.number, "epoch"))
            return
        try:
            work = turn.state.take(message)
        except Broken as broken:
            turn.reject(broken)
            self._let_go(turn)
            return
        if work is not None:
            await turn.give(work)

    async def close(self, link: DownLink, channel: int) -> None:
        """The edge needs the turn no more."""
        turn = self._channels.get((link, channel))
        if turn is not None:
            await self._end(turn)

    def detach(self, link: DownLink) -> None:
        """The link is gone; its turns are held."""
        for turn in [t for (of, _), t in self._channels.items() if of is link]:
            self._unlink(turn)
            if self._turns.pop(turn.state.session, None) is not None:
                self._turns[turn.state.session] = turn
                turn.came_back = anyio.Event()
                self._group.start_soon(self._hold, turn)

    async def all_over(self) -> None:
        """Returns when no turn with a link is left."""
        while waiting := [turn for turn in self._turns.values() if turn.link is not None]:
            await waiting[0].over.wait()

    async def _make_room(self, tenant: str) -> None:
        """For one turn more the one held longest goes. Raises Broken where none may."""
        # others may come while the held one ends
        while (told := self._admission.why_full(tenant)) is not None:
            held = next((t for t in self._turns.values() if self._can_go(t, tenant)), None)
            if held is None:
                raise Broken(told, is_final=False)
            await self._end(held)
        if self._admission.is_draining:
            raise Broken("the verifier is going down", is_final=False)

    def _can_go(self, turn: RunningTurn, tenant: str) -> bool:
        """Who has its share makes place among its own."""
        is_own = turn.tenant == tenant
        return turn.link is None and (is_own or not self._admission.has_its_share(tenant))

    def _begin(self, link: DownLink, state: ServedTurn) -> RunningTurn:
        try:
            turn = RunningTurn(state, self._open_judge(state), link, self._metrics)
        except Exception as error:
            _logger.error("turn.failed", exc_info=error)
            told = "the verifier cannot open a turn; its log says more"
            raise Broken(told, is_final=False) from None
        self._turns[state.session] = turn
        self._admission.enter(link.tenant)
        self._group.start_soon(self._live, turn)
        return turn

    async def _live(self, turn: RunningTurn) -> None:
        """The turn, to its end; then its place is free."""
        try:
            await turn.run()
        finally:
            self._unlink(turn)
            self._strike(turn)
            self._admission.leave(turn.tenant)
            turn.over.set()

    async def _hold(self, turn: RunningTurn) -> None:
        """Until the edge is back, or for `hold_s`; not at all where the verifier is going down."""
        came_back = turn.came_back  # of this hold: there may be another one by its end
        with anyio.move_on_after(0.0 if self._admission.is_draining else self._hold_s):
            await came_back.wait()
        if not came_back.is_set():  # it may have come back just as the time was over
            await self._end(turn)

    async def _end(self, turn: RunningTurn) -> None:
        self._let_go(turn)
        await turn.over.wait()

    def _let_go(self, turn: RunningTurn) -> None:
        self._unlink(turn)
        self._strike(turn)
        turn.scope.cancel()

    def _strike(self, turn: RunningTurn) -> None:
        """Nobody can come back to it any more."""
        if self._turns.get(turn.state.session) is turn:
            del self._turns[turn.state.session]

    def _unlink(self, turn: RunningTurn) -> None:
        for key in [key for key, t in self._channels.items() if t is turn]:
            del self._channels[key]
        turn.link = None

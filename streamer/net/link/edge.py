"""The edge's link to a verifier elsewhere. In: turns. Out: their targets, kept linked.

One websocket carries all turns of a process. It is connected from the start, and again whenever it
is lost (core/link/backoff.py); what each turn still needs is said again then
(core/link/edge_turn.py). Bounds: turns by their KV slots on the edge, of each turn its samples (at
most max_turn_s) and C requests; audio on its way by core/link/send_window.py, and what is written
before a send waits by net/link/dial.py. So requests and pings wait behind one piece of audio here,
never behind a turn's.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from dataclasses import replace

import anyio
from websockets.exceptions import WebSocketException

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.link import wire
from streamer.core.link.backoff import Redial
from streamer.core.link.decoding_terms import DecodingTerms
from streamer.core.link.edge_turn import RemoteTurn
from streamer.core.link.plausible import RemoteFault
from streamer.core.rules.settings import Rules
from streamer.net.link.dial import VerifierAddress, dial
from streamer.net.link.dial_errors import VerifierSilent
from streamer.net.link.open_link import OpenLink
from streamer.net.link.presence import Presence
from streamer.net.link.remote_target import RemoteTarget
from streamer.stages.ports import TargetLost


class EdgeLink:
    """Implements stages/ports.py's Cloud. `run` it until it is cancelled."""

    is_remote = True
    is_busy = False

    def __init__(
        self,
        verifier: VerifierAddress,
        terms: DecodingTerms,
        clock: Callable[[], float],
        chance: Callable[[], float] = random.random,
        on_model: Callable[[str], None] = lambda model: None,
    ) -> None:
        self.name = verifier.name
        self.presence = Presence(verifier.name, clock, on_model)
        self.open_link: OpenLink | None = None
        self._verifier = verifier
        self._terms = terms
        self._clock = clock
        self._chance = chance
        self._redial = Redial()
        self._edge = secrets.token_hex(8)
        self._turns: dict[int, RemoteTarget] = {}  # by channel
        self._epochs: dict[int, int] = {}  # of each channel, the last turn's

    @property
    def is_up(self) -> bool:
        return self.presence.is_up

    @property
    def model(self) -> str:
        return self.presence.model

    @property
    def is_linked(self) -> bool:
        return self.open_link is not None

    @property
    def trouble(self) -> str:
        return self.presence.trouble

    @property
    def why_not(self) -> str | None:
        return self.presence.why_not

    @property
    def num_links(self) -> int:
        return self.presence.num_links

    @property
    def rtt_s(self) -> float | None:
        return self.presence.rtt_s

    @property
    def num_in_flight(self) -> int:
        """Blocks of all turns that wait for their verdicts."""
        return sum(turn.num_waiting for turn in self._turns.values())

    @property
    def unheard_s(self) -> float:
        """Seconds of audio of all turns on their way to the verifier; 0 while there is no link."""
        if not self.is_linked:
            return 0.0
        return sum(turn.num_unheard for turn in self._turns.values()) / SAMPLE_RATE_HZ

    def listen(self, rules: Rules | None = None) -> RemoteTarget:
        """A turn begins: it takes the lowest free channel. rules: in place of those of the link's
        terms. Raises TargetLost where all are taken."""
        channel = next((i for i in range(wire.MAX_CHANNELS) if i not in self._turns), None)
        if channel is None:
            raise TargetLost(
                f"{self.name} has {wire.MAX_CHANNELS} turns of this process already; end one"
            )
        epoch = self._epochs.get(channel, 0)
        if epoch >= wire.MAX_EPOCH:
            epoch = 0
        terms = replace(self._terms, rules=rules or self._terms.rules)
        turn = RemoteTurn(channel, secrets.token_bytes(16), terms, epoch)
        target = RemoteTarget(self, turn, self._verifier, self._clock, self._chance)
        self._turns[channel] = target
        if self.open_link is not None:
            target.attach(self.open_link.window)
        return target

    def leave(self, turn: RemoteTurn, was_served: bool) -> None:
        target = self._turns.get(turn.channel)
        if target is None or target.turn is not turn:
            return
        if was_served:
            self._redial.succeeded()
        del self._turns[turn.channel]
        self._epochs[turn.channel] = turn.epoch
        if self.open_link is not None and turn.is_open_sent:
            self.open_link.say_goodbye(turn.channel)

    def failed(self, asked_at: float) -> None:
        self.presence.breaker.failed(self._clock(), asked_at)
        if self.open_link is not None:
            self.open_link.ping()

    def verdict_came(self) -> None:
        self.presence.verdict_came()

    def rejected(self, reason: str) -> None:
        self.presence.trouble = reason
        self.wake()  # the turn asks again after a pause

    def wake(self) -> None:
        if self.open_link is not None:
            self.open_link.wake()

    async def settled(self, within_s: float) -> None:
        """Wait until there is a link, or it is known that there is none, or as long as said."""
        with anyio.move_on_after(within_s):
            await self.presence.settled.wait()

    async def run(self) -> None:
        """Connect, serve, connect again; until cancelled."""
        while True:
            self._redial.dialled(self._clock())
            try:
                await self._connect_and_serve()
            except (
                OSError,
                WebSocketException,
                RemoteFault,
                VerifierSilent,
                wire.WireError,
            ) as error:
                self._ended(error)
            await anyio.sleep(self._redial.pause_s(self._clock(), self._chance()))

    async def _connect_and_serve(self) -> None:
        """One link, to its end. Raises what ended it."""
        async with dial(self._verifier, self._edge) as socket:
            self.open_link = OpenLink(socket, self._turns, self.presence, self._clock)
            self.presence.linked()
            try:
                await self.open_link.run()
            finally:
                self.open_link = None

    def _ended(self, error: Exception) -> None:
        """Whoever waits for a verdict that will not come is told."""
        self.presence.unlinked(error)
        for turn in self._turns.values():
            if self.presence.lost is not None:
                turn.lose(self.presence.lost)
            elif self.presence.why_not is not None and self.presence.num_links == 0:
                turn.tell(self.presence.why_not)

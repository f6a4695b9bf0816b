"""The edge's side of the link: a verifier elsewhere as a Cloud, a websocket per turn.

Bounds: turns by their KV slots on the edge; of each turn its samples (at most max_turn_s), its
requests, and the unheard audio of core/link/edge_turn.py.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import anyio
from anyio.abc import TaskGroup
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn_items import Closed, Heard
from streamer.core.decoding.plan import Refusal, Verdict, VerifyRequest
from streamer.core.description import one_line
from streamer.core.link import wire
from streamer.core.link.edge_turn import (
    REOPEN_PAUSES_S,
    Backoff,
    DecodingTerms,
    EdgeTurn,
    RemoteFault,
)
from streamer.core.rules.settings import LevelWeights, Rules
from streamer.net.link.connections import Connections
from streamer.net.link.dial import VerifierAddress, is_other_version, why
from streamer.net.service.metrics import ServiceMetrics
from streamer.stages.ports import TargetLost, quietly

STUCK_S = 2.0  # without progress; it reports each piece of audio that it has heard
SLOWEST = 8  # times the duration that a needed verdict is waited for: a link of 32 kbit/s


@dataclass(eq=False)
class _Waiter:
    asked_at: float  # or sent, where that came later
    reply: Verdict | Refusal | str = ""  # a text: why there is none
    over: anyio.Event = field(default_factory=anyio.Event)


class RemoteTarget:
    """One turn that a verifier elsewhere serves: the Target of stages/ports.py.

    `run` holds the turn's connections, one after another, until the turn is over. Other calls
    return at once, except `verify` and `prefilled`. turn: its state.
    """

    def __init__(
        self,
        connections: Connections,
        terms: DecodingTerms,
        on_close: Callable[[RemoteTarget], None],
    ) -> None:
        self.turn = EdgeTurn(secrets.token_bytes(16), terms)
        self._connections = connections
        self._verifier = connections.verifier
        self._clock = connections.clock
        self._on_close = on_close
        self._num_bytes_up = self._num_bytes_down = 0
        # set when a connection is wanted: at once, or with the first request (lazy)
        self._wanted = anyio.Event()
        # set when there may be something to send
        self._wake = anyio.Event()
        # set when the verifier has heard more, or will not
        self._moved = anyio.Event()
        self._scope = anyio.CancelScope()
        self._waiters: dict[int, _Waiter] = {}
        self._asked: set[int] = set()  # numbers of requests that left, on any connection
        self._is_cut = False  # the latest connection was lost, and there is no other yet
        self._rejections = Backoff(REOPEN_PAUSES_S)
        self._is_rejected = False
        # a verdict was wanted before its request could be sent: the verifier has to catch up
        self._is_behind = False
        self._lost: str | None = None
        self._began_at = math.inf
        # the verifier's latest progress, or when it was asked to open the turn
        self._moved_at = -math.inf
        self._num_moved = -1  # how far it was then

    @property
    def is_up(self) -> bool:
        """Whether to ask: the turn has a place and a connection, and nothing to catch up on."""
        is_held_up = self._is_rejected or self._is_cut
        is_held_up |= self._is_behind and not self.turn.is_ready
        return self._lost is None and not is_held_up

    @property
    def num_waiting(self) -> int:
        """Requests without a reply."""
        return len(self._waiters)

    @property
    def num_unheard(self) -> int:
        """Samples that the verifier should have heard and has not; 0 where nothing is sent yet."""
        is_heard = self._wanted.is_set() and self._lost is None
        return self.turn.num_unheard if is_heard else 0

    @property
    def traffic(self) -> tuple[int, int]:
        return self._num_bytes_up, self._num_bytes_down

    async def hear(self, heard: Heard) -> None:
        if heard.samples is not None and len(heard.samples):
            self._began_at = min(self._began_at, self._clock())
            self.turn.hear(heard.samples)
            self._send_soon(is_wanted=self._verifier.eager)

    async def finish(self, closed: Closed, weights: LevelWeights) -> None:
        self.turn.finish(weights)
        self._send_soon(is_wanted=self._verifier.eager)

    async def verify(self, request: VerifyRequest) -> Verdict | Refusal:
        """Raises TargetLost where the verifier has refused the turn, or is not there."""
        why_not = self._lost or self._connections.why_not
        if why_not is not None:
            raise TargetLost(why_not)
        early = self.turn.ask(request)
        if early is not None:
            return early
        self._send_soon(is_wanted=True)
        waiter = self._waiters[request.number] = _Waiter(self._clock())
        try:
            await waiter.over.wait()
        finally:
            self._waiters.pop(request.number, None)
            self.turn.forget(request.number)
        if isinstance(waiter.reply, str):
            raise TargetLost(waiter.reply)
        return waiter.reply

    def has_sent(self, number: int) -> bool:
        return number in self._asked

    def failed(self) -> None:
        """A verdict did not come in time.

        The verifier is blamed where it has heard the turn and was asked, or makes no progress, or
        is gone. A request that waits for the turn's own audio, here or in the buffers of a thin
        link, or for a place there, is this turn's own misfortune.
        """
        has_moved = self._clock() - self._moved_at < STUCK_S
        is_moving = self._is_rejected or (self._connections.is_linked and has_moved)
        was_asked = self.turn.is_ready and not self._asked.isdisjoint(self._waiters)
        if self._waiters and not was_asked and is_moving:
            self._is_behind = True
            return
        asked_at = max((waiter.asked_at for waiter in self._waiters.values()), default=math.inf)
        self._connections.failed(asked_at)

    async def prefilled(self) -> None:
        """Wait until the verifier has heard all: it makes a recording's times those of a live turn.

        Where the edge goes on without a verdict, the verifier has the audio's own duration. Where
        the verdict is needed, a link slower than speech is waited for while it moves.
        """
        verifier = self._verifier
        since = self._clock()
        audio_s = self.turn.num_samples / SAMPLE_RATE_HZ
        if verifier.goes_on:
            over_at = max(since, self._began_at + audio_s)
            stuck_s = min(STUCK_S, verifier.budget_s)
        else:
            over_at = max(since, self._began_at + SLOWEST * audio_s) + verifier.budget_s
            stuck_s = verifier.budget_s
        while self._connections.is_linked and self.num_unheard:
            stuck_at = max(since, self._moved_at) + stuck_s
            left_s = min(over_at, stuck_at) - self._clock()
            if left_s <= 0:
                self._is_behind |= verifier.goes_on and stuck_at <= over_at
                return
            self._moved = anyio.Event()
            with anyio.move_on_after(left_s):
                await self._moved.wait()

    def close(self) -> None:
        """End the turn; a second call does nothing."""
        self._scope.cancel()
        self._on_close(self)

    def lose(self, why_not: str) -> None:
        """No verdict will come any more: end the turn's connection, and the waits of `verify`."""
        self._lost = why_not
        self._scope.cancel()
        self._moved.set()
        self.tell(why_not)

    def tell(self, why_not: str) -> None:
        """End the present waits of `verify`."""
        for waiter in self._waiters.values():
            waiter.reply = why_not
            waiter.over.set()

    async def run(self) -> None:
        """Hold a connection, and another one after each cut, until the turn is over."""
        with self._scope:
            await self._wanted.wait()
            while True:
                try:
                    async with self._connections.connection() as socket:
                        since = self._clock()
                        error = await self._use(socket)
                finally:
                    self._moved.set()
                if error is not None:
                    self._is_cut = True
                    self._connections.cut(error, since)
                    continue
                self._rejections.failed(self._clock())
                await anyio.sleep(self._rejections.pause_s(self._clock(), random.random()))

    async def _use(self, socket: ClientConnection) -> Exception | None:
        """One connection, to its end: the error that ended it, None where it was rejected."""
        error: Exception | None = None
        async with anyio.create_task_group() as group:
            self._is_cut = False
            self._num_moved = -1
            group.start_soon(quietly, self._write, socket)
            try:
                await self._read(socket)
            except (ConnectionClosed, RemoteFault, wire.WireError) as ended:
                error = ended
            group.cancel_scope.cancel()
        if error is not None and not self.turn.is_opened and is_other_version(error):
            self.lose(f"{self._verifier.name} refuses: {why(error)}")
        return error

    async def _read(self, socket: ClientConnection) -> None:
        """Take messages until the turn is rejected. Raises what ended the connection."""
        while True:
            data = await socket.recv()
            self._num_bytes_down += len(data)
            message = wire.decode_down(data)
            if isinstance(message, wire.Rejected):
                self._rejected(message)
                return
            self._receive(message)

    async def _write(self, socket: ClientConnection) -> None:
        try:
            await self._send(socket, self.turn.connect())
            if self._moved_at == -math.inf:
                self._moved_at = self._clock()
            while True:
                self._wake = anyio.Event()
                while (message := self.turn.next_message()) is not None:
                    await self._send(socket, message)
                await self._wake.wait()
        except ConnectionClosed:
            return  # the reader says so

    async def _send(self, socket: ClientConnection, message: wire.Up) -> None:
        data = wire.encode(message)
        await socket.send(data)
        self._num_bytes_up += len(data)
        if isinstance(message, VerifyRequest):
            self._asked.add(message.number)
            if (waiter := self._waiters.get(message.number)) is not None:
                waiter.asked_at = self._clock()

    def _receive(self, message: wire.Down) -> None:
        """Raises RemoteFault, WireError."""
        reply = self.turn.receive(message)
        if isinstance(message, wire.Opened):
            self._is_rejected = False
            self._connections.opened(self.turn.model)
        if isinstance(message, wire.Opened | wire.Heard):
            num_heard = message.num_samples if isinstance(message, wire.Heard) else 0
            if num_heard > self._num_moved:  # repeated news is no progress
                self._num_moved = num_heard
                self._moved_at = self._clock()
        if isinstance(reply, Verdict):
            self._rejections.succeeded()
            self._connections.verdict_came()
        if reply is not None and (waiter := self._waiters.get(reply.number)) is not None:
            waiter.reply = reply
            waiter.over.set()
        self._moved.set()
        self._wake.set()

    def _rejected(self, message: wire.Rejected) -> None:
        reason = one_line(message.reason)
        if message.is_final:
            self.lose(f"{self._verifier.name} refuses: {reason}")
        else:
            self._is_rejected = True
            self._connections.trouble = reason

    def _send_soon(self, is_wanted: bool) -> None:
        if is_wanted:
            self._wanted.set()
        self._wake.set()


class RemoteCloud(Connections):
    """Implements stages/ports.py's Cloud. `run` it until it is cancelled."""

    is_remote = True
    is_busy = hears_late = False

    def __init__(
        self,
        verifier: VerifierAddress,
        terms: DecodingTerms,
        clock: Callable[[], float],
        on_model: Callable[[str], None] = lambda model: None,
    ) -> None:
        super().__init__(verifier, clock, on_model)
        self._terms = terms
        self._turns: set[RemoteTarget] = set()
        self._group: TaskGroup | None = None

    @property
    def num_in_flight(self) -> int:
        """Requests of all turns without a reply."""
        return sum(turn.num_waiting for turn in self._turns)

    @property
    def unheard_s(self) -> float:
        """Seconds of audio of all turns that are not heard yet; 0 without a connection."""
        if not self.is_linked:
            return 0.0
        return sum(turn.num_unheard for turn in self._turns) / SAMPLE_RATE_HZ

    def listen(self, rules: Rules | None = None) -> RemoteTarget:
        """Begin a turn. rules: in place of those of the cloud's terms."""
        terms = replace(self._terms, rules=rules or self._terms.rules)
        target = RemoteTarget(self, terms, self._turns.discard)
        self._turns.add(target)
        if self._group is not None:
            self._group.start_soon(quietly, target.run)
        return target

    async def run(self) -> None:
        """Keep a spare connection, and serve turns, until cancelled."""
        try:
            async with anyio.create_task_group() as self._group:
                for target in self._turns:
                    self._group.start_soon(quietly, target.run)
                await self.keep_spare()
        finally:
            self._group = None

    def on_absent(self) -> None:
        for turn in list(self._turns):
            if self.lost is not None:
                turn.lose(self.lost)
            elif self.why_not is not None and not self.was_linked:
                turn.tell(self.why_not)


def watch_link(link: RemoteCloud, metrics: ServiceMetrics) -> None:
    """Add gauges of the link to a verifier. A round trip that was not measured yet is NaN."""
    for name, help, read in (
        ("up", "1: connected to the verifier", lambda: link.is_linked),
        ("breaker_open", "1: the verifier is not asked now", lambda: not link.is_up),
        ("rtt_seconds", "Round trip of the latest ping", lambda: link.rtt_s or math.nan),
        ("blocks_in_flight", "Blocks asked about, not answered", lambda: link.num_in_flight),
        ("reconnects", "Connections that were lost", lambda: link.num_cuts),
    ):
        metrics.watch(f"link_{name}", help, read)

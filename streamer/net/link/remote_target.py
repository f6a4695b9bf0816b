"""One turn that a verifier elsewhere serves: the Target of stages/ports.py.

`run` holds the turn's websockets, one after another, until the turn is over. Other calls return at
once, except `verify` and `prefilled`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import anyio
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn_items import Closed, Heard
from streamer.core.decoding.verdict import Refusal, Verdict, VerifyRequest
from streamer.core.description import one_line
from streamer.core.link import wire
from streamer.core.link.backoff import STUCK_S, jittered
from streamer.core.link.edge_turn import EdgeTurn
from streamer.core.link.plausible import RemoteFault
from streamer.core.rules.level_weights import LevelWeights
from streamer.net.link.dial import VerifierAddress, is_other_version, why
from streamer.net.link.presence import Presence
from streamer.stages.ports import TargetLost

# Before a turn that found no place asks again; the last one from then on.
REOPEN_S = (0.25, 0.5, 1.0, 2.0, 4.0)


class Connections(Protocol):
    """Where a turn gets its connections (net/link/client.py)."""

    presence: Presence

    async def connection(self) -> ClientConnection:
        """A new connection to the verifier, however long that takes."""
        ...

    def verdict_came(self) -> None: ...

    def failed(self, asked_at: float) -> None:
        """A verdict that was asked for at `asked_at` is late."""
        ...

    def cut(self, error: Exception, since: float) -> None:
        """A turn's connection, there since `since`, ended by `error`."""
        ...

    def leave(self, target: RemoteTarget) -> None:
        """The turn is over."""
        ...


@dataclass(eq=False)
class _Waiter:
    asked_at: float  # or sent, where that came later
    reply: Verdict | Refusal | str = ""  # a text: why there is none
    is_given_up: bool = False
    over: anyio.Event = field(default_factory=anyio.Event)


class RemoteTarget:
    """See the module. `turn`: its state (core/link/edge_turn.py)."""

    def __init__(
        self,
        connections: Connections,
        turn: EdgeTurn,
        verifier: VerifierAddress,
        clock: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self.turn = turn
        self.is_connected = False
        self._connections = connections
        self._presence = connections.presence
        self._verifier = verifier
        self._clock = clock
        self._chance = chance
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
        self._num_rejected = 0  # since the last verdict
        self._is_rejected = False
        # a verdict was wanted before its request could be sent: the verifier has to catch up
        self._is_behind = False
        self._lost: str | None = None
        self._began_at = math.inf
        self._moved_at = -math.inf  # the verifier's latest progress
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
        """Samples that the verifier should hear and has not; 0 where nothing is sent yet."""
        if not self._wanted.is_set() or self._lost is not None:
            return 0
        return self.turn.num_samples - self.turn.num_heard

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
        why_not = self._lost or self._presence.why_not
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

        The verifier is blamed where it was asked, or makes no progress. A request that waits here
        for the turn's own audio, or for a place there, is this turn's own misfortune.
        """
        is_moving = self._is_rejected or self._clock() - self._moved_at < STUCK_S
        if self._waiters and self._asked.isdisjoint(self._waiters) and is_moving:
            self._is_behind = True
            return
        fresh = [waiter for waiter in self._waiters.values() if not waiter.is_given_up]
        for waiter in fresh:
            waiter.is_given_up = True
        self._connections.failed(min((waiter.asked_at for waiter in fresh), default=math.inf))

    async def prefilled(self) -> None:
        """Wait until the verifier has heard all, as long as core/link/backoff.py's Patience."""
        patience = self._verifier.patience
        since = self._clock()
        audio_s = self.turn.num_samples / SAMPLE_RATE_HZ
        while self._presence.is_linked and self.num_unheard:
            ends_at = patience.ends_at(self._began_at, since, audio_s)
            stuck_at = max(since, self._moved_at) + patience.stuck_s
            left_s = min(ends_at, stuck_at) - self._clock()
            if left_s <= 0:
                self._is_behind |= patience.goes_on and stuck_at <= ends_at
                return
            self._moved = anyio.Event()
            with anyio.move_on_after(left_s):
                await self._moved.wait()

    def close(self) -> None:
        """End the turn; a second call does nothing."""
        self._scope.cancel()
        self._connections.leave(self)

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
                socket = await self._connections.connection()
                since = self._clock()
                try:
                    error = await self._use(socket)
                finally:
                    self.is_connected = False
                    self._moved.set()
                    with anyio.CancelScope(shield=True):  # bounded by close_timeout
                        await socket.close()
                if error is not None:
                    self._is_cut = True
                    self._connections.cut(error, since)
                else:
                    await anyio.sleep(self._reopen_pause_s())

    async def _use(self, socket: ClientConnection) -> Exception | None:
        """One connection, to its end: the error that ended it, None where it was rejected."""
        error: Exception | None = None
        async with anyio.create_task_group() as group:
            self.is_connected = True
            self._is_cut = False
            self._num_moved = -1
            group.start_soon(self._write, socket)
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
        if isinstance(message, wire.Verify | wire.Decode):
            self._asked.add(message.number)
            if (waiter := self._waiters.get(message.number)) is not None:
                waiter.asked_at = self._clock()

    def _receive(self, message: wire.Down) -> None:
        """Raises RemoteFault, WireError."""
        reply = self.turn.receive(message)
        if isinstance(message, wire.Opened):
            self._is_rejected = False
            self._presence.told_model(self.turn.model)
        if isinstance(message, wire.Opened | wire.Heard):
            self._note_progress(message.num_samples if isinstance(message, wire.Heard) else 0)
        if isinstance(reply, Verdict):
            self._num_rejected = 0
            self._connections.verdict_came()
        if reply is not None and (waiter := self._waiters.get(reply.number)) is not None:
            waiter.reply = reply
            waiter.over.set()
        self._moved.set()
        self._wake.set()

    def _note_progress(self, num_heard: int) -> None:
        """Repeated news is no progress."""
        if num_heard > self._num_moved:
            self._num_moved = num_heard
            self._moved_at = self._clock()

    def _rejected(self, message: wire.Rejected) -> None:
        reason = one_line(message.reason)
        if message.is_final:
            self.lose(f"{self._verifier.name} refuses: {reason}")
        else:
            self._is_rejected = True
            self._presence.trouble = reason

    def _reopen_pause_s(self) -> float:
        pause_s = REOPEN_S[min(self._num_rejected, len(REOPEN_S) - 1)]
        self._num_rejected += 1
        return jittered(pause_s, self._chance())

    def _send_soon(self, is_wanted: bool) -> None:
        if is_wanted:
            self._wanted.set()
        self._wake.set()

"""One turn that a verifier elsewhere serves, on one websocket after another.

Bounds: turns by their KV slots on the edge; of each turn its samples (at most max_turn_s), its
requests, and the unheard audio of core/link/edge_turn.py.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from typing import TYPE_CHECKING

import anyio
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from streamer.core.audio.turn_items import Closed, Heard
from streamer.core.decoding.plan import Refusal, Verdict, VerifyRequest
from streamer.core.description import one_line
from streamer.core.link import wire
from streamer.core.link.edge_turn import DecodingTerms, EdgeTurn, RemoteFault
from streamer.core.rules.settings import LevelWeights
from streamer.stages.ports import TargetLost, quietly

if TYPE_CHECKING:
    from streamer.net.link.client import RemoteCloud

STUCK_S = 2.0  # without progress; the verifier reports each piece of audio that it has heard
MAX_MESSAGES = 4_096  # of one connection, down: a turn of 75 s in pieces of 100 ms has 1,000
REOPEN_S = 1.0  # before a rejected turn is opened again


class RemoteTarget:
    """A target, as LocalTarget of stages/batcher.py is one.

    `run` holds the turn's connections, one after another, until the turn is over. Other calls
    return at once, except `verify` and `prefilled`. turn: its state.
    """

    def __init__(self, cloud: RemoteCloud, terms: DecodingTerms) -> None:
        self.turn = EdgeTurn(secrets.token_bytes(16), terms)
        self._cloud = cloud
        self._clock = cloud.clock
        self._num_bytes_up = self._num_bytes_down = 0
        # set when a connection is wanted: at once, or with the first request (lazy)
        self._wanted = anyio.Event()
        # set when there may be something to send
        self._wake = anyio.Event()
        # set when the verifier has heard more, or will not
        self._moved = anyio.Event()
        self._moved_at = self._clock()
        self._scope = anyio.CancelScope()
        self._waiting: dict[int, asyncio.Future[Verdict | Refusal]] = {}
        self._asked_at = 0.0  # the latest request
        # rejected, or late with its audio: it has to catch up before it is asked again
        self._is_behind = False
        self._lost: str | None = None

    @property
    def is_up(self) -> bool:
        return self._lost is None and (self.turn.is_ready or not self._is_behind)

    @property
    def num_waiting(self) -> int:
        """Requests without a reply."""
        return len(self._waiting)

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
            self.turn.hear(heard.samples)
            self._send_soon(is_wanted=self._cloud.verifier.eager)

    async def finish(self, closed: Closed, weights: LevelWeights) -> None:
        self.turn.finish(weights)
        self._send_soon(is_wanted=self._cloud.verifier.eager)

    async def verify(self, request: VerifyRequest) -> Verdict | Refusal:
        """Raises TargetLost where the verifier has refused the turn, or is not there."""
        why_not = self._lost or self._cloud.why_not
        if why_not is not None:
            raise TargetLost(why_not)
        early = self.turn.ask(request)
        if early is not None:
            return early
        self._asked_at = self._clock()
        self._send_soon(is_wanted=True)
        reply = self._waiting[request.number] = asyncio.get_running_loop().create_future()
        try:
            return await reply
        finally:
            del self._waiting[request.number]
            self.turn.forget(request.number)

    def failed(self) -> None:
        """A verdict did not come in time. Blame the verifier, unless it is still hearing the turn:
        a long turn, or a thin link, must not keep other turns from being verified."""
        is_moving = self._cloud.is_linked and self._clock() - self._moved_at < STUCK_S
        if not self.turn.is_ready and (self._is_behind or is_moving):
            self._is_behind = True
        else:
            self._cloud.failed(self._asked_at)

    async def prefilled(self) -> None:
        """Wait until the verifier has heard all, while it makes progress. A recording's times are
        then those of a live turn."""
        since = self._clock()
        while self._cloud.is_linked and self.num_unheard:
            left_s = max(since, self._moved_at) + self._cloud.verifier.budget_s - self._clock()
            if left_s <= 0:
                self.failed()
                break
            self._moved = anyio.Event()
            with anyio.move_on_after(left_s):
                await self._moved.wait()

    def close(self) -> None:
        """End the turn; a second call does nothing."""
        self._scope.cancel()
        self._cloud.closed(self)

    def lose(self, why_not: str) -> None:
        """No verdict will come any more: end the turn's connection, and the waits of `verify`."""
        self._lost = why_not
        self._scope.cancel()
        self.look()
        self.tell(why_not)

    def look(self) -> None:
        """The verifier is not there: `prefilled` need not wait."""
        self._moved.set()

    def tell(self, why_not: str) -> None:
        """End the present waits of `verify`."""
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(TargetLost(why_not))

    async def run(self) -> None:
        """Hold a connection, and another one after each cut, until the turn is over."""
        with self._scope:
            await self._wanted.wait()
            while True:
                try:
                    async with self._cloud.connection() as socket:
                        since = self._clock()
                        error = await self._use(socket)
                finally:
                    self._moved.set()
                if error is not None:
                    self._cloud.cut(error, since)
                else:
                    await anyio.sleep(REOPEN_S * random.uniform(0.75, 1.25))

    async def _use(self, socket: ClientConnection) -> Exception | None:
        """One connection, to its end: the error that ended it, None where it was rejected."""
        error: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(quietly, self._write, socket)
            try:
                for _ in range(MAX_MESSAGES):
                    if not self._receive(await socket.recv()):
                        break
                else:
                    raise RemoteFault("the verifier sends more messages than a turn needs")
            except (ConnectionClosed, RemoteFault, wire.WireError) as ended:
                error = ended
            group.cancel_scope.cancel()
        return error

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
        if isinstance(message, VerifyRequest):
            self._asked_at = self._clock()

    def _receive(self, data: bytes | str) -> bool:
        """Take a message; False where the turn is rejected. Raises RemoteFault, WireError."""
        self._num_bytes_down += len(data)
        message = wire.decode_down(data)
        if isinstance(message, wire.Rejected):
            self._rejected(message)
            return False
        num_heard = self.turn.num_heard
        reply = self.turn.receive(message)
        if isinstance(message, wire.Opened):
            self._cloud.opened(self.turn.model)
        if isinstance(message, wire.Opened) or self.turn.num_heard > num_heard:
            self._moved_at = self._clock()  # repeated news is no progress
        if isinstance(reply, Verdict):
            self._cloud.verdict_came()
        if reply is not None:
            waiting = self._waiting.get(reply.number)
            if waiting is not None and not waiting.done():
                waiting.set_result(reply)
        self._moved.set()
        self._wake.set()
        return True

    def _rejected(self, message: wire.Rejected) -> None:
        reason = one_line(message.reason)
        if message.is_final:
            self.lose(f"{self._cloud.name} refuses: {reason}")
        else:
            self._is_behind = True
            self._cloud.trouble = reason

    def _send_soon(self, is_wanted: bool) -> None:
        if is_wanted:
            self._wanted.set()
        self._wake.set()

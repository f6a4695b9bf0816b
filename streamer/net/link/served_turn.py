"""One turn on a verifier: its messages in order, on one websocket after another.

A reader and a worker share each websocket. The reader always reads, so pings are answered and a cut
is seen at once; it pauses only where an edge sends MAX_WAITING messages ahead of the worker. The
turn's state changes only in the worker. Messages of a cut websocket that still wait are dropped,
since the edge sends them again.
"""

from __future__ import annotations

from contextlib import aclosing, suppress

import anyio
import numpy as np
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.decoding.verdict import Refusal
from streamer.core.link import wire
from streamer.core.link.edge_turn import PIECE_SAMPLES
from streamer.core.link.verifier_turn import Broken, VerifierTurn
from streamer.net.service.metrics import VerifierMetrics
from streamer.stages.ports import Judge

# messages of one turn: more than its unheard audio in pieces of 100 ms; 4 MB at most
MAX_WAITING = 64
MAX_TURN_IDLE_S = 300.0  # without a message
Message = wire.Up | Exception  # an exception is the last one: why there is no more


class ServedTurn:
    """See the module. tenant: the owner (net/service/admission.py)."""

    def __init__(
        self, state: VerifierTurn, judge: Judge, tenant: str, metrics: VerifierMetrics
    ) -> None:
        self.state = state
        self.judge = judge
        self.tenant = tenant
        # the websocket that serves the turn; None while it is held for its edge
        self.socket: ServerConnection | None = None
        # set when `socket` has let go of the turn
        self.released = anyio.Event()
        # set when an edge comes back to the turn
        self.came_back = anyio.Event()
        self._metrics = metrics
        self._num_received = 0  # samples
        self._is_prefilled = False  # to the turn's end

    @property
    def lag_s(self) -> float:
        """Seconds of audio that arrived and are not heard."""
        return max(0, self._num_received - self.state.num_samples) / SAMPLE_RATE_HZ

    async def serve(self, socket: ServerConnection, model: str) -> None:
        """Serve one websocket until it ends.

        Raises ConnectionClosed, Broken where the turn is over, wire.WireError for garbage, and the
        judge's errors.
        """
        await _send(socket, wire.Opened(self.state.num_samples, model))
        if self._is_prefilled:
            await self._send_heard(socket)
        self._num_received = self.state.num_samples
        give, messages = anyio.create_memory_object_stream[Message](MAX_WAITING)
        with give, messages:
            failure: Exception | None = None
            async with anyio.create_task_group() as group:
                group.start_soon(self._read, socket, give, messages)
                try:
                    await self._work(socket, messages)
                except Exception as error:
                    failure = error
                group.cancel_scope.cancel()
            assert failure is not None, "work ends by an error alone"
            raise failure

    async def _read(
        self,
        socket: ServerConnection,
        give: MemoryObjectSendStream[Message],
        messages: MemoryObjectReceiveStream[Message],
    ) -> None:
        """Read ahead of the worker."""
        try:
            while True:
                message = wire.decode_up(await socket.recv())
                if isinstance(message, wire.Audio):
                    before = min(self._num_received, message.start)
                    self._num_received = before + message.num_samples
                await give.send(message)
        except wire.WireError as error:
            await give.send(error)
        except ConnectionClosed as error:
            with suppress(anyio.WouldBlock):
                while True:
                    messages.receive_nowait()
            give.send_nowait(error)

    async def _work(
        self, socket: ServerConnection, messages: MemoryObjectReceiveStream[Message]
    ) -> None:
        """Do what the messages ask for, in their order. Raises what ends it."""
        following: Message | None = None
        while True:
            message = following or await _next(messages)
            following = None
            match message:
                case Exception():
                    raise message
                case wire.Audio():
                    following = await self._hear(message, messages)
                    await self._send_heard(socket)
                case wire.Finish():
                    await self._finish(message)
                    await self._send_heard(socket)
                case wire.Verify() | wire.Decode():
                    await self._judge(socket, message)
                case wire.Open():
                    raise Broken("the turn is open already")

    async def _hear(
        self, message: wire.Audio, messages: MemoryObjectReceiveStream[Message]
    ) -> Message | None:
        """Prefill audio; return the message that follows, where one was taken.

        Small pieces that wait are heard together, up to half a second: a hop to a thread for every
        20 ms would cost more than hearing them.
        """
        pieces = [self.state.audio(message)]
        following: Message | None = None
        with suppress(anyio.WouldBlock):
            while following is None and sum(map(len, pieces)) < PIECE_SAMPLES:
                another = messages.receive_nowait()
                if isinstance(another, wire.Audio):
                    pieces.append(self.state.audio(another))
                else:
                    following = another
        samples = np.concatenate(pieces)
        if len(samples):
            await self.judge.hear(samples)
        return following

    async def _finish(self, message: wire.Finish) -> None:
        self.state.finish(message)
        if not self._is_prefilled:
            await self.judge.finish()
            self._is_prefilled = True

    async def _judge(self, socket: ServerConnection, message: wire.Verify | wire.Decode) -> None:
        """Send one verdict, or those of a whole answer."""
        request = self.state.request(message)
        replies = self.judge.judge(request, isinstance(message, wire.Decode))
        since = anyio.current_time()
        async with aclosing(replies):
            async for reply in replies:
                now = anyio.current_time()
                self._metrics.judging.inc(now - since)
                since = now
                if isinstance(reply, Refusal):
                    self._metrics.refused.labels(reply.reason).inc()
                    await _send(socket, wire.Refused(reply.number, reply.reason))
                else:
                    self._metrics.verdict(request, reply)
                    await _send(socket, wire.Judged.of(reply))

    async def _send_heard(self, socket: ServerConnection) -> None:
        await _send(socket, wire.Heard(self.state.num_samples, self._is_prefilled))


async def _next(messages: MemoryObjectReceiveStream[Message]) -> Message:
    """Raises Broken where nothing comes."""
    with anyio.move_on_after(MAX_TURN_IDLE_S):
        return await messages.receive()
    raise Broken(f"nothing came for {MAX_TURN_IDLE_S:g} s", is_final=False)


async def _send(socket: ServerConnection, message: wire.Down) -> None:
    await socket.send(wire.encode(message))

"""One socket of a session, and whether its client still reads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import anyio
from websockets.exceptions import ConnectionClosed

from streamer.net.realtime.session import ClientSession
from streamer.net.service.metrics import Metrics
from streamer.net.service.service import ClientSocket

ACK_EVERY_S = 0.5
GOODBYES = (1000, 1001)  # from the client: it ends, or its page is left
EVERY_S = 0.5
PROBE_S = 8.0  # between pings while nothing is unread
# for a pong: a client that does not read is cut off within 10 s, one that vanished within 18
PATIENCE_S = 8.0


class Connection:
    """`run` it to its end; `hand_over` ends it when the client came back by another socket.

    Its tasks read, write, watch whether the client still reads, and acknowledge. Not reading on
    pushes audio back; events that wait are bounded by the Journal.
    """

    def __init__(self, socket: ClientSocket, session: ClientSession, metrics: Metrics) -> None:
        self.ended = anyio.Event()
        self.is_handed_over = False
        self._socket = socket
        self._session = session
        self._metrics = metrics
        self._journal = session.journal
        self._is_taking = False  # a message, which the client's pong may have to wait for
        self._reading = anyio.CancelScope()

    async def run(self, first: int, greeting: Sequence[bytes] = ()) -> bool:
        """Serve event `first` and all later ones. Returns whether the client said goodbye."""
        self._journal.attach(True)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._write, first, greeting)
                group.start_soon(self._end_if_deaf)
                group.start_soon(self._acknowledge)
                group.start_soon(self._end_with_session)
                is_goodbye = await self._read()
                group.cancel_scope.cancel()
        finally:
            self._journal.attach(False)
            self.ended.set()
        return is_goodbye

    async def hand_over(self) -> None:
        """Take no further message; returns when the current one is taken."""
        self.is_handed_over = True
        self._reading.cancel()
        await self.ended.wait()

    async def _read(self) -> bool:
        with self._reading:
            # A client that sends faster than it is heard never lets the scope be cancelled.
            while not self.is_handed_over:
                self._is_taking = False
                try:
                    message = await self._socket.recv()
                    await self._journal.room()
                except ConnectionClosed as closed:
                    return _is_goodbye(closed)
                self._is_taking = True
                await self._session.take(message)
        return False

    async def _write(self, number: int, greeting: Sequence[bytes]) -> None:
        with suppress(ConnectionClosed):
            for text in greeting:
                await self._socket.send(text, text=True)
            while not self._socket.transport.is_closing():  # asyncio would log each further write
                await self._journal.more(number)
                number = max(number, self._journal.first)
                await self._socket.send(self._journal[number], text=True)
                number += 1
                self._journal.sent(number)
        self._journal.attach(False)  # wakes a reader that waits for room, to notice the end

    async def _end_if_deaf(self) -> None:
        """Cut off a client that answers no ping. A socket takes megabytes before a send waits, so
        nothing else tells."""
        while await self._is_answered():
            with anyio.move_on_after(PROBE_S):  # an idle client costs little
                await anyio.sleep(EVERY_S)
                await self._journal.more(self._journal.num_read)
        self._metrics.slow_readers.inc()
        self._socket.transport.abort()

    async def _is_answered(self) -> bool:
        """Whether a ping is answered in time. While audio or a thousand requests are being taken,
        or a large message arrives, the pong waits after them, and patience is not spent. It is
        where no byte of that message comes: the client may have vanished in it."""
        is_over = anyio.Event()
        left_s, num_arrived = PATIENCE_S, 0
        async with anyio.create_task_group() as group:
            group.start_soon(self._ping, is_over)
            while left_s > 0 and not is_over.is_set():
                with anyio.move_on_after(EVERY_S):
                    await is_over.wait()
                is_busy = self._is_taking and not self._journal.is_full
                before, num_arrived = num_arrived, self._socket.num_arrived
                if num_arrived > before:
                    left_s = PATIENCE_S
                elif not is_busy:
                    left_s -= EVERY_S
            group.cancel_scope.cancel()
        return is_over.is_set()

    async def _ping(self, is_over: anyio.Event) -> None:
        num_sent = self._journal.num_sent
        with suppress(ConnectionClosed):  # the reader notices it too
            await (await self._socket.ping())
            self._journal.confirm(num_sent)  # everything sent before the ping was read
        is_over.set()

    async def _acknowledge(self) -> None:
        while True:
            await self._session.has_taken.wait()
            await anyio.sleep(ACK_EVERY_S)
            self._session.acknowledge()

    async def _end_with_session(self) -> None:
        await self._session.over.wait()
        await self._socket.close(*self._session.goodbye)


def _is_goodbye(closed: ConnectionClosed) -> bool:
    """Whether the client ended, or broke the protocol; a cut link is neither."""
    if closed.rcvd is not None:
        return closed.rcvd.code in GOODBYES
    return closed.sent is not None

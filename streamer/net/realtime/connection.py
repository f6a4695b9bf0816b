"""One socket of a session, and whether its client still reads."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

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
    pushes audio back; events that wait are bounded by the Journal, the wait by ReadWatch.
    """

    def __init__(self, socket: ClientSocket, session: ClientSession, metrics: Metrics) -> None:
        self.ended = anyio.Event()
        self.is_handed_over = False
        self._socket = socket
        self._session = session
        self._metrics = metrics
        self._journal = session.journal
        self._watch = ReadWatch(socket, session)
        self._reading = anyio.CancelScope()

    async def run(self, first: int, greeting: Sequence[bytes] = ()) -> bool:
        """Serve event `first` and all later ones. Returns whether the client said goodbye."""
        self._watch.sent(first)
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
                self._watch.wait_begins()
                try:
                    message = await self._socket.recv()
                    await self._journal.room()
                except ConnectionClosed as closed:
                    return _is_goodbye(closed)
                self._watch.wait_ends()
                await self._session.take(message)
        return False

    async def _write(self, number: int, greeting: Sequence[bytes]) -> None:
        try:
            for text in greeting:
                await self._socket.send(text, text=True)
            while True:
                await self._journal.more(number)
                number = max(number, self._journal.first)
                if self._socket.transport.is_closing():  # asyncio would log each further write
                    return
                await self._socket.send(self._journal[number], text=True)
                number += 1
                self._watch.sent(number)
                self._journal.sent(number)
        except ConnectionClosed:
            return  # the reader notices it too

    async def _end_if_deaf(self) -> None:
        if await self._watch.run():
            self._metrics.slow_readers.inc()
            self._socket.transport.abort()
        self._journal.attach(False)  # tasks that wait for room go on and notice the end

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


class ReadWatch:
    """Finds out whether the other side of a socket still reads, and how far.

    A socket takes megabytes before a send waits, so pings between the events serve as marks: a pong
    means that everything sent before it was read. Patience is spent only while the server waits for
    the client, for its next message or for room for events: while audio or a thousand requests are
    being worked on, the pong waits after them, as it does after a large message that is arriving.
    """

    def __init__(self, socket: ClientSocket, session: ClientSession) -> None:
        self._socket = socket
        self._journal = session.journal
        # seconds in which the reader waited for messages, and since when it does
        self._waited_s = 0.0
        self._waits_since = math.inf
        # events below this number were sent
        self._num_sent = 0
        self._has_sent = anyio.Event()
        self._answered = anyio.Event()
        self._is_closed = False

    def sent(self, number: int) -> None:
        """All events below this number were sent."""
        self._num_sent = number
        self._has_sent.set()

    def wait_begins(self) -> None:
        """The reader waits for a message."""
        self._waits_since = time.monotonic()

    def wait_ends(self) -> None:
        self._waited_s = self._idle_s()
        self._waits_since = math.inf

    async def run(self) -> bool:
        """Returns True if nothing was read for PATIENCE_S, False if the socket is closed."""
        while True:
            await self._until_due()
            num_sent = self._num_sent
            self._answered = anyio.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(self._ping)
                is_answered = await self._wait()
                group.cancel_scope.cancel()
            if self._is_closed or not is_answered:
                return not self._is_closed
            self._journal.confirm(num_sent)

    async def _until_due(self) -> None:
        """Wait until something is unread, at most PROBE_S. An idle client costs nothing."""
        with anyio.move_on_after(PROBE_S):
            await anyio.sleep(EVERY_S)
            while self._num_sent <= self._journal.num_read:
                self._has_sent = anyio.Event()
                await self._has_sent.wait()

    async def _ping(self) -> None:
        try:
            await (await self._socket.ping())
        except ConnectionClosed:
            self._is_closed = True
        self._answered.set()

    async def _wait(self) -> bool:
        """Whether the pong came in time."""
        patience_s = PATIENCE_S
        idle_s = self._idle_s()
        while patience_s > 0:
            with anyio.move_on_after(EVERY_S):
                await self._answered.wait()
                return True
            before_s = idle_s
            idle_s = self._idle_s()
            if not self._socket.is_receiving:
                patience_s -= EVERY_S if self._journal.is_full else idle_s - before_s
        return False

    def _idle_s(self) -> float:
        """Seconds in which the reader has waited, up to now."""
        return self._waited_s + max(0.0, time.monotonic() - self._waits_since)

"""One socket of a session. In: its messages. Out: the session's events from a given number on.

Four tasks: read, write, watch whether the client still reads, acknowledge. Audio is pushed back by
not reading on; what waits to be sent is bounded by the Journal, and how long it may wait by the
Pulse.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio
from websockets.exceptions import ConnectionClosed

from streamer.net.realtime.journal import Journal
from streamer.net.realtime.keepalive import Pulse
from streamer.net.realtime.session import Talk
from streamer.net.service.metrics import Metrics
from streamer.net.service.service import ClientSocket

ACK_EVERY_S = 0.5
GOODBYES = (1000, 1001)  # from the client: it ends, or its page is left


class Connection:
    """`run` it to its end; `hand_over` ends it because the client came back by another socket."""

    def __init__(self, socket: ClientSocket, talk: Talk, metrics: Metrics) -> None:
        self._socket = socket
        self._talk = talk
        self._metrics = metrics
        self._journal: Journal = talk.journal
        self._pulse = Pulse(socket, talk.journal)
        self._reading = anyio.CancelScope()
        self.ended = anyio.Event()
        self.is_handed_over = False

    async def run(self, first: int, greeting: Sequence[bytes] = ()) -> bool:
        """Serve event `first` and all after it. Whether the client said goodbye."""
        self._pulse.sent(first)
        self._journal.read_by(True)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._write, first, greeting)
                group.start_soon(self._watch)
                group.start_soon(self._acknowledge)
                group.start_soon(self._until_over)
                is_goodbye = await self._read()
                group.cancel_scope.cancel()
        finally:
            self._journal.read_by(False)
            self.ended.set()
        return is_goodbye

    async def hand_over(self) -> None:
        """Take no further message; returns when the one in hand is taken whole."""
        self.is_handed_over = True
        self._reading.cancel()
        await self.ended.wait()

    async def _read(self) -> bool:
        with self._reading:
            # A client that sends faster than it is heard never lets the scope be cancelled.
            while not self.is_handed_over:
                self._pulse.wait_begins()
                try:
                    message = await self._socket.recv()
                    await self._journal.room()
                except ConnectionClosed as closed:
                    return _is_goodbye(closed)
                self._pulse.wait_ends()
                if not self._talk.take_nowait(message):
                    with anyio.CancelScope(shield=True):
                        await self._talk.take(message)
        return False

    async def _write(self, number: int, greeting: Sequence[bytes]) -> None:
        try:
            for text in greeting:
                await self._socket.send(text, text=True)
            while True:
                await self._journal.more(number)
                if self._socket.transport.is_closing():  # asyncio would log each further write
                    return
                await self._socket.send(self._journal[number], text=True)
                number += 1
                self._pulse.sent(number)
                self._journal.sent(number)
        except ConnectionClosed:
            return  # the reader notices it too

    async def _watch(self) -> None:
        if await self._pulse.watch():
            self._metrics.slow_readers.inc()
            self._socket.transport.abort()
        self._journal.read_by(False)  # so that whoever waits for room goes on, and notices

    async def _acknowledge(self) -> None:
        while True:
            await self._talk.has_taken()
            await anyio.sleep(ACK_EVERY_S)
            self._talk.acknowledge()

    async def _until_over(self) -> None:
        """A session that has ended ends its socket."""
        await self._talk.over.wait()
        await self._socket.close(*self._talk.goodbye)


def _is_goodbye(closed: ConnectionClosed) -> bool:
    """Whether the client ended, or broke the protocol; a link that was cut is neither."""
    if closed.rcvd is not None:
        return closed.rcvd.code in GOODBYES
    return closed.sent is not None

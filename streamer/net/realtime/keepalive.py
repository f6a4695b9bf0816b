"""Does the other side still read? In: how far a Journal was sent. Out: how far it was read.

A socket takes megabytes before a send waits, so pings go out between the events as marks: a pong
says that what was sent before it was read. Patience is only spent while it is the client's turn,
when we wait for its next message or for room to say more: as long as its audio or its thousand
requests are being worked on, its pong waits behind them, as it does behind a message of megabytes
that is still coming.
"""

from __future__ import annotations

import math
import time

import anyio
from websockets.exceptions import ConnectionClosed

from streamer.net.realtime.journal import Journal
from streamer.net.service.service import ClientSocket

EVERY_S = 0.5
PROBE_S = 8.0  # between pings where nothing is unread
# for a pong: a client that does not read is cut off within 10 s, one that vanished within 18
PATIENCE_S = 8.0


class Pulse:
    """Of one socket: told what its reader waits for and its writer sent. See `watch`."""

    def __init__(self, socket: ClientSocket, journal: Journal) -> None:
        # for messages of the client
        self._waited_s = 0.0
        self._waits_since = math.inf
        self.num_sent = 0  # events below this number
        self._has_sent = anyio.Event()
        self._socket = socket
        self._journal = journal
        self._answered = anyio.Event()
        self._is_closed = False

    def sent(self, number: int) -> None:
        """The writer has sent all events below this number."""
        self.num_sent = number
        self._has_sent.set()

    def wait_begins(self) -> None:
        """The reader waits for a message."""
        self._waits_since = time.monotonic()

    def wait_ends(self) -> None:
        self._waited_s = self._idle_s()
        self._waits_since = math.inf

    async def watch(self) -> bool:
        """True when nothing was read for PATIENCE_S, False when the socket is closed."""
        while True:
            await self._until_due()
            num_sent = self.num_sent
            self._answered = anyio.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(self._ask)
                is_answered = await self._wait()
                group.cancel_scope.cancel()
            if self._is_closed or not is_answered:
                return not self._is_closed
            self._journal.confirm(num_sent)

    async def _until_due(self) -> None:
        """Until something is unread, or for PROBE_S. An idle client costs nothing meanwhile."""
        with anyio.move_on_after(PROBE_S):
            await anyio.sleep(EVERY_S)
            while self.num_sent <= self._journal.num_read:
                self._has_sent = anyio.Event()
                await self._has_sent.wait()

    async def _ask(self) -> None:
        try:
            await (await self._socket.ping())
        except ConnectionClosed:
            self._is_closed = True
        self._answered.set()

    async def _wait(self) -> bool:
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

"""Room for large messages. In: a client's bytes. Out: a pause for a client that has no room yet.

websockets holds a message in memory until it is whole. A client may append 15 MiB of audio at once,
and a hundred clients at the same moment must not fill the memory. So NUM_BIG messages beyond
BIG_BYTES are read at a time, each until it has been taken; further clients wait, as if the network
were slow.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum, auto
from typing import Any, cast

from websockets.asyncio.server import ServerConnection
from websockets.frames import DATA_OPCODES, Frame

BIG_BYTES = 1 << 20
NUM_BIG = 4
PATIENCE_S = 60.0  # for a big message to come, where others wait for its room


class Reading(Enum):
    """Where a connection is with a big message."""

    SMALL = auto()  # there is none
    WAITING = auto()  # for room: nothing is read
    COMING = auto()
    WHOLE = auto()  # in the queue: nothing more is read
    TAKEN = auto()  # by the handler, which is at work on it


class BigMessages:
    """The room of one service."""

    def __init__(self) -> None:
        self._num_free = NUM_BIG
        self._waiting: deque[PacedConnection] = deque()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for room."""
        return bool(self._waiting)

    def enter(self, connection: PacedConnection) -> bool:
        """Whether there is room; else `connection.go_on` is called when there is."""
        if self._num_free:
            self._num_free -= 1
            return True
        self._waiting.append(connection)
        return False

    def leave(self) -> None:
        """The room goes to who has waited longest."""
        if self._waiting:
            self._waiting.popleft().go_on()
        else:
            self._num_free += 1

    def give_up(self, connection: PacedConnection) -> None:
        """It waits no more."""
        self._waiting.remove(connection)


class PacedConnection(ServerConnection):
    """A connection whose big messages wait for their room."""

    def __init__(self, room: BigMessages, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.tenant = ""  # whose session it is (admission.py)
        self._room = room
        self._reading = Reading.SMALL
        self._num_fragmented = 0  # bytes of the fragments that wait for their last one
        self._late: asyncio.TimerHandle | None = None

    @property
    def is_with_big(self) -> bool:
        """Whether a big message is on its way: the client's pong may be stuck behind it."""
        return self._reading in (Reading.WAITING, Reading.COMING, Reading.WHOLE)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        num_pending = self._num_fragmented + len(self.protocol.reader.buffer)
        if self._reading is Reading.SMALL and num_pending > BIG_BYTES:
            if self._room.enter(self):
                self._come()
            else:
                self._reading = Reading.WAITING
        elif self._reading is Reading.COMING and num_pending <= BIG_BYTES:
            self._reading = Reading.WHOLE
            self._stop_clock()
        # websockets may have let the transport go on, for its own queue
        if self._reading in (Reading.WAITING, Reading.WHOLE, Reading.TAKEN):
            self.transport.pause_reading()

    def process_event(self, event: Any) -> None:
        super().process_event(event)
        if isinstance(event, Frame) and event.opcode in DATA_OPCODES:
            self._num_fragmented = 0 if event.fin else self._num_fragmented + len(event.data)

    async def recv(self, decode: bool | None = None) -> Any:
        if self._reading is Reading.TAKEN:
            self._leave()
            if not self.recv_messages.paused:
                self.transport.resume_reading()
        message = await super().recv(decode)
        if self._reading is Reading.WHOLE and len(message) > BIG_BYTES // 2:
            self._reading = Reading.TAKEN
        return message

    def go_on(self) -> None:
        """There is room now."""
        self._come()
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reading is Reading.WAITING:
            self._room.give_up(self)
            self._reading = Reading.SMALL
        elif self._reading is not Reading.SMALL:
            self._leave()
        super().connection_lost(exc)

    def _come(self) -> None:
        self._reading = Reading.COMING
        self._late = self.loop.call_later(PATIENCE_S, self._too_slow)

    def _leave(self) -> None:
        self._reading = Reading.SMALL
        self._stop_clock()
        self._room.leave()

    def _too_slow(self) -> None:
        if self._room.is_wanted:
            self.transport.abort()
        else:
            self._late = self.loop.call_later(PATIENCE_S, self._too_slow)

    def _stop_clock(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def connections_of(room: BigMessages) -> type[ServerConnection]:
    """For websockets' `create_connection`."""

    def make(*arguments: Any, **options: Any) -> PacedConnection:
        return PacedConnection(room, *arguments, **options)

    return cast("type[ServerConnection]", make)

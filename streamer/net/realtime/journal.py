"""Numbers a session's events and keeps those that its client may still have to read.

A client that comes back asks for the next event by its number. Everything is bounded in bytes:
`room` waits while MAX_UNSENT_BYTES wait for an attached socket. KEPT_BYTES of read events are kept,
and the newest MAX_HELD_BYTES of all events. `streamer.resumed` says how many were dropped.
"""

from __future__ import annotations

from collections import deque

import anyio
import msgspec

from streamer.net.realtime.server_events import Event

# Counted until the socket gets them. Unread bytes would be no measure: the pong that confirms
# reading comes after everything that the client sent before, perhaps thousands of requests, which
# the server must take first.
MAX_UNSENT_BYTES = 256 << 10
KEPT_BYTES = 128 << 10  # the client's library has read them; the client itself may not have
MAX_HELD_BYTES = 3 << 20
OBJECT_BYTES = 64  # memory for an event beside its text

_encode = msgspec.json.Encoder().encode


class Journal:
    """One task appends; another takes `journal[number]` and calls `confirm`.

    first: number of the oldest event that is kept. num_sent: events that a socket was given.
    num_read: events that the client is known to have read.
    """

    def __init__(self, name: str) -> None:
        self.first = self.num_sent = self.num_read = 0
        self._is_attached = False
        self._name = name
        # with the bytes of memory of all events before them, since the session began
        self._events: deque[tuple[bytes, int]] = deque()
        self._total_bytes = 0
        self._changed = anyio.Event()

    @property
    def end(self) -> int:
        """The number that the next event will get."""
        return self.first + len(self._events)

    def __getitem__(self, number: int) -> bytes:
        """The event as JSON."""
        return self._events[number - self.first][0]

    @property
    def is_full(self) -> bool:
        """Whether `room` waits while a socket is attached."""
        return self._total_bytes - self._bytes_before(self.num_sent) >= MAX_UNSENT_BYTES

    def append(self, events: list[Event]) -> None:
        """Number and keep the events. Wait for `room` before."""
        for event in events:
            row = _encode({"event_id": f"event_{self._name}_{self.end}", **event})
            self._events.append((row, self._total_bytes))
            self._total_bytes += len(row) + OBJECT_BYTES
        self._drop()

    def sent(self, num_sent: int) -> None:
        """A socket was given every event below `num_sent`."""
        self.num_sent = max(self.num_sent, num_sent)
        self._wake()

    def confirm(self, num_read: int) -> None:
        """The client has read every event below `num_read`."""
        self.num_read = max(self.num_read, min(num_read, self.end))
        self.num_sent = max(self.num_sent, self.num_read)
        self._drop()

    def attach(self, is_attached: bool) -> None:
        """A socket came or went; without one, `room` and `all_read` do not wait."""
        self._is_attached = is_attached
        self._wake()

    async def room(self) -> None:
        """Wait until another event may be appended."""
        while self._is_attached and self.is_full:
            await self._changed.wait()

    async def more(self, number: int) -> None:
        """Wait until the event of this number exists."""
        while self.end <= number:
            await self._changed.wait()

    async def all_read(self) -> None:
        """Wait until the client has read everything, or no socket is attached."""
        while self._is_attached and self.num_read < self.end:
            await self._changed.wait()

    def _bytes_before(self, number: int) -> int:
        return self._total_bytes if number == self.end else self._events[number - self.first][1]

    def _drop(self) -> None:
        """Drop the oldest events over the bounds, which count as sent and read from here on."""
        while (
            self._total_bytes - self._bytes_before(self.first) > MAX_HELD_BYTES
            or self._bytes_before(self.num_read) - self._bytes_before(self.first) > KEPT_BYTES
        ):
            self._events.popleft()
            self.first += 1
            self.num_sent = max(self.num_sent, self.first)
            self.num_read = max(self.num_read, self.first)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

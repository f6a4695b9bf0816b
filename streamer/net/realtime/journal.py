"""What a session says, numbered from 0. In: events. Out: them as JSON, from any number kept.

A client that comes back asks for the next event by its number, so what it may not have read is
kept. Bounds: `room` waits while MAX_UNSENT events wait for the socket and somebody reads; KEPT of
those known to be read stay; of all there are MAX_HELD at most, of which the oldest go first (a
client that comes back is told how many).
"""

from __future__ import annotations

from collections import deque

import anyio
import msgspec

from streamer.net.realtime.server_events import Event

# Not yet given to the socket. What is unread is no measure: a pong tells that a client has
# read, and it stands behind all that the client has sent before, thousands of requests perhaps,
# which we must take to get to it.
MAX_UNSENT = 512
KEPT = 256  # a client's library has read them; the client itself may not have
MAX_HELD = 9_000

_encode = msgspec.json.Encoder().encode


class Journal:
    """One appends, one takes `journal[number]` and `confirm`s. is_read: somebody reads."""

    def __init__(self, name: str) -> None:
        self.first = 0  # the oldest event that is kept
        self.num_sent = 0  # events that any socket was given
        self.num_read = 0  # events that the client is known to have read
        self.is_read = False
        self._name = name
        self._events: deque[str] = deque()
        self._changed = anyio.Event()

    @property
    def end(self) -> int:
        """The number that the next event will get."""
        return self.first + len(self._events)

    def __getitem__(self, number: int) -> str:
        return self._events[number - self.first]

    @property
    def is_full(self) -> bool:
        """Whether `room` waits, where somebody reads."""
        return self.end - self.num_sent >= MAX_UNSENT

    def append(self, events: list[Event]) -> None:
        """Number and keep them. Call `room` before."""
        for event in events:
            named = {"event_id": f"event_{self._name}_{self.end}", **event}
            self._events.append(_encode(named).decode())
            if len(self._events) > MAX_HELD:
                self._forget(1)
        self._wake()

    def sent(self, num_sent: int) -> None:
        """A socket was given every event below `num_sent`."""
        self.num_sent = max(self.num_sent, num_sent)
        self._wake()

    def confirm(self, num_read: int) -> None:
        """The client has read every event below `num_read`."""
        self.num_read = max(self.num_read, min(num_read, self.end))
        self._forget(self.num_read - KEPT - self.first)
        self._wake()

    def read_by(self, somebody: bool) -> None:
        """Whether a socket is attached; nobody waits for one that is not."""
        self.is_read = somebody
        self._wake()

    async def room(self) -> None:
        """Wait until another event may be appended."""
        while self.is_read and self.is_full:
            await self._changed.wait()

    async def more(self, number: int) -> None:
        """Wait until the event of this number is there."""
        while self.end <= number:
            await self._changed.wait()

    async def all_read(self) -> None:
        """Wait until the client has read everything, or nobody reads."""
        while self.is_read and self.num_read < self.end:
            await self._changed.wait()

    def _forget(self, num: int) -> None:
        for _ in range(num):
            self._events.popleft()
            self.first += 1
        self.num_read = max(self.num_read, self.first)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

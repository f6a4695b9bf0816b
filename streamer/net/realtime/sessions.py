"""Every session of a server by its id, with a client or held for one that was cut; their sockets.

Bounded: sessions with and without a client are at most `max_sessions`; one that is held keeps its
place, as its client was promised. A session ends when its client says goodbye, or when it was held
for `hold_s`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence

import anyio
from anyio.abc import TaskGroup
from websockets.exceptions import ConnectionClosed

from streamer.net.realtime.conversation import Conversation
from streamer.net.realtime.journal import Journal
from streamer.net.realtime.session import FAILED, ClientSession, OpenSession, Resume
from streamer.net.service.admission import Admission
from streamer.net.service.metrics import Metrics
from streamer.net.service.service import ClientSocket

HOLD_S = 30.0
CLOSE_S = 3.0
ENDED = (1000, "the session is over")
RESTART = (1012, "the server is going down")
NO_PLACE = (1013, "the session is over, or all are taken; connect anew in a moment")
TAKEN_OVER = (4409, "the session goes on in another connection")
ACK_EVERY_S = 0.5
GOODBYES = (1000, 1001)  # from the client: it ends, or its page is left

EVERY_S = 0.5
PROBE_S = 8.0  # between pings where nothing is unread
# for a pong: a client that does not read is cut off within 10 s, one that vanished within 18
PATIENCE_S = 8.0

_logger = logging.getLogger("streamer")


class HeldSession:
    """A session and the connection that serves it."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.connection: Connection | None = None
        self.is_held = False  # its link was cut, and the client has not come back yet
        # for sockets that take over, and the newest of them
        self.lock = anyio.Lock()
        self.newest: Connection | None = None
        self.came_back = anyio.Event()
        self.num_resumed = 0


class Sessions:
    """`serve` sockets with new sessions or with those that they resume; `drain` before the end."""

    def __init__(
        self,
        open_session: OpenSession,
        admission: Admission,
        metrics: Metrics,
        group: TaskGroup,
        hold_s: float,
    ) -> None:
        self._open = open_session
        self._admission = admission
        self._metrics = metrics
        self._group = group
        self._hold_s = hold_s
        self._places: dict[str, HeldSession] = {}

    @property
    def sessions(self) -> list[ClientSession]:
        return [place.session for place in self._places.values()]

    @property
    def num_held(self) -> int:
        """Sessions without a client."""
        return sum(place.is_held for place in self._places.values())

    def find(self, session_id: str) -> ClientSession | None:
        """The session of this id, while it lives."""
        place = self._places.get(session_id)
        return place.session if place else None

    async def serve(
        self, socket: ClientSocket, conversation: Conversation, resume: Resume | None
    ) -> None:
        """One socket, to its end, and the hold after it."""
        if resume is None:
            place = self._begin(conversation, socket.tenant)
        else:
            place = self._places.get(resume.session_id)
        if place is None:
            await socket.close(*(RESTART if self._admission.is_draining else NO_PLACE))
            return
        connection = Connection(socket, place.session, self._metrics)
        try:
            is_goodbye = await self._attach(place, connection, resume)
        except Exception:
            place.session.end(FAILED)
            raise
        if connection.is_handed_over:
            await socket.close(*TAKEN_OVER)
        elif is_goodbye:
            place.session.end(ENDED)
        else:
            self._metrics.drops.inc()
            await self._hold(place)

    async def drain(self, within_s: float) -> None:
        """Wait until turns in hand are answered and read; then close with 1012."""
        async with anyio.create_task_group() as group:
            for place in list(self._places.values()):
                group.start_soon(_drain, place, within_s)

    def _begin(self, conversation: Conversation, tenant: str) -> HeldSession | None:
        if self._admission.is_draining or self._admission.why_full(tenant) is not None:
            return None  # so since the handshake began
        # before anything is awaited: others come at the same moment
        self._admission.enter(tenant)
        place = HeldSession(ClientSession(conversation, self._open, self._metrics))
        self._places[conversation.id] = place
        self._group.start_soon(self._run, place, tenant)
        return place

    async def _run(self, place: HeldSession, tenant: str) -> None:
        """An error in a session ends it alone."""
        try:
            await place.session.run()
        except Exception as error:
            self._metrics.failed.inc()
            _logger.error("session.failed", exc_info=error)
        finally:
            del self._places[place.session.conversation.id]
            self._admission.leave(tenant)
            place.came_back.set()

    async def _attach(
        self, place: HeldSession, connection: Connection, resume: Resume | None
    ) -> bool:
        """Serve the session by this connection alone. Whether its client said goodbye. Where
        several come at once, the newest has it."""
        place.newest = connection
        async with place.lock:
            # a link that is dead and not yet missed, most often
            if place.connection is not None and place.newest is connection:
                await place.connection.hand_over()
                place.connection = None
            if place.newest is not connection:
                connection.is_handed_over = True
                return False
            place.connection = connection
        place.is_held = False
        try:
            if resume is None:
                return await connection.run(0)
            place.came_back.set()
            place.num_resumed += 1
            self._metrics.resumed.inc()
            first, told = resume.begin(place.session, f"event_resumed_{place.num_resumed}")
            return await connection.run(first, [told])
        finally:
            if not connection.is_handed_over:
                place.connection = None

    async def _hold(self, place: HeldSession) -> None:
        """Until the client is back, in its new socket's task, or the session ends by itself."""
        session_id = place.session.conversation.id
        if session_id not in self._places:
            return
        place.is_held = True
        place.came_back = anyio.Event()
        with anyio.move_on_after(self._hold_s):
            await place.came_back.wait()
        if place.is_held:
            place.session.end(ENDED)


async def _drain(place: HeldSession, within_s: float) -> None:
    with anyio.move_on_after(within_s):
        await place.session.drain()
        if place.connection is not None:
            await place.session.journal.all_read()
    place.session.end(RESTART)
    with anyio.move_on_after(CLOSE_S):
        await place.session.over.wait()
        if place.connection is not None:
            await place.connection.ended.wait()


class Connection:
    """One socket of a session: `run` it to its end; `hand_over` ends it where the client came back
    by another one.

    Four tasks: read, write, watch whether the client still reads, acknowledge. Audio is pushed back
    by not reading on; events that wait are bounded by the Journal, the wait by ReadWatch.
    """

    def __init__(self, socket: ClientSocket, session: ClientSession, metrics: Metrics) -> None:
        self._socket = socket
        self._session = session
        self._metrics = metrics
        self._journal: Journal = session.journal
        self._watcher = ReadWatch(socket, session.journal)
        self._reading = anyio.CancelScope()
        self.ended = anyio.Event()
        self.is_handed_over = False

    async def run(self, first: int, greeting: Sequence[bytes] = ()) -> bool:
        """Serve event `first` and all after it. Whether the client said goodbye."""
        self._watcher.sent(first)
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
                self._watcher.wait_begins()
                try:
                    message = await self._socket.recv()
                    await self._journal.room()
                except ConnectionClosed as closed:
                    return _is_goodbye(closed)
                self._watcher.wait_ends()
                if not self._session.take_nowait(message):
                    with anyio.CancelScope(shield=True):
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
                self._watcher.sent(number)
                self._journal.sent(number)
        except ConnectionClosed:
            return  # the reader notices it too

    async def _watch(self) -> None:
        if await self._watcher.watch():
            self._metrics.slow_readers.inc()
            self._socket.transport.abort()
        self._journal.read_by(False)  # so that tasks that wait for room go on, and notice

    async def _acknowledge(self) -> None:
        while True:
            await self._session.has_taken()
            await anyio.sleep(ACK_EVERY_S)
            self._session.acknowledge()

    async def _until_over(self) -> None:
        """A session that has ended ends its socket."""
        await self._session.over.wait()
        await self._socket.close(*self._session.goodbye)


def _is_goodbye(closed: ConnectionClosed) -> bool:
    """Whether the client ended, or broke the protocol; a link that was cut is neither."""
    if closed.rcvd is not None:
        return closed.rcvd.code in GOODBYES
    return closed.sent is not None


class ReadWatch:
    """Finds out whether the other side of a socket still reads, and how far.

    A socket takes megabytes before a send waits, so pings go out between the events as marks: a
    pong says that what was sent before it was read. Patience is only spent while it is the client's
    turn, when the server waits for its next message or for room to say more: as long as its audio
    or its thousand requests are being worked on, its pong waits after them, as it does after a
    message of megabytes that is still coming.
    """

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

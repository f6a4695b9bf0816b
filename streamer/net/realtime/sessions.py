"""Every session of a server, by its id: with a client, or held for one that was cut. In: sockets.

Bounded: sessions with and without a client are at most `max_sessions`; one that is held keeps its
place, as its client was promised. A session ends when its client says goodbye, or when it was held
for `hold_s`.
"""

from __future__ import annotations

import logging

import anyio
from anyio.abc import TaskGroup

from streamer.net.realtime.connection import Connection
from streamer.net.realtime.conversation import Conversation
from streamer.net.realtime.resume import Resume
from streamer.net.realtime.session import FAILED, OpenSession, Talk
from streamer.net.service.admission import Admission
from streamer.net.service.metrics import Metrics
from streamer.net.service.service import ClientSocket

HOLD_S = 30.0
CLOSE_S = 3.0
ENDED = (1000, "the session is over")
RESTART = (1012, "the server is going down")
NO_PLACE = (1013, "the session is over, or all are taken; connect anew in a moment")
TAKEN_OVER = (4409, "the session goes on in another connection")
_logger = logging.getLogger("streamer")


class SessionPlace:
    """A session and who serves it."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.connection: Connection | None = None
        self.is_held = False  # its link was cut, and nobody has come back yet
        self.lock = anyio.Lock()  # of sockets that want to take over
        self.newest: Connection | None = None  # of them
        self.came_back = anyio.Event()
        self.num_resumed = 0


class Hub:
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
        self._places: dict[str, SessionPlace] = {}

    @property
    def talks(self) -> list[Talk]:
        return [place.talk for place in self._places.values()]

    @property
    def num_held(self) -> int:
        """Sessions without a client."""
        return sum(place.is_held for place in self._places.values())

    def find(self, session_id: str) -> Talk | None:
        """The session of this id, while it lives."""
        place = self._places.get(session_id)
        return place.talk if place else None

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
        connection = Connection(socket, place.talk, self._metrics)
        try:
            is_goodbye = await self._attach(place, connection, resume)
        except Exception:
            place.talk.end(FAILED)
            raise
        if connection.is_handed_over:
            await socket.close(*TAKEN_OVER)
        elif is_goodbye:
            place.talk.end(ENDED)
        else:
            self._metrics.drops.inc()
            await self._hold(place)

    async def drain(self, within_s: float) -> None:
        """What was said is answered and read; then close 1012, so that clients come again."""
        async with anyio.create_task_group() as group:
            for place in list(self._places.values()):
                group.start_soon(_drain, place, within_s)

    def _begin(self, conversation: Conversation, tenant: str) -> SessionPlace | None:
        if self._admission.is_draining or self._admission.why_full(tenant) is not None:
            return None  # so since the handshake began
        # before anything is awaited: others come at the same moment
        self._admission.enter(tenant)
        place = SessionPlace(Talk(conversation, self._open, self._metrics))
        self._places[conversation.id] = place
        self._group.start_soon(self._run, place, tenant)
        return place

    async def _run(self, place: SessionPlace, tenant: str) -> None:
        """What goes wrong in a session ends it alone."""
        try:
            await place.talk.run()
        except Exception as error:
            self._metrics.failed.inc()
            _logger.error("session.failed", exc_info=error)
        finally:
            del self._places[place.talk.conversation.id]
            self._admission.leave(tenant)
            place.came_back.set()

    async def _attach(
        self, place: SessionPlace, connection: Connection, resume: Resume | None
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
            first, told = resume.begin(place.talk, f"event_resumed_{place.num_resumed}")
            return await connection.run(first, [told])
        finally:
            if not connection.is_handed_over:
                place.connection = None

    async def _hold(self, place: SessionPlace) -> None:
        """Until the client is back, in its new socket's task, or the session ends by itself."""
        session_id = place.talk.conversation.id
        if session_id not in self._places:
            return
        place.is_held = True
        place.came_back = anyio.Event()
        with anyio.move_on_after(self._hold_s):
            await place.came_back.wait()
        if place.is_held:
            place.talk.end(ENDED)


async def _drain(place: SessionPlace, within_s: float) -> None:
    with anyio.move_on_after(within_s):
        await place.talk.drain()
        if place.connection is not None:
            await place.talk.journal.all_read()
    place.talk.end(RESTART)
    with anyio.move_on_after(CLOSE_S):
        await place.talk.over.wait()
        if place.connection is not None:
            await place.connection.ended.wait()

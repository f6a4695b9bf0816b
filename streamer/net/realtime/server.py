"""The server of `streamer serve`: OpenAI Realtime, sessions that can be resumed, a page.

Sessions with and without a client are at most `max_sessions`. A session whose link was cut keeps
its place for `hold_s`. It ends when its client says goodbye, or does not come back in time.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from streamer.core.attributes import level_names
from streamer.core.text.chinese import texts
from streamer.net.realtime.client_events import Kind, ServerTerms
from streamer.net.realtime.conversation import Conversation
from streamer.net.realtime.server_events import MODEL
from streamer.net.realtime.session import FAILED, ClientSession, Connection, OpenSession, Resume
from streamer.net.service.admission import Admission, HttpRefusal, new_session_id
from streamer.net.service.http import ClientSocket, answer_json, read_page
from streamer.net.service.metrics import Metrics
from streamer.net.service.service import Query, Service

PATH = "/v1/realtime"
PAGE = Path(__file__).parent.parent / "page"
MAX_MESSAGE_BYTES = 5 << 20  # base64 of MAX_APPEND_BYTES; a little more is refused by an error
CLOSE_S = 3.0
ENDED = (1000, "the session is over")
RESTART = (1012, "the server is going down")
NO_PLACE = (1013, "the session is over, or all are taken; connect anew in a moment")
_logger = logging.getLogger("streamer")


class RealtimeServer(Service):
    """Serves one pair to many clients. `run` returns when it was stopped and has drained."""

    metrics: Metrics

    max_message_bytes = MAX_MESSAGE_BYTES
    kind = "server"
    ping_interval_s = None

    def __init__(
        self, open_session: OpenSession, admission: Admission, terms: ServerTerms | None = None
    ) -> None:
        super().__init__(admission, Metrics())
        self._open_session = open_session
        self._terms = terms or ServerTerms()
        self._sessions: dict[str, ClientSession] = {}  # by their ids
        self._group: TaskGroup
        spoken = self._terms.spoken
        of_page = {"levels": level_names(spoken), "languages": list(spoken), **texts()}
        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "streamer"}
        told = {
            "/server.json": of_page,
            "/v1/models": {"object": "list", "data": [model]},
            f"/v1/models/{MODEL}": model,
        }
        answers = {path: answer_json(found) for path, found in told.items()}
        self._files = read_page(PAGE) | answers

    @property
    def sessions(self) -> list[ClientSession]:
        return list(self._sessions.values())

    @property
    def num_held(self) -> int:
        """Sessions without a client."""
        return sum(session.connection is None for session in self.sessions)

    @property
    def lag_s(self) -> float:
        found = (session.backlog.get("audio_ms", 0) for session in self.sessions)
        return max(found, default=0) / 1000

    def start(self, group: TaskGroup) -> None:
        self._group = group
        watch = self.metrics.watch
        watch("sessions", "Sessions with a client", lambda: len(self.sessions) - self.num_held)
        watch("sessions_held", "Sessions that wait for their client", lambda: self.num_held)
        told = "Audio taken and not yet heard, of the slowest session"
        watch("audio_lag_seconds", told, lambda: self.lag_s)

        def depth(queue: str) -> float:
            return sum(session.backlog.get(queue, 0) for session in self.sessions)

        depths = {name: partial(depth, name) for name in ("pieces", "turns", "events", "unread")}
        self.metrics.watch_each("queue_depth", "Waiting items, over all sessions", "queue", depths)

    def check(self, query: Query, tenant: str) -> None:
        """Raises HttpRefusal without a place for a new session, or a session to resume."""
        resume = Resume.parse(query)
        if resume is None:
            self._admission.check_room(tenant)
            return
        session = self._sessions.get(resume.session_id)
        if session is None:
            kept = f"one is kept for {self._terms.hold_s:g} s"
            raise HttpRefusal(404, f"no such session; {kept}; connect anew")
        end = session.journal.end
        if resume.event is not None and resume.event > end:
            raise HttpRefusal(400, f"event {resume.event} has not been; the next one is {end}")

    async def serve(self, socket: ClientSocket, query: Query) -> None:
        """Serve one socket to its end, and hold its session if the link was cut."""
        resume = Resume.parse(query)
        session = self._sessions.get(resume.session_id) if resume else self._begin(socket, query)
        if session is None:
            await socket.close(*(RESTART if self._admission.is_draining else NO_PLACE))
            return
        connection = Connection(socket, session, self.metrics)
        try:
            is_goodbye = await self._attach(session, connection, resume)
        except Exception:
            session.end(FAILED)
            raise
        if connection.is_handed_over:
            await socket.close(4409, "the session goes on in another connection")
            return
        if not is_goodbye:
            self.metrics.drops.inc()
            # until the client is back, by another socket, or the session ends by itself
            with anyio.move_on_after(self._terms.hold_s) as session.waiting:
                await session.over.wait()
        if is_goodbye or session.connection is None:
            session.end(ENDED)

    async def drain(self, within_s: float) -> None:
        """Wait until turns in progress are answered and read; then close with 1012."""
        async with anyio.create_task_group() as group:
            for session in self.sessions:
                group.start_soon(_drain, session, within_s)

    def _begin(self, socket: ClientSocket, query: Query) -> ClientSession | None:
        """A new session; None if the last place was taken since the handshake began."""
        tenant = socket.tenant
        if self._admission.is_draining or self._admission.why_full(tenant) is not None:
            return None
        self._admission.enter(tenant)  # before anything is awaited: others come at the same moment
        session_id = new_session_id(self._admission.name)
        is_transcription = query.get("intent") == ["transcription"]
        kind: Kind = "transcription" if is_transcription else "realtime"
        assert socket.request is not None
        headers = socket.request.headers
        offered = headers.get_all("OpenAI-Beta") + headers.get_all("Sec-WebSocket-Protocol")
        names = ("realtime=v1", "openai-beta.realtime-v1")
        is_beta = any(name in ",".join(offered) for name in names)
        conversation = Conversation(session_id, kind, self._terms, is_beta)
        session = ClientSession(conversation, self._open_session, self.metrics)
        self._sessions[session_id] = session
        self._group.start_soon(self._run, session, tenant)
        return session

    async def _run(self, session: ClientSession, tenant: str) -> None:
        """Run a session. An error ends it alone."""
        try:
            await session.run()
        except Exception as error:
            self.metrics.failed.inc()
            _logger.error("session.failed", exc_info=error)
        finally:
            del self._sessions[session.conversation.id]
            self._admission.leave(tenant)

    async def _attach(
        self, session: ClientSession, connection: Connection, resume: Resume | None
    ) -> bool:
        """Serve the session by this connection alone, after the one before it; one that waits here
        hands over, too. Returns whether the client said goodbye."""
        before, session.connection = session.connection, connection
        try:
            if before is not None:  # most often a dead link that was not noticed yet
                await before.hand_over()
            if connection.is_handed_over:
                return False
            if resume is None:
                return await connection.run(0)
            session.waiting.cancel()
            self.metrics.resumed.inc()
            first, row = session.resume(resume)
            return await connection.run(first, [row])
        finally:
            connection.ended.set()
            if session.connection is connection:
                session.connection = None


async def _drain(session: ClientSession, within_s: float) -> None:
    with anyio.move_on_after(within_s):
        await session.drain()
        if session.connection is not None:
            await session.journal.all_read()
    session.end(RESTART)
    with anyio.move_on_after(CLOSE_S):
        await session.over.wait()
        if session.connection is not None:
            await session.connection.ended.wait()

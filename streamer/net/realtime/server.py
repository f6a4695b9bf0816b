"""The server of `streamer serve`: OpenAI Realtime, sessions that can be resumed, a page.

Sessions with and without a client are at most `max_sessions`. A session whose link was cut keeps
its place for `hold_s`. It ends when its client says goodbye, or does not come back in time.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from websockets.exceptions import ConnectionClosed

from streamer.core.attributes import level_names
from streamer.core.text import texts
from streamer.extras import load
from streamer.net.realtime.client_events import Kind, ServerTerms
from streamer.net.realtime.conversation import MODEL, Conversation
from streamer.net.realtime.session import FAILED, ClientSession, OpenSession, Resume
from streamer.net.service.admission import Admission, HttpRefusal, busy
from streamer.net.service.metrics import Metrics
from streamer.net.service.service import RESTART, ClientSocket, Service, answer_json, read_page
from streamer.stages.events import quietly

PATH = "/v1/realtime"
PAGE = Path(__file__).parent.parent / "page"
MAX_MESSAGE_BYTES = 5 << 20  # base64 of MAX_APPEND_BYTES; a little more is refused by an error
CLOSE_S = 3.0
ENDED = (1000, "the session is over")
NO_PLACE = (1013, "the session is over, or all are taken; connect anew in a moment")
ELSEWHERE = (4409, "the session goes on in another connection")
BETA = ("realtime=v1", "openai-beta.realtime-v1")  # how clients of the protocol's beta say so


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
        self._group: TaskGroup
        spoken = self._terms.spoken
        of_page = {"levels": level_names(spoken), "languages": list(spoken), **texts()}
        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "streamer"}
        self._files = read_page(PAGE, load("coach.page"))
        self._files["/server.json"] = answer_json(of_page)
        self._files["/v1/models"] = answer_json({"object": "list", "data": [model]})
        self._files[f"/v1/models/{MODEL}"] = answer_json(model)

    @property
    def sessions(self) -> list[ClientSession]:
        return list(self._admission.places.values())

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

    def check(self, socket: ClientSocket) -> None:
        """Raises HttpRefusal without a place for a new session, or a session to resume."""
        if (resume := Resume.parse(socket.query)) is None:
            if (told := self._admission.why_full(socket.tenant)) is not None:
                raise busy(f"{told}; try again later")
            return
        if (session := self._admission.places.get(resume.session_id)) is None:
            kept = f"one is kept for {self._terms.hold_s:g} s"
            raise HttpRefusal(404, f"no such session; {kept}; connect anew")
        end = session.journal.end
        if resume.event is not None and resume.event > end:
            raise HttpRefusal(400, f"event {resume.event} has not been; the next one is {end}")

    async def serve(self, socket: ClientSocket) -> None:
        """Serve one socket to its end, and hold its session if the link was cut."""
        resume = Resume.parse(socket.query)
        session = self._admission.places.get(resume.session_id) if resume else self._begin(socket)
        if session is None:
            await socket.close(*(RESTART if self._admission.is_draining else NO_PLACE))
            return
        connection = Connection(socket, session)
        before, session.connection = session.connection, connection
        if before is not None:  # most often of a dead link that was not noticed yet
            before.reading.cancel()
        is_goodbye = False
        async with session.serving:
            if session.connection is connection:
                session.waiting.cancel()
                try:
                    is_goodbye = await connection.run(resume)
                except Exception:
                    session.end(FAILED)
                    raise
        if session.connection is not connection:
            await socket.close(*ELSEWHERE)
            return
        session.connection = None
        if not is_goodbye:
            self.metrics.drops.inc()
            # until the client is back, by another socket, or the session ends by itself
            with anyio.move_on_after(self._terms.hold_s) as session.waiting:
                await session.over.wait()
        if session.connection is None:
            session.end(ENDED)

    async def drain(self, within_s: float) -> None:
        """Wait until turns in progress are answered and read; then close with 1012."""
        async with anyio.create_task_group() as group:
            for session in self.sessions:
                group.start_soon(_drain, session, within_s)

    def _begin(self, socket: ClientSocket) -> ClientSession | None:
        """A new session; None if the last place was taken since the handshake began."""
        admission = self._admission
        if admission.is_draining or admission.why_full(socket.tenant) is not None:
            return None
        session_id = admission.new_session_id()
        is_transcription = socket.query.get("intent") == ["transcription"]
        kind: Kind = "transcription" if is_transcription else "realtime"
        assert socket.request is not None
        headers = socket.request.headers
        offered = headers.get_all("OpenAI-Beta") + headers.get_all("Sec-WebSocket-Protocol")
        is_beta = any(name in ",".join(offered) for name in BETA)
        conversation = Conversation(session_id, kind, self._terms, is_beta)
        session = ClientSession(conversation, self._open_session, self.metrics)
        session.tenant = socket.tenant
        # nothing was awaited since it was free: others come at the same moment
        admission.places[session_id] = session
        self._group.start_soon(self._run, session)
        return session

    async def _run(self, session: ClientSession) -> None:
        """Run a session. An error ends it alone."""
        try:
            await session.run()
        except Exception as error:
            self.failed("session", error)
        finally:
            del self._admission.places[session.conversation.id]


async def _drain(session: ClientSession, within_s: float) -> None:
    with anyio.move_on_after(within_s):
        await session.drain()
        await session.journal.all_read()
    session.end(RESTART)
    with anyio.move_on_after(CLOSE_S):
        await session.over.wait()
        async with session.serving:  # its socket is closed
            pass


GOODBYES = (1000, 1001)  # from the client: it ends, or its page is left
EVERY_S = 0.5
PROBE_S = 8.0  # between pings while nothing is unread
# for a pong: a client that does not read is cut off within 10 s, one that vanished within 18
PATIENCE_S = 8.0


class Connection:
    """One of a session's sockets; `run` it while no other one runs.

    Its tasks read, write, acknowledge, and watch whether the client still reads. Not reading on
    pushes audio back; events that wait are bounded by the Journal.
    """

    def __init__(self, socket: ClientSocket, session: ClientSession) -> None:
        self._socket = socket
        self._session = session
        self._journal = session.journal
        self.reading = anyio.CancelScope()  # until the client comes back by another socket

    async def run(self, resume: Resume | None) -> bool:
        """Serve the session's events, of a new one from the first on. Returns whether the client
        said goodbye."""
        first, greeting = self._session.resume(resume) if resume else (0, None)
        self._journal.attach(True)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(quietly, self._write, first, greeting)
                group.start_soon(quietly, self._end_if_deaf)
                group.start_soon(quietly, self._acknowledge)
                group.start_soon(quietly, self._end_with_session)
                is_goodbye = await self._read()
                group.cancel_scope.cancel()
        finally:
            self._journal.attach(False)
        return is_goodbye

    async def _read(self) -> bool:
        with self.reading:
            # A client that sends faster than it is heard never lets the scope be cancelled.
            while self._session.connection is self:
                try:
                    message = await self._socket.recv()
                    await self._journal.room()
                except ConnectionClosed as closed:
                    if closed.rcvd is not None:
                        return closed.rcvd.code in GOODBYES
                    return closed.sent is not None  # it broke the protocol; a cut link is no end
                await self._session.take(message)
        return False

    async def _write(self, number: int, greeting: bytes | None) -> None:
        """Send the greeting, then the events from this number on."""
        with suppress(ConnectionClosed):
            if greeting is not None:
                await self._socket.send(greeting, text=True)
            while not self._socket.transport.is_closing():  # asyncio would log each further write
                await self._journal.more(number)
                number = max(number, self._journal.first)
                await self._socket.send(self._journal[number], text=True)
                number += 1
                self._journal.sent(number)
        self._journal.attach(False)  # wakes a reader that waits for room, to notice the end

    async def _acknowledge(self) -> None:
        """Acknowledge received audio twice a second, to a client that asked for that."""
        told = self._session.taken
        while True:
            await anyio.sleep(0.5)
            if self._session.conversation.wants.acks and told != self._session.taken:
                told = self._session.taken
                self._session.send([{"type": "streamer.ack", **told}])

    async def _end_if_deaf(self) -> None:
        """Cut off a client that answers no ping. A socket takes megabytes before a send waits, so
        nothing else tells."""
        while await self._is_answered():
            with anyio.move_on_after(PROBE_S):  # an idle client costs little
                await anyio.sleep(EVERY_S)
                await self._journal.more(self._journal.num_read)
        self._session.metrics.slow_readers.inc()
        self._socket.transport.abort()

    async def _is_answered(self) -> bool:
        """Whether a ping is answered in time. While audio or a thousand requests are being taken,
        or a large message arrives, the pong waits after them, and patience is not spent. It is
        where no byte of that message comes: the client may have vanished in it."""
        pinging = asyncio.ensure_future(self._ping())
        left_s, num_arrived = PATIENCE_S, 0
        while left_s > 0 and not pinging.done():
            await asyncio.wait([pinging], timeout=EVERY_S)
            before, num_arrived = num_arrived, self._socket.num_arrived
            if num_arrived > before:
                left_s = PATIENCE_S
            elif self._session.taking is None or self._journal.is_full:
                left_s -= EVERY_S
        return pinging.done()

    async def _ping(self) -> None:
        num_sent = self._journal.num_sent
        with suppress(ConnectionClosed):  # the reader notices it too
            await (await self._socket.ping())
            self._journal.confirm(num_sent)  # everything sent before the ping was read

    async def _end_with_session(self) -> None:
        await self._session.over.wait()
        await self._socket.close(*self._session.goodbye)

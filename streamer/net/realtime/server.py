"""`streamer serve`'s server: OpenAI Realtime at one path, sessions that can be resumed, a page.

Admission, HTTP and drain are net/service/service.py's; sessions and their sockets are
net/realtime/sessions.py's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from anyio.abc import TaskGroup

from streamer.core.attributes import with_english
from streamer.net.realtime.conversation import Conversation
from streamer.net.realtime.session import CannotResume, OpenSession, Resume
from streamer.net.realtime.sessions import HOLD_S, Sessions
from streamer.net.service.admission import Admission, HttpRefusal, new_session_id
from streamer.net.service.http import answer, read_page
from streamer.net.service.metrics import Metrics
from streamer.net.service.service import ClientSocket, Query, Service
from streamer.stages.events import CoachOptions

PATH = "/v1/realtime"
PAGE = Path(__file__).parent.parent / "page"
MODEL = "streamer"
BETA = "realtime=v1"
BETA_PROTOCOL = "openai-beta.realtime-v1"
QUEUES = ("pieces", "turns", "events", "unread")
AUDIO_LAG = "Audio taken and not yet heard, of the slowest session"
MAX_MESSAGE_BYTES = 5 << 20  # base64 of MAX_APPEND_BYTES; a little more is refused by an error


@dataclass(frozen=True)
class ServerTerms:
    """What a server offers: seconds a lost client is waited for; a live update every so many
    seconds, where a client asks for events and does not say how often; attribute -> levels, for the
    page (core/attributes.py's Phrases); those of them that a client may ask for; the
    coach of a client that asks for one."""

    hold_s: float = HOLD_S
    live_update_s: float | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    may_say: tuple[str, ...] = ()
    coach: CoachOptions | None = None


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
        self._open = open_session
        self._terms = terms or ServerTerms()
        levels = msgspec.json.encode(with_english(self._terms.attributes))
        told = answer(200, levels, "application/json")
        self._files = read_page(PAGE) | {"/attributes.json": told}
        self._sessions: Sessions

    def start(self, group: TaskGroup) -> None:
        hold_s = self._terms.hold_s
        self._sessions = Sessions(self._open, self._admission, self.metrics, group, hold_s)
        sessions, watch = self._sessions, self.metrics.watch
        watch(
            "streamer_sessions",
            "Sessions with a client",
            lambda: len(sessions.sessions) - sessions.num_held,
        )
        watch(
            "streamer_sessions_held",
            "Sessions that wait for their client",
            lambda: sessions.num_held,
        )
        watch("streamer_audio_lag_seconds", AUDIO_LAG, lambda: self.lag_s)

        def depth(queue: str) -> float:
            return sum(session.backlog.get(queue, 0) for session in sessions.sessions)

        depths = {queue: partial(depth, queue) for queue in QUEUES}
        self.metrics.watch_each(
            "streamer_queue_depth", "What waits, over all sessions", "queue", depths
        )

    @property
    def lag_s(self) -> float:
        found = self._sessions.sessions
        return max((one.backlog.get("audio_ms", 0) for one in found), default=0) / 1000

    def check(self, query: Query, tenant: str) -> HttpRefusal | None:
        """A place for a new session, or a session to resume."""
        try:
            resume = Resume.parse(query)
            if resume is None:
                return self._admission.check_room(tenant)
            session = self._sessions.find(resume.session_id)
            if session is None:
                told = f"no such session; one is kept for {self._terms.hold_s:g} s; connect anew"
                return HttpRefusal(404, told)
            resume.check(session)
        except CannotResume as error:
            return HttpRefusal(400, str(error))
        return None

    async def serve(self, socket: ClientSocket, query: Query) -> None:
        """One client's socket, to its end."""
        is_transcription = list(query.get("intent", ())) == ["transcription"]
        session_id = new_session_id(self._admission.name)
        terms = self._terms
        conversation = Conversation(
            session_id,
            MODEL,
            is_transcription,
            terms.live_update_s,
            terms.may_say,
            terms.coach,
            _is_beta(socket),
        )
        await self._sessions.serve(socket, conversation, Resume.parse(query))

    async def drain(self, within_s: float) -> None:
        await self._sessions.drain(within_s)


def _is_beta(socket: ClientSocket) -> bool:
    """Whether a client says that it speaks the beta: by a header, a browser by a subprotocol."""
    assert socket.request is not None
    headers = socket.request.headers
    protocols = ",".join(headers.get_all("Sec-WebSocket-Protocol"))
    return BETA in headers.get_all("OpenAI-Beta") or BETA_PROTOCOL in protocols

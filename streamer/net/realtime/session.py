"""A client's session, which outlives its sockets: takes its messages in order, fills its journal.

The session listens in its own task. A message that was received whole is taken whole, even if its
socket dies meanwhile: so the counts that a client resumes by are exact.

`?resume=ID` continues a session whose link was cut. `&event=M`: from event M on; without it, from
the first that no socket was given. `&bytes=N`: the client still has its audio from byte N on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass

import anyio
import msgspec

from streamer.net.realtime.client_events import BadEvent, decode
from streamer.net.realtime.conversation import Action, Conversation, Do, Feed, Reopen
from streamer.net.realtime.journal import Journal
from streamer.net.realtime.server_events import Event, ack, error, resumed, to_beta
from streamer.net.service.metrics import Metrics
from streamer.stages.events import NothingToCommit, SessionOptions
from streamer.stages.stream import LiveSession

DRAIN_POLL_S = 0.02
MAX_NOWAIT = 64 << 10  # bytes or characters: a larger message is decoded once, and may wait
DRAIN_SILENT_S = 1.0  # a microphone sends its silence too
FAILED = (1011, "internal error; the server's log says more")
OpenSession = Callable[[SessionOptions], AbstractAsyncContextManager[LiveSession]]


class ClientSession:
    """`run` it in a task; `take` messages; read `journal`; `end` it, and it is `over`."""

    def __init__(
        self, conversation: Conversation, open_session: OpenSession, metrics: Metrics
    ) -> None:
        self.journal = Journal(conversation.name)
        self.conversation = conversation
        self.num_messages = 0  # client messages that were taken
        self.over = anyio.Event()
        self.goodbye = FAILED  # how a socket is closed when this is over: code and reason
        self._open = open_session
        self._metrics = metrics
        self._num_bytes = 0  # taken by sessions that were replaced
        self._acked = (0, 0)
        self._taken = anyio.Event()
        self._taking = anyio.Lock()
        self._scope: anyio.CancelScope | None = None
        self._session: LiveSession | None = None
        self._ready = anyio.Event()  # the session listens
        self._change = anyio.Event()
        self._pumped = anyio.Event()
        self._life = anyio.CancelScope()

    @property
    def num_bytes(self) -> int:
        """Bytes of PCM taken since the session began."""
        return self._num_bytes + (self._session.num_bytes_fed if self._session else 0)

    @property
    def backlog(self) -> dict[str, int]:
        """Lengths of the session's queues (see LiveSession), and the number of unread events."""
        waiting = {"unread": self.journal.end - self.journal.num_read}
        if self._session is not None and not self.over.is_set():
            waiting.update(self._session.backlog)
        return waiting

    async def run(self) -> None:
        """Listen until `end`. The session's errors come out of here, when all else has ended."""
        self._tell(self.conversation.opened())
        try:
            with self._life:
                while True:
                    await self._listen()
        finally:
            self.over.set()
            self._metrics.forget(id(self))
            if self._scope is not None:
                self._scope.cancel()

    async def take(self, message: str | bytes) -> None:
        """One message, done when its effect is in order; waits while the session does."""
        async with self._taking:
            self._taken.set()
            with anyio.CancelScope() as self._scope:  # a session that dies gives no answer
                if self.over.is_set():
                    return
                await self._ready.wait()
                # the session is dying, and will say why
                with suppress(anyio.BrokenResourceError):
                    await self._take(message)
                    self.num_messages += 1

    def take_nowait(self, message: str | bytes) -> bool:
        """`take` audio where nothing has to wait, as most often. False: nothing was done."""
        if (
            self._session is None
            or self._taking.locked()
            or self.over.is_set()
            or len(message) > MAX_NOWAIT
            or not self._ready.is_set()
        ):
            return False
        pcm = self.conversation.audio_of(message)
        if pcm is None or not self._session.feed_nowait(pcm):
            return False
        self.conversation.fed(len(pcm))
        self.num_messages += 1
        self._taken.set()
        return True

    async def has_taken(self) -> None:
        """Wait until more was taken than was acknowledged, or a message is being taken."""
        while (self.num_bytes, self.num_messages) == self._acked and not self._taking.locked():
            self._taken = anyio.Event()
            await self._taken.wait()

    def acknowledge(self) -> None:
        """Tell the client what was taken, where it wants to know and that is news."""
        taken = (self.num_bytes, self.num_messages)
        if taken != self._acked:
            self._acked = taken
            if self.conversation.extensions.acks:
                self._tell([ack(*taken)])

    async def drain(self) -> None:
        """Take messages until every turn that is in hand now is answered; then no more audio, and
        the end.

        An open turn, or one that waits to be asked for, ends here if its client sends nothing more.
        """
        turns = self.conversation.turns
        num_messages = self.num_messages
        silent_s = 0.0
        last = turns.last_in_flight
        while turns.done < last and turns is self.conversation.turns and not self.over.is_set():
            await anyio.sleep(DRAIN_POLL_S)
            silent_s = silent_s + DRAIN_POLL_S if self.num_messages == num_messages else 0.0
            num_messages = self.num_messages
            if (turns.is_open or turns.is_unasked) and silent_s > DRAIN_SILENT_S:
                break
        if self._session is not None and not self.over.is_set():
            await self._session.end()
            await self._pumped.wait()

    def end(self, goodbye: tuple[int, str]) -> None:
        """Stop listening; turns in hand are dropped. `goodbye`: see above."""
        self.goodbye = goodbye
        self._life.cancel()

    async def _listen(self) -> None:
        """One session by the options in force, until they change."""
        self._change = anyio.Event()
        self._pumped = anyio.Event()
        async with anyio.create_task_group() as group:
            async with self._open(self.conversation.options) as self._session:
                group.start_soon(self._pump, self._session)
                self._ready.set()
                options = self.conversation.options
                await self._change.wait()
                await self._session.end()
                await self._pumped.wait()  # finished turns are answered first
            num_bytes = self._session.num_bytes_fed
            self._num_bytes += num_bytes
            self._session = None
            self.conversation.reopened(num_bytes, options)
            group.cancel_scope.cancel()

    async def _pump(self, session: LiveSession) -> None:
        try:
            async for event in session.events():
                self._metrics.heard(id(self), event)
                await self.journal.room()
                self._tell(self.conversation.heard(event))
        except anyio.ClosedResourceError:
            return
        finally:
            self._pumped.set()

    async def _take(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            out, actions = self.conversation.binary(message)
        else:
            try:
                out, actions = self.conversation.client(decode(message))
            except BadEvent as bad:
                out = [error(str(bad), "invalid_event", bad.event_id)]
                actions = []
        for action in actions:
            out = [*out, *await self._perform(action)]
        self._tell(out)

    def _tell(self, events: list[Event]) -> None:
        if self.conversation.is_beta:
            events = [renamed for event in events for renamed in to_beta(event)]
        self.journal.append(events)

    async def _perform(self, action: Action) -> list[Event]:
        session = self._session
        assert session is not None
        match action:
            case Feed(pcm):
                # draining: what was fed before is the last
                with suppress(anyio.ClosedResourceError):
                    await session.feed(pcm)
                    self.conversation.fed(len(pcm))
            case Reopen():
                self._ready = anyio.Event()
                self._change.set()
                await self._ready.wait()
            case Do(name, cause):
                try:
                    turn = await getattr(session, name)()
                    if name == "commit":
                        return self.conversation.committed(turn, cause)
                except NothingToCommit:
                    return self.conversation.nothing_to_commit(cause)
                except anyio.ClosedResourceError:
                    told = "the server is going down; connect again"
                    return [error(told, "draining", cause, "server_error")]
        return []


class CannotResume(ValueError):
    """One line for the client."""


@dataclass(frozen=True, slots=True)
class Resume:
    """None where the client did not say."""

    session_id: str
    num_bytes: int | None = None
    event: int | None = None

    @classmethod
    def parse(cls, query: Mapping[str, Sequence[str]]) -> Resume | None:
        """None where the query does not resume. Raises CannotResume."""
        if "resume" not in query:
            return None
        return cls(query["resume"][0], _number(query, "bytes"), _number(query, "event"))

    def check(self, session: ClientSession) -> None:
        """Raises CannotResume where the client has more than there was."""
        if self.event is not None and self.event > session.journal.end:
            told = f"event {self.event} has not been; the next one is {session.journal.end}"
            raise CannotResume(told)

    def begin(self, session: ClientSession, event_id: str) -> tuple[int, bytes]:
        """The first event's number, and the event that tells what was taken and is lost."""
        journal = session.journal
        wanted = journal.num_read if self.event is None else self.event
        first = max(journal.first, journal.num_sent if self.event is None else wanted)
        lost_bytes = None if self.num_bytes is None else max(0, self.num_bytes - session.num_bytes)
        event = resumed(
            session.num_bytes, session.num_messages, first, max(0, first - wanted), lost_bytes
        )
        journal.confirm(first)
        return first, msgspec.json.encode({"event_id": event_id, **event})


def _number(query: Mapping[str, Sequence[str]], name: str) -> int | None:
    if name not in query:
        return None
    text = query[name][0]
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise CannotResume(f"{name} is no number; leave it out where it is not known")
    return int(text)

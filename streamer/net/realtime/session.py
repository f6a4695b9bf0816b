"""A client's session, which outlives its sockets, and the journal of its events.

The session listens in its own task and takes its messages in order. A message that was received
whole is taken whole, even if its socket dies meanwhile: a client resumes by exact counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Annotated

import anyio
import msgspec

from streamer.core.description import TextDelta
from streamer.net.realtime import client_events as c
from streamer.net.realtime.client_events import ServerEvent
from streamer.net.realtime.conversation import Conversation
from streamer.net.service.admission import NO_TENANT, HttpRefusal
from streamer.net.service.metrics import Metrics
from streamer.stages.events import NothingToCommit, SessionOptions
from streamer.stages.stream import LiveSession

if TYPE_CHECKING:
    from streamer.net.realtime.server import Connection

DRAIN_POLL_S = 0.02
DRAIN_SILENT_S = 1.0  # a microphone sends its silence too
FAILED = (1011, "internal error; the server's log says more")
Number = Annotated[int, msgspec.Meta(ge=0, lt=10**15)]
OpenSession = Callable[[SessionOptions], AbstractAsyncContextManager[LiveSession]]


class Resume(msgspec.Struct, frozen=True):
    """`?resume=ID`: a client goes on with its session after its link was cut.

    `&event=M`: from event M on; by default, from the first that no socket was given. `&bytes=N`:
    the client still has its audio from byte N on.
    """

    session_id: str = msgspec.field(name="resume")
    num_bytes: Number | None = msgspec.field(name="bytes", default=None)
    event: Number | None = None

    @classmethod
    def parse(cls, query: Mapping[str, Sequence[str]]) -> Resume | None:
        """None if the query does not resume. Raises HttpRefusal."""
        if "resume" not in query:
            return None
        try:
            first = {name: values[0] for name, values in query.items()}
            return msgspec.convert(first, cls, strict=False)
        except (msgspec.ValidationError, UnicodeError):
            told = "bytes or event is no number; leave it out if it is not known"
            raise HttpRefusal(400, told) from None


class ClientSession:
    """`run` it in a task; `take` messages; read `journal`; `end` it, and it is `over`."""

    def __init__(
        self, conversation: Conversation, open_session: OpenSession, metrics: Metrics
    ) -> None:
        self.tenant = NO_TENANT
        self.journal = Journal(conversation.name)
        self.conversation = conversation
        self.over = anyio.Event()
        self.goodbye = FAILED  # how a socket is closed when this is over: code and reason
        # the newest one, which serves the session as soon as the one before it has released
        # `serving`; None while the session waits for its client
        self.connection: Connection | None = None
        self.serving = anyio.Lock()
        self.waiting = anyio.CancelScope()  # cancelled when the client has come back
        self._num_resumed = 0
        self._open = open_session
        self.metrics = metrics
        self._num_messages = 0  # of the client, taken
        self._num_bytes = 0  # taken by streams that were replaced
        # around the message that is being taken, after which the client's pong may have to wait;
        # cancelled if the session dies
        self.taking: anyio.CancelScope | None = None
        self._stream: LiveSession | None = None
        self._ready = anyio.Event()  # the stream listens
        self._is_draining = False
        self._drained = anyio.Event()  # every event of the last stream is in the journal
        self._life = anyio.CancelScope()

    @property
    def taken(self) -> dict[str, int]:
        """Everything that was taken since the session began: bytes of PCM, messages of any kind."""
        num_bytes = self._num_bytes + (self._stream.num_bytes_fed if self._stream else 0)
        return {"bytes": num_bytes, "messages": self._num_messages}

    @property
    def backlog(self) -> dict[str, int]:
        """Lengths of the stream's queues (see LiveSession), and the number of unread events."""
        waiting = {"unread": self.journal.end - self.journal.num_read}
        if self._stream is not None and not self.over.is_set():
            waiting.update(self._stream.backlog)
        return waiting

    @property
    def lag_s(self) -> float:
        """Seconds of audio that waits in the stream."""
        return self.backlog.get("audio_ms", 0) / 1000

    async def run(self) -> None:
        """Listen until `end`. Raises the session's error after everything else has ended."""
        self.send(self.conversation.opened())
        try:
            with self._life:
                while True:
                    await self._listen()
        finally:
            self.over.set()
            self._drained.set()
            if self.taking is not None:
                self.taking.cancel()

    async def take(self, message: str | bytes) -> None:
        """Take one message; returns when its effect is in order. Waits while the session does.

        Call it for one message at a time. Cancelling the caller waits for the message's end."""
        if self.over.is_set():
            return
        with anyio.CancelScope(shield=True) as self.taking:
            await self._ready.wait()
            with suppress(anyio.BrokenResourceError):  # the session is dying, and will say why
                self.send(await self._take(message))
                self._num_messages += 1
        self.taking = None

    def send(self, events: list[ServerEvent]) -> None:
        if self.conversation.is_beta:
            events = [renamed for event in events for renamed in c.to_beta(event)]
        self.journal.append(events)

    def resume(self, asked: Resume) -> tuple[int, bytes]:
        """The client is back: the first event's number, and the event on what was taken or lost."""
        self._num_resumed += 1
        self.metrics.resumed.inc()
        journal, num_bytes = self.journal, asked.num_bytes
        wanted = journal.num_read if asked.event is None else asked.event
        first = max(journal.first, journal.num_sent if asked.event is None else wanted)
        journal.confirm(first)
        told = {
            "event_id": f"event_resumed_{self._num_resumed}",
            "type": "streamer.resumed",
            **self.taken,
            "event": first,
            "lost_events": max(0, first - wanted),
            "lost_bytes": None if num_bytes is None else max(0, num_bytes - self.taken["bytes"]),
        }
        return first, msgspec.json.encode(told)

    async def drain(self) -> None:
        """Take messages until every turn in progress now is answered; then take no more audio.

        An open turn, or one that waits to be asked for, ends here if its client sends nothing more.
        """
        turns = self.conversation.turns
        num_messages, silent_s = self._num_messages, 0.0
        last = turns.committed + turns.is_open
        while turns.done < last and turns is self.conversation.turns and not self.over.is_set():
            await anyio.sleep(DRAIN_POLL_S)
            silent_s = silent_s + DRAIN_POLL_S if self._num_messages == num_messages else 0.0
            num_messages = self._num_messages
            if (turns.is_open or turns.is_unasked) and silent_s > DRAIN_SILENT_S:
                break
        if self._stream is not None and not self.over.is_set():
            self._is_draining = True
            await self._stream.end()
            await self._drained.wait()

    def end(self, goodbye: tuple[int, str]) -> None:
        """Stop listening; turns in progress are dropped. `goodbye`: see above."""
        self.goodbye = goodbye
        self._life.cancel()

    async def _listen(self) -> None:
        """One stream by the options in force, until an update or `drain` ends it. Turns that are
        finished are answered first."""
        options, last = self.conversation.options, None
        async with self._open(options) as self._stream:
            self._ready.set()
            async for event in self._stream.events():
                self.metrics.heard(event, last)
                last = event if isinstance(event, TextDelta) else last
                await self.journal.room()
                self.send(self.conversation.heard(event))
            if self._is_draining:
                self._drained.set()
                await anyio.sleep_forever()
        num_bytes = self._stream.num_bytes_fed
        self._num_bytes += num_bytes
        self._stream = None
        self.conversation.reopened(num_bytes, options)

    async def _take(self, message: str | bytes) -> list[ServerEvent]:
        """The events that it causes at once."""
        event: c.ClientEvent | bytes | None = None
        try:
            event = message if isinstance(message, bytes) else c.decode(message)
            return await self._perform(event)
        except c.Refused as refusal:
            why = refusal
        except NothingToCommit:
            text = "the input audio buffer is empty; append audio first"
            why = c.Refused(text, "input_audio_buffer_commit_empty")
        except anyio.ClosedResourceError:  # draining: nothing more is heard
            if isinstance(event, c.BufferAppend | bytes):
                return []
            text = "the server is going down; connect again"
            why = c.Refused(text, "draining", kind="server_error")
        cause = why.event_id or getattr(event, "event_id", None)
        return [c.error(str(why), why.code, cause, why.kind)]

    async def _perform(self, event: c.ClientEvent | bytes) -> list[ServerEvent]:
        """Raises Refused, and the stream's errors."""
        assert self._stream is not None
        conversation = self.conversation
        match event:
            case c.BufferAppend() | bytes():
                if pcm := conversation.appended(event):
                    await self._stream.feed(pcm)
                    if conversation.options.turn_detection is None:
                        conversation.turns.is_open = True
            case c.BufferCommit():
                conversation.committed(await self._stream.commit())
            case c.BufferClear():
                conversation.turns.is_open = False  # an update may follow at once
                await self._stream.clear()
            case c.ResponseCancel():
                conversation.cancelled(event)
                await self._stream.cancel()
            case c.ResponseCreate():
                if (out := conversation.respond(event)) is not None:
                    return out
                await self._stream.answer()
            case c.ItemCreate():
                return conversation.created(event)
            case c.SessionUpdate():
                before = conversation.options
                out = conversation.update(event)
                if conversation.options != before:  # a turn of voice activity ends here
                    self._ready = anyio.Event()
                    await self._stream.end()
                    await self._ready.wait()
                return out
        return []


# Bytes of events until the socket gets them. Unread bytes would be no measure: the pong that
# confirms reading comes after everything that the client sent before, perhaps thousands of
# requests, which the server must take first.
MAX_UNSENT_BYTES = 256 << 10
KEPT_BYTES = 128 << 10  # the client's library has read them; the client itself may not have
MAX_HELD_BYTES = 3 << 20
OBJECT_BYTES = 64  # memory for an event beside its text

_encode = msgspec.json.Encoder().encode


class Journal:
    """Numbers a session's events and keeps those that its client may still have to read.

    One task appends; another takes `journal[number]` and calls `confirm`. A client that comes back
    asks for the next event by its number. Everything is bounded in bytes: `room` waits while
    MAX_UNSENT_BYTES wait for an attached socket. KEPT_BYTES of read events are kept, and the newest
    MAX_HELD_BYTES of all events.

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

    def append(self, events: list[ServerEvent]) -> None:
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

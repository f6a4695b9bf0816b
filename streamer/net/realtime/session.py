"""A client's session, which outlives its sockets: takes its messages in order, fills its journal.
A Connection is one of its sockets, and watches whether the client still reads.

The session listens in its own task. A message that was received whole is taken whole, even if its
socket dies meanwhile, so the counts that a client resumes by are exact.

`?resume=ID` continues a session whose link was cut. `&event=M`: from event M on; by default, from
the first that no socket was given. `&bytes=N`: the client still has its audio from byte N on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Annotated

import anyio
import msgspec
from websockets.exceptions import ConnectionClosed

from streamer.core.description import TextDelta
from streamer.net.realtime import client_events as c
from streamer.net.realtime.conversation import NOTHING, Conversation
from streamer.net.realtime.journal import Journal
from streamer.net.realtime.server_events import Event, ack, error, to_beta
from streamer.net.service.admission import HttpRefusal
from streamer.net.service.http import ClientSocket
from streamer.net.service.metrics import Metrics
from streamer.stages.events import NothingToCommit, SessionOptions
from streamer.stages.ports import quietly
from streamer.stages.stream import LiveSession

DRAIN_POLL_S = 0.02
DRAIN_SILENT_S = 1.0  # a microphone sends its silence too
ACK_EVERY_S = 0.5
FAILED = (1011, "internal error; the server's log says more")
Number = Annotated[int, msgspec.Meta(ge=0, lt=10**15)]
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
        # the socket that serves it; None while it waits for its client to come back
        self.connection: Connection | None = None
        self.waiting = anyio.CancelScope()  # cancelled when it has come back
        self.num_resumed = 0
        self._open = open_session
        self._metrics = metrics
        self._num_bytes = 0  # taken by streams that were replaced
        # around the message that is being taken; cancelled if the session dies
        self._taking: anyio.CancelScope | None = None
        self._has_taken = anyio.Event()  # there is more to acknowledge
        self._stream: LiveSession | None = None
        self._ready = anyio.Event()  # the stream listens
        self._change = anyio.Event()  # other options are in force
        self._pumped = anyio.Event()  # every event of the stream is in the journal
        self._life = anyio.CancelScope()

    @property
    def num_bytes(self) -> int:
        """Bytes of PCM taken since the session began."""
        return self._num_bytes + (self._stream.num_bytes_fed if self._stream else 0)

    @property
    def backlog(self) -> dict[str, int]:
        """Lengths of the stream's queues (see LiveSession), and the number of unread events."""
        waiting = {"unread": self.journal.end - self.journal.num_read}
        if self._stream is not None and not self.over.is_set():
            waiting.update(self._stream.backlog)
        return waiting

    async def run(self) -> None:
        """Listen until `end`. Raises the session's error after everything else has ended."""
        self._send(self.conversation.opened())
        try:
            with self._life:
                while True:
                    await self._listen()
        finally:
            self.over.set()
            if self._taking is not None:
                self._taking.cancel()

    async def take(self, message: str | bytes) -> None:
        """Take one message; returns when its effect is in order. Waits while the session does.

        Call it for one message at a time. Cancelling the caller waits for the message's end."""
        if self.over.is_set():
            return
        with anyio.CancelScope(shield=True) as self._taking:
            if not self._ready.is_set():
                await self._ready.wait()
            with suppress(anyio.BrokenResourceError):  # the session is dying, and will say why
                if events := await self._take(message):
                    self._send(events)
                self.num_messages += 1
                self._has_taken.set()
        self._taking = None

    async def acknowledge(self) -> None:
        """Say what was taken, twice a second, to a client that asked for that. Never returns."""
        while True:
            await self._has_taken.wait()
            await anyio.sleep(ACK_EVERY_S)
            self._has_taken = anyio.Event()
            if self.conversation.wants.acks:
                self._send([ack(self.num_bytes, self.num_messages)])

    def resume(self, asked: Resume) -> tuple[int, bytes]:
        """The client is back: the first event's number, and the event that says what was taken and
        what is lost."""
        self.num_resumed += 1
        journal = self.journal
        wanted = journal.num_read if asked.event is None else asked.event
        first = max(journal.first, journal.num_sent if asked.event is None else wanted)
        journal.confirm(first)
        num_bytes = asked.num_bytes
        told = ack(self.num_bytes, self.num_messages) | {
            "event_id": f"event_resumed_{self.num_resumed}",
            "type": "streamer.resumed",
            "event": first,
            "lost_events": max(0, first - wanted),
            "lost_bytes": None if num_bytes is None else max(0, num_bytes - self.num_bytes),
        }
        return first, msgspec.json.encode(told)

    async def drain(self) -> None:
        """Take messages until every turn in progress now is answered; then take no more audio.

        An open turn, or one that waits to be asked for, ends here if its client sends nothing more.
        """
        turns = self.conversation.turns
        num_messages, silent_s = self.num_messages, 0.0
        last = turns.committed + turns.is_open
        while turns.done < last and turns is self.conversation.turns and not self.over.is_set():
            await anyio.sleep(DRAIN_POLL_S)
            silent_s = silent_s + DRAIN_POLL_S if self.num_messages == num_messages else 0.0
            num_messages = self.num_messages
            if (turns.is_open or turns.is_unasked) and silent_s > DRAIN_SILENT_S:
                break
        if self._stream is not None and not self.over.is_set():
            await self._stream.end()
            await self._pumped.wait()

    def end(self, goodbye: tuple[int, str]) -> None:
        """Stop listening; turns in progress are dropped. `goodbye`: see above."""
        self.goodbye = goodbye
        self._life.cancel()

    async def _listen(self) -> None:
        """One stream by the options in force, until they change."""
        self._change = anyio.Event()
        self._pumped = anyio.Event()
        options = self.conversation.options
        async with anyio.create_task_group() as group:
            async with self._open(options) as self._stream:
                group.start_soon(quietly, self._pump, self._stream)
                self._ready.set()
                await self._change.wait()
                await self._stream.end()
                await self._pumped.wait()  # finished turns are answered first
            num_bytes = self._stream.num_bytes_fed
            self._num_bytes += num_bytes
            self._stream = None
            self.conversation.reopened(num_bytes, options)
            group.cancel_scope.cancel()

    async def _pump(self, stream: LiveSession) -> None:
        last: TextDelta | None = None
        try:
            async for event in stream.events():
                self._metrics.heard(event, last)
                last = event if isinstance(event, TextDelta) else last
                await self.journal.room()
                self._send(self.conversation.heard(event))
        except anyio.ClosedResourceError:
            return
        finally:
            self._pumped.set()

    async def _take(self, message: str | bytes) -> list[Event]:
        """The events that it causes at once."""
        event: c.ClientEvent | bytes | None = None
        try:
            event = message if isinstance(message, bytes) else c.decode(message)
            return await self._perform(event)
        except c.Refused as refusal:
            why = refusal
        except NothingToCommit:
            why = c.Refused(NOTHING, "input_audio_buffer_commit_empty")
        except anyio.ClosedResourceError:  # draining: nothing more is heard
            if isinstance(event, c.BufferAppend | bytes):
                return []
            text = "the server is going down; connect again"
            why = c.Refused(text, "draining", kind="server_error")
        cause = why.event_id or getattr(event, "event_id", None)
        return [error(str(why), why.code, cause, why.kind)]

    async def _perform(self, event: c.ClientEvent | bytes) -> list[Event]:
        """Raises Refused, and the stream's errors."""
        assert self._stream is not None
        conversation = self.conversation
        match event:
            case c.BufferAppend() | bytes():
                if pcm := conversation.appended(event):
                    await self._stream.feed(pcm)
                    conversation.turns.is_filled = conversation.options.turn_detection is None
            case c.BufferCommit():
                conversation.committed(await self._stream.commit())
            case c.BufferClear():
                conversation.turns.cleared()  # an update may follow at once
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
                    self._change.set()
                    await self._ready.wait()
                return out
        return []

    def _send(self, events: list[Event]) -> None:
        if self.conversation.is_beta:
            events = [renamed for event in events for renamed in to_beta(event)]
        self.journal.append(events)


class Resume(msgspec.Struct, frozen=True):
    """A client's request to go on with its session; None for what it did not say."""

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


GOODBYES = (1000, 1001)  # from the client: it ends, or its page is left
EVERY_S = 0.5
PROBE_S = 8.0  # between pings while nothing is unread
# for a pong: a client that does not read is cut off within 10 s, one that vanished within 18
PATIENCE_S = 8.0


class Connection:
    """`run` it, then set `ended`; `hand_over` ends it when the client came back by another socket.

    Its tasks read, write, acknowledge, and watch whether the client still reads. Not reading on
    pushes audio back; events that wait are bounded by the Journal.
    """

    def __init__(self, socket: ClientSocket, session: ClientSession, metrics: Metrics) -> None:
        self.ended = anyio.Event()
        self.is_handed_over = False
        self._socket = socket
        self._session = session
        self._metrics = metrics
        self._journal = session.journal
        self._is_taking = False  # a message, which the client's pong may have to wait for
        self._reading = anyio.CancelScope()

    async def run(self, first: int, greeting: Sequence[bytes] = ()) -> bool:
        """Serve event `first` and all later ones. Returns whether the client said goodbye."""
        self._journal.attach(True)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(quietly, self._write, first, greeting)
                group.start_soon(quietly, self._end_if_deaf)
                group.start_soon(quietly, self._session.acknowledge)
                group.start_soon(quietly, self._end_with_session)
                is_goodbye = await self._read()
                group.cancel_scope.cancel()
        finally:
            self._journal.attach(False)
        return is_goodbye

    async def hand_over(self) -> None:
        """Take no further message; returns when the current one is taken."""
        self.is_handed_over = True
        self._reading.cancel()
        await self.ended.wait()

    async def _read(self) -> bool:
        with self._reading:
            # A client that sends faster than it is heard never lets the scope be cancelled.
            while not self.is_handed_over:
                self._is_taking = False
                try:
                    message = await self._socket.recv()
                    await self._journal.room()
                except ConnectionClosed as closed:
                    if closed.rcvd is not None:
                        return closed.rcvd.code in GOODBYES
                    return closed.sent is not None  # it broke the protocol; a cut link is no end
                self._is_taking = True
                await self._session.take(message)
        return False

    async def _write(self, number: int, greeting: Sequence[bytes]) -> None:
        with suppress(ConnectionClosed):
            for text in greeting:
                await self._socket.send(text, text=True)
            while not self._socket.transport.is_closing():  # asyncio would log each further write
                await self._journal.more(number)
                number = max(number, self._journal.first)
                await self._socket.send(self._journal[number], text=True)
                number += 1
                self._journal.sent(number)
        self._journal.attach(False)  # wakes a reader that waits for room, to notice the end

    async def _end_if_deaf(self) -> None:
        """Cut off a client that answers no ping. A socket takes megabytes before a send waits, so
        nothing else tells."""
        while await self._is_answered():
            with anyio.move_on_after(PROBE_S):  # an idle client costs little
                await anyio.sleep(EVERY_S)
                await self._journal.more(self._journal.num_read)
        self._metrics.slow_readers.inc()
        self._socket.transport.abort()

    async def _is_answered(self) -> bool:
        """Whether a ping is answered in time. While audio or a thousand requests are being taken,
        or a large message arrives, the pong waits after them, and patience is not spent. It is
        where no byte of that message comes: the client may have vanished in it."""
        pinging = asyncio.ensure_future(self._ping())
        left_s, num_arrived = PATIENCE_S, 0
        while left_s > 0 and not pinging.done():
            await asyncio.wait([pinging], timeout=EVERY_S)
            is_busy = self._is_taking and not self._journal.is_full
            before, num_arrived = num_arrived, self._socket.num_arrived
            if num_arrived > before:
                left_s = PATIENCE_S
            elif not is_busy:
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

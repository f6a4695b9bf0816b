"""One websocket of the realtime server. In: its messages. Out: its events, until either side ends it.

Three tasks: read messages, pump the session's events, send. What waits to be sent is bounded, and so is how long the
socket may take for it; audio is pushed back by not reading on.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import anyio
import msgspec
from anyio import create_memory_object_stream as queue
from anyio.abc import TaskGroup
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from streamer.net.client_events import BadEvent, decode
from streamer.net.conversation import Action, Conversation, Do, Feed, Reopen
from streamer.net.metrics import Metrics
from streamer.net.server_events import Event as Out
from streamer.net.server_events import error
from streamer.stages.events import NothingToCommit, Session, SessionOptions

MAX_OUT = 512  # events that wait for the socket
MAX_SEND_S = 10.0  # how long one of them may take
OpenSession = Callable[[SessionOptions], AbstractAsyncContextManager[Session]]
_encode = msgspec.json.Encoder().encode


class Connection:
    """`run` it to its end; `drain` lets turns in flight finish and closes."""

    def __init__(
        self, socket: ServerConnection, open_session: OpenSession, metrics: Metrics, model: str, is_transcription: bool
    ) -> None:
        self._socket, self._open, self._metrics = socket, open_session, metrics
        self._conversation = Conversation("sess_" + secrets.token_hex(8), model, is_transcription)
        self._out, self._to_send = queue[Out](MAX_OUT)
        self._stack = AsyncExitStack()
        self._session: Session
        self._pumped: anyio.Event

    async def run(self) -> None:
        """Serve until the socket is closed. Errors of the session end this connection alone."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._send, group.cancel_scope)
                async with self._stack:
                    await self._listen(group)
                    await self._say(self._conversation.opened())
                    await self._read(group)
                group.cancel_scope.cancel()
        finally:
            self._metrics.forget(id(self))
            self._out.close()
            self._to_send.close()

    async def drain(self, within_s: float) -> None:
        """No more audio; what was said is answered; then close 1012, so that the client comes again."""
        with anyio.move_on_after(within_s):
            await self._session.end()
            await self._pumped.wait()
            while self._to_send.statistics().current_buffer_used:
                await anyio.sleep(0.01)
        await self._socket.close(1012, "the server is going down")

    async def _read(self, group: TaskGroup) -> None:
        try:
            async for message in self._socket:
                if isinstance(message, bytes):
                    out, actions = self._conversation.binary(message)
                else:
                    try:
                        out, actions = self._conversation.client(decode(message))
                    except BadEvent as bad:
                        out, actions = [error(str(bad), "invalid_event", None)], []
                for action in actions:
                    out = [*out, *await self._perform(action, group)]
                await self._say(out)
        except ConnectionClosed:
            return

    async def _perform(self, action: Action, group: TaskGroup) -> list[Out]:
        match action:
            case Feed(pcm):
                try:
                    await self._session.feed(pcm)
                except anyio.ClosedResourceError:  # draining: the turn in flight is the last
                    return []
            case Reopen():
                await self._session.clear()
                await self._session.end()
                await self._pumped.wait()
                await self._stack.aclose()
                await self._listen(group)
                self._conversation.reopened()
            case Do(name, cause):
                try:
                    await getattr(self._session, name)()
                    self._conversation.done(name)
                except NothingToCommit:
                    return self._conversation.nothing_to_commit(cause)
                except anyio.ClosedResourceError:
                    return [error("the server is going down", "draining", cause, "server_error")]
        return []

    async def _listen(self, group: TaskGroup) -> None:
        """A session by the options in force, and a task that tells what it hears."""
        self._session = await self._stack.enter_async_context(self._open(self._conversation.options))
        self._pumped = anyio.Event()
        group.start_soon(self._pump, self._session, self._pumped)

    async def _pump(self, session: Session, pumped: anyio.Event) -> None:
        try:
            async for event in session.events():
                self._metrics.heard(id(self), event)
                await self._say(self._conversation.heard(event))
        except anyio.ClosedResourceError:
            return
        finally:
            pumped.set()

    async def _say(self, out: list[Out]) -> None:
        for event in out:
            await self._out.send({"event_id": "event_" + secrets.token_hex(8), **event})

    async def _send(self, connection: anyio.CancelScope) -> None:
        """Send what waits; a socket that takes nothing for 10 s is cut off, and with it all that waits to be said."""
        async for event in self._to_send:
            try:
                with anyio.fail_after(MAX_SEND_S):
                    await self._socket.send(_encode(event).decode())
            except TimeoutError:
                self._metrics.slow_readers.inc()
                self._socket.transport.abort()
                break
            except ConnectionClosed:
                break
        connection.cancel()

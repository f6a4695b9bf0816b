"""Runs a websocket service on one port until SIGTERM.

Beside the websocket it answers /healthz, /readyz, /statusz, /metrics and the files of a page. It
decides before the upgrade which clients may connect, serves TLS, bounds connections and drains. The
realtime server and the verifier's share it.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket as socket_module
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast
from urllib.parse import parse_qs, urlsplit

import anyio
import msgspec
from anyio.abc import TaskGroup
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import InvalidHandshake
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from streamer.net.service.admission import HANDSHAKE_S, Admission, HttpRefusal, ReplicaStatus, busy
from streamer.net.service.http import (
    END,
    answer,
    for_method,
    headers_of,
    refused,
    url_of,
    with_body,
)
from streamer.net.service.metrics import ServiceMetrics
from streamer.net.service.notices import Notices, RateLimit, notice

CLOSE_S = 2.0
# Messages that a client has sent and the handler has not taken, and bytes of them in the kernel
# (which doubles it). More would only hide that the server is slow, and keep a client alive that has
# gone.
MAX_QUEUE = 1
RECEIVE_BYTES = 128 << 10
LARGE_BYTES = 256 << 10  # a message of this size delays the pong after it
HEAD_BYTES = 8 << 10  # longer heads go to websockets unread; it refuses them
MAX_WAITING = 512  # connections before their upgrade; the oldest is closed for one more
MAX_FILES = 65_536  # that this process asks for; most systems begin at 1,024
SPARE_FILES = 8
DRAIN_S = 30.0
LAG_EVERY_S = 0.1
Query = Mapping[str, Sequence[str]]
_logger = logging.getLogger("streamer")
# protocol errors of clients are counted, not logged
_quiet = logging.getLogger("streamer.wire")
_quiet.setLevel(logging.CRITICAL)
# asyncio tells of each write to a client that has gone, and one client can cause thousands
_rate_limit = RateLimit()


@dataclass(frozen=True)
class Address:
    """Where to listen; `tls` for wss."""

    host: str = "127.0.0.1"
    port: int = 8765
    tls: ssl.SSLContext | None = None


class ClientSocket(ServerConnection):
    """One client's connection, from its first byte."""

    def __init__(self, service: Service, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # the key that admitted it
        self.tenant = ""
        self._service = service
        # the request, until its head is whole; None from then on
        self._head: bytearray | None = bytearray()
        # answered without an upgrade: the rest of its body goes nowhere
        self._is_refused = False

    @property
    def is_receiving(self) -> bool:
        """Whether a large message is on its way: the client's pong may have to wait for its end."""
        return len(self.protocol.reader.buffer) > LARGE_BYTES

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._service.waits(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._service.waits_no_more(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._head is not None:
            self._head += data
            end = self._head.find(END)
            if end < 0 and len(self._head) < HEAD_BYTES and self._head[:1].isalpha():
                return
            data, self._head = bytes(self._head), None
            if end >= 0 and (request := with_body(data[:end])) is not None:
                self._is_refused = True
                self.transport.write(self._service.answer_to(self, request).serialize())
                return  # the handshake's deadline ends it
        super().data_received(data)

    def eof_received(self) -> None:
        if self._head:
            data, self._head = bytes(self._head), None
            super().data_received(data)
        super().eof_received()


class Handler(Protocol):
    """The part of a service that is its own."""

    max_message_bytes: int
    kind: str  # server or verifier, for /statusz

    @property
    def ping_interval_s(self) -> float | None:
        """Seconds between websockets' keepalive pings; None where the handler sends its own."""
        ...

    @property
    def lag_s(self) -> float:
        """Seconds of audio taken and not yet heard, of the slowest client."""
        ...

    def start(self, group: TaskGroup) -> None:
        """Called before the first client; tasks of this group end with the service."""
        ...

    def check(self, query: Query, tenant: str) -> HttpRefusal | None:
        """Why an admitted client has no place, or None."""
        ...

    async def serve(self, socket: ClientSocket, query: Query) -> None:
        """Serve one client, from the upgrade to its end. An error here ends this client alone."""
        ...

    async def drain(self, within_s: float) -> None:
        """Bring what is in flight to an end and close every socket with 1012."""
        ...


class Service:
    """`run` it; `stop` it, or send SIGTERM."""

    def __init__(
        self,
        handler: Handler,
        admission: Admission,
        metrics: ServiceMetrics,
        notices: Notices | None = None,
    ) -> None:
        self._notices = notices  # for refusals
        self._handler = handler
        self._admission = admission
        self._metrics = metrics
        metrics.watch("streamer_sessions_limit", "Sessions at most", lambda: admission.max_sessions)
        self._files: dict[str, Response] = {}
        # connections before their upgrade, oldest first, and those after it
        self._waiting: dict[ClientSocket, None] = {}
        self._served: set[ClientSocket] = set()
        self._max_waiting = MAX_WAITING
        self._max_served = MAX_FILES
        self._stop = anyio.Event()
        self._draining: anyio.CancelScope | None = None

    def show(self, page: Mapping[str, Response]) -> None:
        """Serve these files too: path -> answer."""
        self._files.update(page)

    def stop(self) -> None:
        """No new sessions; what is in flight ends. The second call ends it at once."""
        if self._draining is not None:
            self._draining.cancel()
        self._admission.is_draining = True
        self._stop.set()

    async def run(self, address: Address, ready: Callable[[int], None]) -> None:
        """Until `stop` or a signal; `ready` gets the port. Raises OSError where it is taken."""
        logging.getLogger("asyncio").addFilter(_rate_limit)
        self._metrics.watch(
            "streamer_tasks", "Tasks of the event loop", lambda: len(anyio.get_running_tasks())
        )
        self._share_files()
        server = await serve(
            self._serve,
            address.host,
            address.port,
            ssl=address.tls,
            process_request=self.answer_or_upgrade,
            select_subprotocol=_subprotocol,
            create_connection=cast("type[ServerConnection]", self._connection),
            max_size=self._handler.max_message_bytes,
            compression=None,
            ping_interval=self._handler.ping_interval_s,
            open_timeout=HANDSHAKE_S,
            close_timeout=CLOSE_S,
            max_queue=MAX_QUEUE,
            logger=_quiet,
            server_header="streamer",
            ssl_handshake_timeout=HANDSHAKE_S if address.tls else None,
        )
        for listening in server.sockets:  # accepted ones inherit it
            listening.setsockopt(socket_module.SOL_SOCKET, socket_module.SO_RCVBUF, RECEIVE_BYTES)
        # In this order: a run that is cancelled ends its sessions first, so that no socket is held
        # for a client that may come back.
        async with _closing(server), anyio.create_task_group() as group:
            self._handler.start(group)
            group.start_soon(self._measure_lag)
            group.start_soon(self._stop_on_signals)
            try:
                ready(server.sockets[0].getsockname()[1])
                await self._stop.wait()
                with anyio.CancelScope() as self._draining:
                    await self._handler.drain(DRAIN_S)
            finally:  # sockets are read until they are closed, and no task can be started any more
                self._admission.is_draining = True
            group.cancel_scope.cancel()

    def waits(self, socket: ClientSocket) -> None:
        """A connection has begun, and is not yet upgraded. An idle one does not keep others out."""
        self._waiting[socket] = None
        if len(self._waiting) > self._max_waiting:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.transport.abort()

    def waits_no_more(self, socket: ClientSocket) -> None:
        self._waiting.pop(socket, None)

    def answer_to(self, socket: ClientSocket, request: Request) -> Response:
        """The answer to a request that cannot be upgraded."""
        found = self.answer_or_upgrade(socket, request, may_upgrade=False)
        assert found is not None
        return found

    def answer_or_upgrade(
        self, socket: ServerConnection, request: Request, may_upgrade: bool = True
    ) -> Response | None:
        """Plain HTTP, or a refusal, or None: upgrade."""
        assert isinstance(socket, ClientSocket)
        try:
            headers = headers_of(request)
            url = url_of(request)
        except ValueError:
            return answer(400, "the address cannot be read\n")
        if isinstance(headers, HttpRefusal):
            refusal: HttpRefusal | None = headers
        else:
            # h2c and others are offers, which a server may pass over
            is_websocket = headers.get("upgrade", "").lower() == "websocket"
            if not is_websocket and (found := self._plain(url.path)):
                return for_method(request.method, found)
            refusal = self._admit(socket, request, headers, may_upgrade)
        if refusal is None:
            return None
        self._metrics.refusals.labels(str(refusal.status)).inc()
        if self._notices is not None:
            host = (socket.remote_address or ("somebody",))[0]
            self._notices.event(f"refused {host}: HTTP {refusal.status} ({refusal.message})")
        return refused(refusal)

    def _connection(self, *arguments: Any, **options: Any) -> ClientSocket:
        return ClientSocket(self, *arguments, **options)

    def _share_files(self) -> None:
        """Asks for as many open files as the system allows, and keeps connections below."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        num_open = len(os.listdir("/dev/fd"))
        free = (MAX_FILES if soft == resource.RLIM_INFINITY else soft) - num_open - SPARE_FILES
        self._max_waiting = max(2, min(MAX_WAITING, free // 2))
        self._max_served = max(1, free - self._max_waiting)

    async def _serve(self, socket: ServerConnection) -> None:
        assert isinstance(socket, ClientSocket)
        assert socket.request is not None
        self._admission.arrived(socket)
        self.waits_no_more(socket)
        self._served.add(socket)
        try:
            await self._handler.serve(socket, parse_qs(urlsplit(socket.request.path).query))
        except Exception as error:
            _logger.error("connection.failed", exc_info=error)
            await socket.close(1011, "internal error; the server's log says more")
        finally:
            self._served.discard(socket)

    def _admit(
        self, socket: ClientSocket, request: Request, headers: Mapping[str, str], may_upgrade: bool
    ) -> HttpRefusal | None:
        """None: the client is on its way, and its socket has its tenant."""
        url = urlsplit(request.path)
        query = parse_qs(url.query)
        found = self._admission.check(url.path, headers, query)
        if isinstance(found, HttpRefusal):
            return found
        if not may_upgrade:
            return HttpRefusal(405, "connect by a websocket", {"Allow": "GET"})
        refusal = self._handler.check(query, found)
        if refusal is None and len(self._served) >= self._max_served:
            refusal = busy("this server may open no more files")
        self._admission.num_refused += refusal is not None
        if refusal is None:
            socket.tenant = found
            if _may_upgrade(socket, request):
                self._admission.expect(socket, found)
        return refusal

    def _status(self) -> Response:
        a = self._admission
        status = ReplicaStatus(
            name=a.replica,
            kind=self._handler.kind,
            pid=os.getpid(),
            is_draining=a.is_draining,
            taken=a.num_taken,
            limit=a.max_sessions,
            admitted=a.num_admitted,
            lag_s=self._handler.lag_s,
            refused=a.num_refused,
        )
        return answer(200, msgspec.json.encode(status), "application/json")

    def _plain(self, path: str) -> Response | None:
        match path:
            case "/healthz":
                return answer(200, "ok\n")
            case "/readyz":
                is_draining = self._admission.is_draining
                return answer(503, "draining\n") if is_draining else answer(200, "ready\n")
            case "/statusz":
                return self._status()
            case "/metrics":
                return answer(200, self._metrics.text())
        return self._files.get(path)

    async def _measure_lag(self) -> None:
        """Observes how late the event loop comes back from a sleep."""
        while True:
            before = anyio.current_time()
            await anyio.sleep(LAG_EVERY_S)
            self._metrics.loop_lag.observe(max(0.0, anyio.current_time() - before - LAG_EVERY_S))

    async def _stop_on_signals(self) -> None:
        """Signals are a process's: a service in another thread is stopped by its owner."""
        if threading.current_thread() is not threading.main_thread():
            return
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                if not self._stop.is_set() and (num := self._admission.num_sessions):
                    way = f"within {DRAIN_S:g} s; a second Ctrl-C or SIGTERM ends at once"
                    notice(f"answering what was said in {num} sessions, {way}")
                self.stop()


@asynccontextmanager
async def _closing(server: Server) -> AsyncIterator[None]:
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):  # bounded by close_timeout
            server.close()
            await server.wait_closed()


def _may_upgrade(socket: ServerConnection, request: Request) -> bool:
    """Whether a session will come of it. Else websockets refuses it by itself, and it must not hold
    a place until its handshake would be late."""
    try:
        socket.protocol.process_request(request)
    except InvalidHandshake:
        return False
    return True


def _subprotocol(socket: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """`realtime` where it is offered (browsers); the Python client offers none, gets none."""
    return next((protocol for protocol in offered if protocol == "realtime"), None)

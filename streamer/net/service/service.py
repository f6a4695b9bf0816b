"""A websocket service on one port, with all that ours need. In: a handler. Out: a run to SIGTERM.

/healthz, /readyz, /statusz, /metrics and the files of a page beside it; admission before the
upgrade; TLS; drain. Shared by the realtime server and the verifier's.
"""

from __future__ import annotations

import logging
import os
import signal
import socket as socket_module
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import anyio
import msgspec
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import InvalidHandshake
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from streamer.net.service.admission import Admission, HttpRefusal
from streamer.net.service.big_messages import BigMessages, PacedConnection, connections_of
from streamer.net.service.handler import Address, Handler
from streamer.net.service.http import answer, headers_of, refused, url_of
from streamer.net.service.metrics import ServiceMetrics
from streamer.net.service.notices import Few, Notices
from streamer.net.service.status import ReplicaStatus

CLOSE_S = 2.0
# What a client has sent and we have not taken: so many messages, and so much in the kernel
# (which doubles it). More would only hide that we are behind, and keep a client alive that has
# gone.
MAX_QUEUE = 2
RECEIVE_BYTES = 128 << 10
DRAIN_S = 30.0
LAG_EVERY_S = 0.1
_logger = logging.getLogger("streamer")
# what a client does wrong on the wire is counted, not logged
_quiet = logging.getLogger("streamer.wire")
_quiet.setLevel(logging.CRITICAL)
# asyncio tells of each write to a client that has gone, and one client can cause thousands
_few = Few()


class Service:
    """`run` it; `stop` it, or send SIGTERM."""

    def __init__(
        self,
        handler: Handler,
        admission: Admission,
        metrics: ServiceMetrics,
        notices: Notices | None = None,
    ) -> None:
        self._notices = notices  # told whom was refused
        self._handler = handler
        self._admission = admission
        self._metrics = metrics
        metrics.watch("streamer_sessions_limit", "Sessions at most", lambda: admission.max_sessions)
        self._files: dict[str, Response] = {}
        self._stop = anyio.Event()

    def show(self, page: Mapping[str, Response]) -> None:
        """Serve these files too: path -> answer."""
        self._files.update(page)

    def stop(self) -> None:
        """Nobody new; what is in flight ends."""
        self._admission.is_draining = True
        self._stop.set()

    async def run(self, address: Address, ready: Callable[[int], None]) -> None:
        """Until `stop` or a signal; `ready` is told the port. Raises OSError where it is taken."""
        logging.getLogger("asyncio").addFilter(_few)
        self._metrics.watch(
            "streamer_tasks", "Tasks of the event loop", lambda: len(anyio.get_running_tasks())
        )
        server = await serve(
            self._serve,
            address.host,
            address.port,
            ssl=address.tls,
            process_request=self._request,
            select_subprotocol=_subprotocol,
            create_connection=connections_of(BigMessages()),
            max_size=self._handler.max_message_bytes,
            compression=None,
            ping_interval=None,
            close_timeout=CLOSE_S,
            max_queue=MAX_QUEUE,
            logger=_quiet,
            server_header="streamer",
        )
        for listening in server.sockets:  # those that it accepts take it over
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
                await self._handler.drain(DRAIN_S)
            finally:  # sockets are read until they are closed, and no task can be started any more
                self._admission.is_draining = True
            group.cancel_scope.cancel()

    async def _serve(self, socket: ServerConnection) -> None:
        assert isinstance(socket, PacedConnection)
        assert socket.request is not None
        self._admission.arrived(socket)
        try:
            await self._handler.serve(socket, parse_qs(urlsplit(socket.request.path).query))
        except Exception as error:
            _logger.error("connection.failed", exc_info=error)
            await socket.close(1011, "internal error; the server's log says more")

    def _request(self, socket: ServerConnection, request: Request) -> Response | None:
        """Plain HTTP, or a refusal, or None: upgrade."""
        try:
            headers = headers_of(request)
            url = url_of(request)
        except ValueError:
            return answer(400, "the address cannot be read\n")
        if isinstance(headers, HttpRefusal):
            refusal: HttpRefusal | None = headers
        else:
            if "upgrade" not in headers and (found := self._plain(url.path)):
                return found
            refusal = self._admit(socket, request, headers)
        if refusal is None:
            return None
        self._metrics.refusals.labels(str(refusal.status)).inc()
        if self._notices is not None:
            host = (socket.remote_address or ("somebody",))[0]
            self._notices.event(f"refused {host}: HTTP {refusal.status} ({refusal.message})")
        return refused(refusal)

    def _admit(
        self, socket: ServerConnection, request: Request, headers: Mapping[str, str]
    ) -> HttpRefusal | None:
        """None: the client is on its way, and its socket says whose it is."""
        assert isinstance(socket, PacedConnection)
        url = urlsplit(request.path)
        query = parse_qs(url.query)
        found = self._admission.check(url.path, headers, query)
        if isinstance(found, HttpRefusal):
            return found
        refusal = self._handler.check(query, found)
        self._admission.num_refused += refusal is not None
        if refusal is None:
            socket.tenant = found
            if _may_upgrade(socket, request):
                self._admission.expect(socket, found)
        return refusal

    def _status(self) -> Response:
        a = self._admission
        lag_s = self._handler.lag_s
        status = ReplicaStatus(
            a.replica,
            self._handler.kind,
            os.getpid(),
            a.is_draining,
            a.num_taken,
            a.max_sessions,
            a.num_admitted,
            lag_s,
            a.num_refused,
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
        found = self._files.get(path)
        return found and Response(
            found.status_code, found.reason_phrase, found.headers.copy(), found.body
        )

    async def _measure_lag(self) -> None:
        """How much later than asked for the event loop comes back."""
        while True:
            before = anyio.current_time()
            await anyio.sleep(LAG_EVERY_S)
            self._metrics.loop_lag.observe(max(0.0, anyio.current_time() - before - LAG_EVERY_S))

    async def _stop_on_signals(self) -> None:
        """Signals are a process's: a service in another thread is stopped by who started it."""
        if threading.current_thread() is not threading.main_thread():
            return
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
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

"""`streamer serve`'s server: one port for the websocket, health, readiness and metrics. Drains on SIGTERM.

Admission is decided before the upgrade (net/admission.py); every connection is served by net/connection.py.
"""

from __future__ import annotations

import logging
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import anyio
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from streamer.net.admission import Admission, Refusal
from streamer.net.connection import Connection, OpenSession
from streamer.net.metrics import Metrics

PATH = "/v1/realtime"
MAX_MESSAGE_BYTES = 1 << 20  # base64 of 16 s at 24 kHz
PING_S = 8.0  # twice: a half-open client is noticed within 20 s, with the time to close
CLOSE_S = 2.0
DRAIN_S = 30.0
LAG_EVERY_S = 0.1
_logger = logging.getLogger("streamer")


@dataclass(frozen=True)
class Address:
    """Where to listen; `tls` for wss."""

    host: str = "127.0.0.1"
    port: int = 8765
    tls: ssl.SSLContext | None = None


class RealtimeServer:
    """Serves one model pair to many clients. `run` returns when it was told to stop and has drained."""

    def __init__(self, open_session: OpenSession, admission: Admission, model: str) -> None:
        self.metrics = Metrics()
        self._open, self._admission, self._model = open_session, admission, model
        self._connections: set[Connection] = set()
        self._stop = anyio.Event()
        self.metrics.watch("streamer_sessions", "Open sessions", lambda: admission.num_sessions)

    def stop(self) -> None:
        """No new sessions; turns in flight finish."""
        self._admission.is_draining = True
        self._stop.set()

    async def run(self, address: Address, ready: Callable[[int], None]) -> None:
        """Listen, tell `ready` the port, serve until `stop` or SIGTERM. Raises OSError when the port is taken."""
        server = await serve(
            self._serve, address.host, address.port, ssl=address.tls, process_request=self._request,
            select_subprotocol=_subprotocol, max_size=MAX_MESSAGE_BYTES, compression=None, ping_interval=PING_S,
            ping_timeout=PING_S, close_timeout=CLOSE_S, max_queue=16,
        )  # fmt: skip
        async with anyio.create_task_group() as group, _closing(server):
            group.start_soon(self._measure_lag)
            group.start_soon(self._stop_on_signals)
            ready(server.sockets[0].getsockname()[1])
            await self._stop.wait()
            async with anyio.create_task_group() as drains:
                for connection in list(self._connections):
                    drains.start_soon(connection.drain, DRAIN_S)
            group.cancel_scope.cancel()

    async def _serve(self, socket: ServerConnection) -> None:
        """One client, from the upgrade to its end; what goes wrong here ends it alone."""
        if not self._admission.enter():
            await socket.close(1013, "all sessions are taken; try again later")
            return
        assert socket.request is not None
        query = parse_qs(urlsplit(socket.request.path).query)
        connection = Connection(
            socket, self._open, self.metrics, query.get("model", [self._model])[0],
            query.get("intent") == ["transcription"],
        )  # fmt: skip
        self._connections.add(connection)
        try:
            await connection.run()
        except Exception as error:
            _logger.error("connection.failed", exc_info=error)
            await socket.close(1011, "internal error; the server's log says more")
        finally:
            self._connections.discard(connection)
            self._admission.leave()

    def _request(self, socket: ServerConnection, request: Request) -> Response | None:
        """Plain HTTP, or a refusal, or None: upgrade."""
        path = urlsplit(request.path).path
        match path:
            case "/healthz":
                return _answer(200, "ok\n")
            case "/readyz":
                return _answer(503, "draining\n") if self._admission.is_draining else _answer(200, "ready\n")
            case "/metrics":
                return _answer(200, self.metrics.text().decode())
        refusal = self._admission.check(path, request.headers)
        if refusal is not None:
            self.metrics.refusals.labels(str(refusal.status)).inc()
            return _refused(refusal)
        return None

    async def _measure_lag(self) -> None:
        """How much later than asked for the event loop comes back."""
        while True:
            before = anyio.current_time()
            await anyio.sleep(LAG_EVERY_S)
            self.metrics.loop_lag.observe(max(0.0, anyio.current_time() - before - LAG_EVERY_S))

    async def _stop_on_signals(self) -> None:
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


def _subprotocol(socket: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """`realtime` where it is offered (browsers); the Python client offers none and must get none."""
    return next((protocol for protocol in offered if protocol == "realtime"), None)


def _refused(refusal: Refusal) -> Response:
    return _answer(refusal.status, refusal.message + "\n", refusal.headers)


def _answer(status: int, text: str, more: Mapping[str, str] | None = None) -> Response:
    body = text.encode()
    headers = Headers([("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body))),
                       ("Cache-Control", "no-store"), ("Connection", "close")])  # fmt: skip
    for name, value in (more or {}).items():
        headers[name] = value
    return Response(status, HTTPStatus(status).phrase, headers, body)

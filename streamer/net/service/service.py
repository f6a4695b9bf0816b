"""A websocket service on one port, until SIGTERM: the base of the realtime server and the verifier.

Beside the websocket it answers /healthz, /readyz, /statusz, /metrics and the files of a page. It
decides before the upgrade which clients may connect, serves TLS, bounds connections and drains.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket as socket_module
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers, MultipleValuesError
from websockets.exceptions import InvalidMessage
from websockets.http11 import Request, Response

from streamer.net.service.admission import Admission, HttpRefusal
from streamer.net.service.metrics import ServiceMetrics, notices

HANDSHAKE_S = 5.0  # of TLS, and then of the upgrade
CLOSE_S = 2.0
LARGE_BYTES = 256 << 10  # a message of this size delays the pong after it
TEXT = "text/plain; charset=utf-8"
MIME = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".wav": "audio/wav",
}
ALWAYS = {
    "Connection": "close",
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "media-src blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
UNREADABLE = 400, "this is no HTTP/1.1 request that can be read: see its first line and its headers"
ONLY_GET = 405, "only GET and websockets are served here", {"Allow": "GET, HEAD"}
# Bytes in the kernel (which doubles them) that the handler has not taken yet. Larger buffers only
# hide a slow server, and keep a lost client alive.
RECEIVE_BYTES = 128 << 10
MAX_WAITING = 1_024  # connections before their upgrade; one more closes the oldest
MAX_PENDING = 4_096  # connections that the kernel keeps until they are accepted
MAX_FILES = 65_536  # open files that this process asks for; most systems begin at 1,024
DRAIN_S = 30.0
RESTART = (1012, "the server is going down")
LAG_EVERY_S = 0.1
REALTIME = "realtime"  # a subprotocol
_logger = logging.getLogger("streamer")
_quiet = logging.getLogger("streamer.wire")  # protocol errors of clients are counted, not logged
_quiet.setLevel(logging.CRITICAL)


def read_page(*folders: Path) -> dict[str, Response]:
    """path -> answer, of the folders' files of known kinds; index.html is `/`."""
    files = [file for each in folders for file in each.iterdir() if file.suffix in MIME]
    found = {f"/{file.name}": answer(200, file.read_bytes(), MIME[file.suffix]) for file in files}
    return found | {"/": found["/index.html"]}


def answer(
    status: int, body: str | bytes, mime: str = TEXT, more: Mapping[str, str] | None = None
) -> Response:
    """A whole response; the connection closes after it."""
    data = body.encode() if isinstance(body, str) else body
    headers = {"Content-Type": mime, "Content-Length": str(len(data)), **ALWAYS, **(more or {})}
    return Response(status, HTTPStatus(status).phrase, Headers(headers), data)


def answer_json(found: object) -> Response:
    return answer(200, msgspec.json.encode(found), MIME[".json"])


class ClientSocket(ServerConnection):
    """One client's connection."""

    def __init__(self, service: Any, *arguments: Any, **options: Any) -> None:
        """service: the Service that counts it until it is upgraded."""
        super().__init__(*arguments, **options)
        # of its request, and the key that admitted it
        self.url = urlsplit("")
        self.query: dict[str, list[str]] = {}
        self.tenant = ""
        self._service = service
        self._is_unreadable = False

    @property
    def num_arrived(self) -> int:
        """Bytes of a large message that is arriving, 0 for none."""
        num = len(self.protocol.reader.buffer)
        return num if num > LARGE_BYTES else 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._service.handshake_begins(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._service.handshake_ends(self)
        super().connection_lost(exc)

    def send_data(self) -> None:
        """Answer a request that websockets cannot read, or that has a body: websockets would close
        without a word. The answer quotes nothing: the request may hold escape codes."""
        why = self.protocol.handshake_exc
        if isinstance(why, InvalidMessage) and not self._is_unreadable:
            self._is_unreadable = True
            cause = why.__cause__  # websockets has no exception of its own for a body
            has_body = isinstance(cause, NotImplementedError) or "body" in str(cause)
            refusal = HttpRefusal(*ONLY_GET) if has_body else HttpRefusal(*UNREADABLE)
            self.transport.write(self._service.refused(refusal).serialize())
        super().send_data()


class Service(ABC):
    """Subclass it; `run` it; `stop` it, or send SIGTERM."""

    kind: str  # server or verifier, for /statusz
    max_message_bytes: int
    max_queue = 1  # messages that the handler has not taken yet
    ping_interval_s: float | None  # websockets' keepalive; None if the subclass pings by itself
    metrics: ServiceMetrics

    def __init__(self, admission: Admission, metrics: ServiceMetrics) -> None:
        self.metrics = metrics
        metrics.watch("tasks", "Tasks of the event loop", lambda: len(anyio.get_running_tasks()))
        metrics.watch("sessions_limit", "Sessions at most", lambda: admission.max_sessions)
        self._admission = admission
        self._files: dict[str, Response] = {}  # path -> answer, of the page
        # connections before their upgrade, oldest first
        self._waiting: dict[ClientSocket, None] = {}
        self._server: Server | None = None  # once it runs
        self._stop = anyio.Event()
        self._draining: anyio.CancelScope | None = None

    @property
    def lag_s(self) -> float:
        """Seconds of audio taken and not yet heard, of the slowest client."""
        return max((place.lag_s for place in self._admission.places.values()), default=0.0)

    @property
    def num_held(self) -> int:
        """Sessions, or turns, that wait for their client."""
        return sum(place.connection is None for place in self._admission.places.values())

    @property
    def links(self) -> set[ClientSocket]:
        """Open websockets."""
        return cast("set[ClientSocket]", self._server.connections if self._server else set())

    @abstractmethod
    def start(self, group: TaskGroup) -> None:
        """Called before the first client; tasks of this group end with the service."""

    @abstractmethod
    def check(self, socket: ClientSocket) -> Response | None:
        """None: this admitted client may upgrade. Raises HttpRefusal if it gets no place."""

    @abstractmethod
    async def serve(self, socket: ClientSocket) -> None:
        """Serve one client, from the upgrade to its end. An error here ends this client alone."""

    @abstractmethod
    async def drain(self, within_s: float) -> None:
        """Bring what is in flight to an end and close every socket with 1012."""

    def stop(self) -> None:
        """Admit no new sessions; sessions in flight end. A second call ends them at once."""
        if self._draining is not None:
            self._draining.cancel()
        self._admission.is_draining = True
        self._stop.set()

    async def run(
        self,
        ready: Callable[[int], None],
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Serve until `stop` or a signal; `ready` gets the port. Raises OSError if it is taken."""
        # asyncio warns of each write to a lost client, and one client can cause thousands
        logging.getLogger("asyncio").setLevel(logging.ERROR)
        self._max_waiting = min(MAX_WAITING, _raise_open_files() // 4)
        server = self._server = await serve(
            self._serve,
            host,
            port,
            process_request=self._answer_or_upgrade,
            # browsers offer it, beside their key; the Python client offers none and gets none
            select_subprotocol=lambda _, offered: next((p for p in offered if p == REALTIME), None),
            create_connection=cast("type[ServerConnection]", partial(ClientSocket, self)),
            max_size=self.max_message_bytes,
            compression=None,
            ping_interval=self.ping_interval_s,
            open_timeout=HANDSHAKE_S,
            ssl=tls,
            ssl_handshake_timeout=HANDSHAKE_S if tls else None,
            close_timeout=CLOSE_S,
            max_queue=self.max_queue,
            logger=_quiet,
            server_header="streamer",
        )
        for listening in server.sockets:
            # accepted ones inherit it
            listening.setsockopt(socket_module.SOL_SOCKET, socket_module.SO_RCVBUF, RECEIVE_BYTES)
            # not by `backlog`: asyncio accepts as many in one round, and logs each that fails
            with socket_module.socket(fileno=os.dup(listening.fileno())) as same:
                same.listen(MAX_PENDING)
        try:  # A run that is cancelled ends its sessions first: none waits for a lost client.
            async with anyio.create_task_group() as group:
                self.start(group)
                group.start_soon(self._measure_lag)
                group.start_soon(self._stop_on_signals)
                await anyio.lowlevel.checkpoint()  # signals are heard from here on
                ready(server.sockets[0].getsockname()[1])
                await self._stop.wait()
                with anyio.CancelScope() as self._draining:
                    await self.drain(DRAIN_S)
                group.cancel_scope.cancel()
        finally:
            self._admission.is_draining = True
            with anyio.CancelScope(shield=True):  # bounded by close_timeout
                server.close(code=RESTART[0], reason=RESTART[1])
                await server.wait_closed()

    def handshake_begins(self, socket: ClientSocket) -> None:
        """Count a connection that is not yet upgraded. Idle ones do not keep others out."""
        self._waiting[socket] = None
        if len(self._waiting) > self._max_waiting:
            oldest = next(iter(self._waiting))
            self.handshake_ends(oldest)
            oldest.transport.abort()

    def handshake_ends(self, socket: ClientSocket) -> None:
        """The connection is upgraded or lost."""
        self._waiting.pop(socket, None)

    def _answer_or_upgrade(self, socket: ServerConnection, request: Request) -> Response | None:
        """Plain HTTP, or a refusal, or None: upgrade."""
        assert isinstance(socket, ClientSocket)
        try:
            if not request.path.isprintable():  # it may become a Location, or a line of a log
                raise ValueError
            url = urlsplit(request.path)
            # other upgrades, such as h2c, are offers that a server may ignore
            upgrades = [each.lower() for each in request.headers.get_all("upgrade")]
            if upgrades == ["websocket"] or not (found := self._plain(url.path)):
                socket.url, socket.query = url, parse_qs(url.query)
                socket.tenant = self._admission.check(url.path, request.headers, socket.query)
                return self.check(socket)
            if request.method not in ("GET", "HEAD"):
                raise HttpRefusal(*ONLY_GET)
            body = b"" if request.method == "HEAD" else found.body
            # a copy, since websockets adds headers
            return Response(found.status_code, found.reason_phrase, found.headers.copy(), body)
        except HttpRefusal as refusal:
            return self.refused(refusal)
        except (ValueError, MultipleValuesError):
            told = "the address cannot be read, or a header is there twice"
            return self.refused(HttpRefusal(400, told))

    def refused(self, refusal: HttpRefusal) -> Response:
        """The refusal as an answer, counted."""
        self.metrics.refusals.labels(str(refusal.status)).inc()
        return answer(refusal.status, f"{refusal}\n", more=refusal.headers)

    def failed(self, what: str, error: Exception) -> None:
        """Log and count an internal error, which ended a session or a turn alone."""
        self.metrics.failed.inc()
        _logger.error(f"{what}.failed", exc_info=error)

    def _plain(self, path: str) -> Response | None:
        a = self._admission
        match path:
            case "/healthz":
                return answer(200, "ok\n")
            case "/readyz":
                return answer(503, "draining\n") if a.is_draining else answer(200, "ready\n")
            case "/statusz":
                where = {"name": a.replica, "kind": self.kind, "pid": os.getpid()}
                places = {"taken": len(a.places), "limit": a.max_sessions, "lag_s": self.lag_s}
                return answer_json({**where, "is_draining": a.is_draining, **places})
            case "/metrics":
                return answer(200, self.metrics.text())
        return self._files.get(path)

    async def _serve(self, socket: ServerConnection) -> None:
        assert isinstance(socket, ClientSocket)
        self.handshake_ends(socket)
        try:
            await self.serve(socket)
        except Exception as error:
            _logger.error("connection.failed", exc_info=error)
            await socket.close(1011, "internal error; the server's log says more")

    async def _measure_lag(self) -> None:
        """Observe how late the event loop comes back from a sleep."""
        while True:
            until = anyio.current_time() + LAG_EVERY_S
            await anyio.sleep_until(until)
            self.metrics.loop_lag.observe(max(0.0, anyio.current_time() - until))

    async def _stop_on_signals(self) -> None:
        """Only the main thread receives signals; a service elsewhere is stopped by its owner."""
        if threading.current_thread() is not threading.main_thread():
            return
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                if not self._stop.is_set() and (num := len(self._admission.places)):
                    way = f"within {DRAIN_S:g} s; a second Ctrl-C or SIGTERM ends at once"
                    notices.warning(f"answering what was said in open sessions ({num}), {way}")
                self.stop()


def _raise_open_files() -> int:
    """Let this process open as many files as the system allows; their number, MAX_FILES at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most

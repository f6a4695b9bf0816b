"""Plain HTTP beside the websocket: a client's connection from its first byte, responses, the
page's files, requests with a body.

The page never has the key in a URL or a cookie: it is typed there and sent as a subprotocol
(admission.py).
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.exceptions import InvalidMessage
from websockets.http11 import Request, Response

HANDSHAKE_S = 5.0  # of TLS, and then of the upgrade
CLOSE_S = 2.0
LARGE_BYTES = 256 << 10  # a message of this size delays the pong after it
HEAD_BYTES = 8 << 10  # websockets refuses longer heads
TEXT = "text/plain; charset=utf-8"
MIME = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".wav": "audio/wav",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "media-src blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
ALWAYS = {
    "Connection": "close",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
UNREADABLE = "this is no HTTP/1.1 request that can be read: see its first line and its headers\n"
END = b"\r\n\r\n"  # ends a request's head
PLAIN = re.compile(rb"[A-Z]+ \S+ HTTP/1\.[01]\r\n")  # a request that is answered
UPGRADE = b"\r\nupgrade:"  # in the head of a request for a websocket, in lower case
_BODY = re.compile(rb"\r\n(?:transfer-encoding|content-length(?!:[ \t]*0+[ \t]*\r)):", re.I)
_BARE = re.compile(rb"\r\n(?:transfer-encoding|content-length|upgrade):[^\r]*", re.I)


def read_page(folder: Path) -> dict[str, Response]:
    """path -> answer, of a folder's files of known kinds; index.html is `/`."""
    more = {"Content-Security-Policy": POLICY}
    found = {
        f"/{file.name}": answer(200, file.read_bytes(), MIME[file.suffix], more)
        for file in sorted(folder.glob("*"))
        if file.suffix in MIME
    }
    if "/index.html" in found:
        found["/"] = found["/index.html"]
    return found


def answer(
    status: int, body: str | bytes, mime: str = TEXT, more: Mapping[str, str] | None = None
) -> Response:
    """A whole response; the connection closes after it."""
    data = body.encode() if isinstance(body, str) else body
    headers = {"Content-Type": mime, "Content-Length": str(len(data)), **ALWAYS, **(more or {})}
    return Response(status, HTTPStatus(status).phrase, Headers(headers), data)


def answer_json(found: object) -> Response:
    """The object as JSON."""
    return answer(200, msgspec.json.encode(found), MIME[".json"])


def for_method(method: str, found: Response) -> Response:
    """A copy of `found` for this method, since websockets adds headers; HEAD gets no body."""
    if method not in ("GET", "HEAD"):
        return answer(405, "only GET and websockets are served here\n", more={"Allow": "GET, HEAD"})
    body = b"" if method == "HEAD" else found.body
    return Response(found.status_code, found.reason_phrase, found.headers.copy(), body)


def url_of(request: Request) -> SplitResult:
    """The request's path and query. Raises ValueError for characters that have no place in an
    address: it may become a Location, a ticket, or a line of a log."""
    if not (request.path.isascii() and request.path.isprintable()):
        raise ValueError("no address")
    return urlsplit(request.path)


def is_websocket(request: Request) -> bool:
    """Whether the client asks for a websocket, whatever else it offers."""
    return [each.lower() for each in request.headers.get_all("upgrade")] == ["websocket"]


def without_body(head: bytes) -> bytes | None:
    """A request's head as that of a request without a body or an upgrade; None if it has no body.

    websockets reads no bodies, and would close the connection without an answer.
    """
    return _BARE.sub(b"", head) if _BODY.search(head) else None


class ClientSocket(ServerConnection):
    """One client's connection, from its first byte.

    It starts TLS itself: asyncio would show a connection only after the TLS handshake, when an idle
    one can no longer be counted and closed.
    """

    def __init__(self, service: Any, *arguments: Any, **options: Any) -> None:
        """service: the Service (service.py) that counts it, and lets it upgrade in turn."""
        super().__init__(*arguments, **options)
        # the key that admitted it
        self.tenant = ""
        self._service = service
        # websockets knows the transport; before, TLS is not established
        self._is_open = False
        # the request until its head is whole, then None
        self._head: bytearray | None = bytearray()
        self._is_unreadable = False
        # a plain request is answered, and what follows it is not read: a body, or further requests
        self._drops_rest = False
        self._securing: asyncio.Task[None] | None = None
        self._late: asyncio.TimerHandle | None = None  # the deadline of the request's head

    @property
    def num_arrived(self) -> int:
        """Bytes of a large message that is arriving, 0 for none; the client's pong may have to wait
        for its end."""
        num = len(self.protocol.reader.buffer)
        return num if num > LARGE_BYTES else 0

    async def turn_to_end(self) -> None:
        """Wait for earlier upgrades and ends of connections: a thousand in one round would block
        the loop for 0.2 s."""
        turn = asyncio.Event()
        self._service.in_turn(turn, turn.set)
        await turn.wait()

    def connection_made(self, transport: Any) -> None:
        self._service.handshake_begins(self, transport)
        if self._service.tls is None:
            self._open(transport)
        else:
            self._securing = self.loop.create_task(self._secure(transport, self._service.tls))

    def connection_lost(self, exc: Exception | None) -> None:
        self._service.handshake_ends(self)
        if self._late is not None:
            self._late.cancel()
        if self._is_open:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._drops_rest:
            return
        if self._head is not None:
            self._head += data
            end = self._head.find(END)
            if end >= 0 and self._late is not None:
                self._late.cancel()
            is_long = len(self._head) >= HEAD_BYTES or not self._head[:1].isalpha()
            if not self._is_open or not self._head or (end < 0 and not is_long):
                return
            data, self._head = bytes(self._head), None
            head = data[: end + len(END)] if end >= 0 else b""
            bare = without_body(head)
            if bare is not None or (PLAIN.match(head) and UPGRADE not in head.lower()):
                data, self._drops_rest = bare or head, True
            elif head:
                self.transport.pause_reading()
                self._service.in_turn(self, partial(self._upgrade, data))
                return
        super().data_received(data)

    def _upgrade(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)
            self.transport.resume_reading()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        if self._drops_rest and self._service.tls is None:
            # a client may say no more, and wait for the answer
            self.loop.call_later(CLOSE_S, self.transport.close)
            return True
        if self._head and self._is_open:
            data, self._head = bytes(self._head), None
            super().data_received(data)
        if self._is_open:
            super().eof_received()
        return None

    def _open(self, transport: Any) -> None:
        self._is_open = True
        self._late = self.loop.call_later(HANDSHAKE_S, self._is_late)
        super().connection_made(transport)
        self.data_received(b"")  # the request may have come with the end of the TLS handshake

    def _is_late(self) -> None:
        if self.request is None:  # a long head may have come in parts, and be read by now
            self.transport.abort()

    def send_data(self) -> None:
        """Answer a request that websockets cannot read, where it would close without a word. The
        answer quotes nothing: the request may hold escape codes."""
        why = self.protocol.handshake_exc
        if isinstance(why, InvalidMessage) and self._head is None and not self._is_unreadable:
            self._is_unreadable = True
            self._service.metrics.refusals.labels("400").inc()
            self.transport.write(answer(400, UNREADABLE).serialize())
        super().send_data()

    async def _secure(self, transport: Any, tls: ssl.SSLContext) -> None:
        try:
            secured = await self.loop.start_tls(
                transport, self, tls, server_side=True, ssl_handshake_timeout=HANDSHAKE_S
            )
        except OSError:  # no TLS, or too late
            secured = None
        if secured is None:
            self._service.handshake_ends(self)
        else:
            self._open(secured)

"""Plain HTTP beside the websocket: responses, the page's files, a client's connection.

The page never has the key in a URL or a cookie: it is typed there and sent as a subprotocol
(admission.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.exceptions import InvalidMessage
from websockets.http11 import Response

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
UNREADABLE = "this is no HTTP/1.1 request that can be read: see its first line and its headers\n"
ONLY_GET = "only GET and websockets are served here\n"
ALLOWED = {"Allow": "GET, HEAD"}


def read_page(folder: Path) -> dict[str, Response]:
    """path -> answer, of a folder's files of known kinds; index.html is `/`."""
    found = {
        f"/{file.name}": answer(200, file.read_bytes(), MIME[file.suffix])
        for file in folder.glob("*")
        if file.suffix in MIME
    }
    return found | {"/": found["/index.html"]}


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
        return answer(405, ONLY_GET, more=ALLOWED)
    body = b"" if method == "HEAD" else found.body
    return Response(found.status_code, found.reason_phrase, found.headers.copy(), body)


class ClientSocket(ServerConnection):
    """One client's connection."""

    def __init__(self, service: Any, *arguments: Any, **options: Any) -> None:
        """service: the Service (service.py) that counts it until it is upgraded."""
        super().__init__(*arguments, **options)
        self.tenant = ""  # the key that admitted it
        self._service = service
        self._is_unreadable = False

    @property
    def num_arrived(self) -> int:
        """Bytes of a large message that is arriving, 0 for none; the client's pong may have to wait
        for its end."""
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
            found = answer(405, ONLY_GET, more=ALLOWED) if has_body else answer(400, UNREADABLE)
            self._service.metrics.refusals.labels(str(found.status_code)).inc()
            self.transport.write(found.serialize())
        super().send_data()

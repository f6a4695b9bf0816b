"""Plain HTTP beside the websocket: responses, the page's files, requests with a body.

The page never has the key in a URL or a cookie: it is typed there and sent as a subprotocol
(admission.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from streamer.net.service.admission import HttpRefusal

TEXT = "text/plain; charset=utf-8"
MIME = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".ico": "image/x-icon",
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


def refused(refusal: HttpRefusal) -> Response:
    return answer(refusal.status, refusal.message + "\n", more=refusal.headers)


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

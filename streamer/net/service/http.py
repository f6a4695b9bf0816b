"""Plain HTTP beside the websocket: responses, a page's files, requests that cannot be upgraded.

The page never has the key in a URL or a cookie: it is typed there and sent as a subprotocol
(admission.py).
"""

from __future__ import annotations

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
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".wav": "audio/wav",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ALWAYS = {
    "Connection": "close",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
SINGLE = ("authorization", "origin", "host")
END = b"\r\n\r\n"  # ends a request's head


def read_page(folder: Path) -> dict[str, Response]:
    """path -> answer, of a folder's files of known kinds; index.html is `/`. No others."""
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


def for_method(method: str, found: Response) -> Response:
    """`found` as an answer to this method: a copy, as websockets adds headers; HEAD has no body,
    and only GET and HEAD have a content."""
    if method not in ("GET", "HEAD"):
        return answer(405, "only GET and websockets are served here\n", more={"Allow": "GET, HEAD"})
    body = b"" if method == "HEAD" else found.body
    return Response(found.status_code, found.reason_phrase, found.headers.copy(), body)


def refused(refusal: HttpRefusal) -> Response:
    return answer(refusal.status, refusal.message + "\n", more=refusal.headers)


def url_of(request: Request) -> SplitResult:
    """The request's path and query. Raises ValueError for one with characters that have no place in
    an address: it may become a Location, a ticket, or a line of a log."""
    if not (request.path.isascii() and request.path.isprintable()):
        raise ValueError("no address")
    return urlsplit(request.path)


def headers_of(request: Request) -> dict[str, str] | HttpRefusal:
    """Header -> value, names in lower case. A doubled header that admission reads is refused."""
    found: dict[str, str] = {}
    for name, value in request.headers.raw_items():
        key = name.lower()
        if key in found and key in SINGLE:
            return HttpRefusal(400, f"{name} is there twice; send it once")
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found


def with_body(head: bytes) -> Request | None:
    """The request whose head this is, where a body follows it: websockets reads none, and would
    close the connection without an answer."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    pairs = [line.partition(":") for line in lines]
    fields = [(name.strip().lower(), value.strip()) for name, _, value in pairs]
    has_body = any(
        name == "transfer-encoding" or (name == "content-length" and value != "0")
        for name, value in fields
    )
    if not has_body or len(words) != 3 or not words[2].startswith("HTTP/1."):
        return None
    return Request(words[1], Headers(), words[0], words[2])

"""Plain HTTP beside the websocket. In: a request. Out: a response; a page's files, read once.

The page never has the key in a URL or a cookie: it is typed there and sent as a subprotocol
(admission.py). websockets adds headers to a response that it sends, so who keeps one hands out
copies.
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


def refused(refusal: HttpRefusal) -> Response:
    return answer(refusal.status, refusal.message + "\n", more=refusal.headers)


def url_of(request: Request) -> SplitResult:
    """The request's path and query. Raises ValueError for an address that is none: one that is not
    ASCII has no place in a Location, nor in a ticket."""
    request.path.encode("ascii")
    return urlsplit(request.path)


def headers_of(request: Request) -> dict[str, str] | HttpRefusal:
    """Header -> value, names in lower case; one that decides is refused where doubled."""
    found: dict[str, str] = {}
    for name, value in request.headers.raw_items():
        key = name.lower()
        if key in found and key in SINGLE:
            return HttpRefusal(400, f"{name} is there twice; send it once")
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found

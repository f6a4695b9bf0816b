"""Connect to a verifier, and say in one line why that failed."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    WebSocketException,
)

from streamer.core.link import wire

CONNECT_S = 5.0
PORT = 8766  # of a verifier, where the address names none
# A pong may wait for the audio before it on a thin link: 2 s of it take 16 s at 32 kbit/s.
PING_S, PONG_S = 5.0, 20.0
REFUSED_FOR_GOOD = (401, 403)  # this key, or this edge: no pause makes it another one
# A wrong address. Where a connection has been up the address is right, and it may be again.
REFUSED_AT_FIRST = (400, 404)
# errors of a dial
UNREACHABLE = (OSError, WebSocketException)


@dataclass(frozen=True)
class VerifierAddress:
    """The address of a verifier, and how to use it.

    eager: send audio while someone speaks, else only when a verdict is wanted. budget_s: for a
    verdict.
    """

    url: str
    key: str | None = None
    tls: ssl.SSLContext | None = None
    eager: bool = True
    budget_s: float = 5.0

    @property
    def address(self) -> str:
        """The URL with a port."""
        parts = urlsplit(self.url)
        if parts.port:
            return self.url
        return urlunsplit(parts._replace(netloc=f"{parts.netloc.rstrip(':')}:{PORT}"))

    @property
    def name(self) -> str:
        """For error messages; without a password that the URL may hold."""
        parts = urlsplit(self.address)
        return f"the verifier at {parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def dialled_by(self, edge: str) -> str:
        """The URL to connect to. edge: a name by which a director or a balancer in front of many
        verifiers sends this edge to the verifier that it had."""
        parts = urlsplit(self.address)
        asked = [parts.query, f"{wire.VERSION_QUERY}={wire.VERSION}", f"edge={edge}"]
        path = parts.path.rstrip("/") or wire.PATH
        return urlunsplit(parts._replace(path=path, query="&".join(filter(None, asked))))

    async def dial(self, edge: str) -> ClientConnection:
        """A connection for one turn. Raises UNREACHABLE."""
        return await connect(
            self.dialled_by(edge),
            additional_headers={"Authorization": f"Bearer {self.key}"} if self.key else None,
            ssl=self.tls,
            compression=None,
            open_timeout=CONNECT_S,
            close_timeout=0.5,
            max_size=wire.MAX_MESSAGE_BYTES,
            proxy=None,
            ping_interval=PING_S,
            ping_timeout=PONG_S,
        )


def is_final(error: Exception, was_linked: bool) -> bool:
    """Whether a new attempt seems useless; it is made all the same, seldom."""
    if isinstance(error, InvalidStatus):
        status = error.response.status_code
        return status in REFUSED_FOR_GOOD or (status in REFUSED_AT_FIRST and not was_linked)
    is_wrong = isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)
    return is_wrong and not was_linked


def is_absent(error: Exception) -> bool:
    """Whether nothing listens there, no route leads there, or the connection ends at once."""
    is_closed = isinstance(error, InvalidMessage) and isinstance(error.__cause__, EOFError)
    return is_closed or (isinstance(error, OSError) and not isinstance(error, ssl.SSLError))


def why(error: Exception) -> str:
    """The error as one line, which may hold what the other side says."""
    match error:
        case InvalidStatus(response=response):
            body = response.body.decode("utf-8", "replace").strip()
            told = f"HTTP {response.status_code}" + (f" ({body[:200]})" if body else "")
            way = "; give its key with --cloud-key or STREAMER_CLOUD_KEY"
            return told + way * (response.status_code == 401)
        case ConnectionClosed(rcvd=closed):
            told = f"closed ({closed.reason or closed.code})" if closed else "cut"
            return f"the link was {told}"
        case TimeoutError():
            return f"no answer within {CONNECT_S:g} s"
        case ssl.SSLCertVerificationError():
            told = f"its certificate does not verify ({error.verify_message.rstrip('.')})"
            way = "name the PEM file of its authority in SSL_CERT_FILE, and the host as the "
            return f"{told}; {way}certificate does"
        case ssl.SSLError():
            ways = "give it --cert and --key, or take ws:// where the network is your own"
            return f"it does not speak TLS ({error.reason}); {ways}"
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number)  # asyncio's text repeats the address
        case ConnectionResetError() | InvalidMessage(__cause__=EOFError()):
            ways = "give wss:// if it has a certificate, else ws://"
            return f"it closes connections at once; {ways}"
        case InvalidHandshake():
            return f"it does not speak our protocol ({error})"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__

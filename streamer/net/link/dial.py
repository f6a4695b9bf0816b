"""Connect to a verifier, and say in one line why that failed."""

from __future__ import annotations

import os
import socket as sockets
import ssl
from contextlib import suppress
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

from streamer.core.description import one_line
from streamer.core.link import wire

CONNECT_S = 5.0
PORT = 8766  # of a verifier, where the address names none
# A pong may wait for the audio before it on a thin link: 2 s of it take 16 s at 32 kbit/s.
PING_S, PONG_S = 5.0, 20.0
# in our buffer before a send waits: at most this much audio is ahead of a request
WRITE_BYTES = 4_096
UNSENT_BYTES = 16_384  # the same in the kernel's
_NOTSENT_LOWAT = getattr(sockets, "TCP_NOTSENT_LOWAT", None)
REFUSED_FOR_GOOD = (401, 403)  # this key, or this edge: no pause makes it another one
# A wrong address. Where a connection has been up the address is right, and it may be again.
REFUSED_AT_FIRST = (400, 404)
NO_SUCH_HOST = (sockets.EAI_NONAME, getattr(sockets, "EAI_NODATA", sockets.EAI_NONAME))
NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")  # OpenSSL's words for plain text
# errors of a dial
UNREACHABLE = (OSError, WebSocketException)


@dataclass(frozen=True)
class VerifierAddress:
    """The address of a verifier, and how to use it.

    eager: send audio while someone speaks, else only when a verdict is wanted. budget_s: for a
    verdict. goes_on: without one, in mode gated.
    """

    url: str
    key: str | None = None
    tls: ssl.SSLContext | None = None
    eager: bool = True
    budget_s: float = 5.0
    goes_on: bool = True

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


async def dial(verifier: VerifierAddress, edge: str = "") -> ClientConnection:
    """A connection for one turn. Raises UNREACHABLE."""
    headers = {"Authorization": f"Bearer {verifier.key}"} if verifier.key else None
    socket = await connect(
        verifier.dialled_by(edge),
        additional_headers=headers,
        ssl=verifier.tls,
        compression=None,
        open_timeout=CONNECT_S,
        close_timeout=0.5,
        max_size=wire.MAX_MESSAGE_BYTES,
        write_limit=WRITE_BYTES,
        proxy=None,
        ping_interval=PING_S,
        ping_timeout=PONG_S,
    )
    raw = socket.transport.get_extra_info("socket")
    if _NOTSENT_LOWAT is not None and raw is not None:
        with suppress(OSError):
            raw.setsockopt(sockets.IPPROTO_TCP, _NOTSENT_LOWAT, UNSENT_BYTES)
    return socket


def is_final(error: Exception, was_linked: bool) -> bool:
    """Whether a new attempt seems useless; it is made all the same, seldom."""
    if isinstance(error, ssl.SSLCertVerificationError) or _is_no_tls(error):
        return not was_linked
    if not isinstance(error, InvalidStatus):
        return False
    status = error.response.status_code
    return status in REFUSED_FOR_GOOD or (status in REFUSED_AT_FIRST and not was_linked)


def is_absent(error: Exception) -> bool:
    """Whether nothing listens there, no route leads there, or the connection ends at once."""
    is_refused = isinstance(error, OSError) and not isinstance(error, ssl.SSLError)
    return is_refused or _is_closed_at_once(error)


def is_other_version(error: BaseException) -> bool:
    """Whether the verifier closed the connection because it could not read a message."""
    rcvd = error.rcvd if isinstance(error, ConnectionClosed) else None
    return rcvd is not None and rcvd.code == 1008


def _is_no_tls(error: BaseException) -> bool:
    """Whether a wss:// address answered in plain text."""
    return isinstance(error, ssl.SSLError) and error.reason in NO_TLS


def why(error: BaseException) -> str:
    """The error as one printable line, whatever the other side says."""
    return one_line(_why(error))


def _why(error: BaseException) -> str:
    match error:
        case InvalidStatus():
            return _status(error)
        case ConnectionClosed(rcvd=None):
            return "the link was cut"
        case ConnectionClosed() if is_other_version(error):
            return f"it does not understand version {wire.VERSION} of the link; update it"
        case ConnectionClosed():
            assert error.rcvd is not None
            return f"the link was closed ({error.rcvd.reason or error.rcvd.code})"
        case TimeoutError():
            return f"no answer within {CONNECT_S:g} s"
        case ssl.SSLCertVerificationError():
            told = f"its certificate does not verify ({error.verify_message.rstrip('.')})"
            way = "name the PEM file of its authority in SSL_CERT_FILE, and the host as the "
            return f"{told}; {way}certificate does"
    if _is_no_tls(error):
        ways = "give it --cert and --key, or take ws:// where the network is your own"
        return f"it does not speak TLS; {ways}"
    if _is_closed_at_once(error):
        return "it closes connections at once; give wss:// if it has a certificate"
    if isinstance(error, ConnectionResetError) and not error.errno:  # from asyncio
        return "it ends the handshake of TLS; give ws:// if it has no certificate"
    if isinstance(error, InvalidHandshake):
        return f"it does not speak our protocol ({error})"
    if isinstance(error, sockets.gaierror) and error.errno in NO_SUCH_HOST:
        return f"{error.strerror}; check the host's name, and that there is a network"
    number = error.errno if isinstance(error, OSError) else None
    if number and number > 0 and not isinstance(error, ssl.SSLError):
        return os.strerror(number)  # asyncio's text repeats the address
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _status(error: InvalidStatus) -> str:
    """The line for an HTTP answer in place of the upgrade."""
    status = error.response.status_code
    body = error.response.body.decode("utf-8", "replace").strip()
    if status == 401:
        cause = body[:200].partition(";")[0] or "wrong or missing key"
        return f"HTTP 401 ({cause}); give its key with --cloud-key or STREAMER_CLOUD_KEY"
    if status == 404 and "connect to /v1/realtime" in body:
        return "it is a `streamer serve`; give the address of a `streamer verifier`"
    return f"HTTP {status}" + (f" ({body[:200]})" if body else "")


def _is_closed_at_once(error: BaseException) -> bool:
    """Before the handshake: a balancer without a verifier, or TLS at a ws:// address."""
    return isinstance(error, InvalidMessage) and isinstance(error.__cause__, EOFError)

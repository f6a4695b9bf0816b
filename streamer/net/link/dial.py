"""How an edge connects to a verifier. In: where it is. Out: a websocket, or in one line why there
is none."""

from __future__ import annotations

import os
import socket as sockets
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus

from streamer.core.description import one_line
from streamer.core.link import wire
from streamer.core.link.patience import Patience

CONNECT_S = 5.0
PORT = 8766  # of a verifier, where the address names none
# in our buffer before a send waits: so a request does not queue behind another turn's audio
WRITE_BYTES = 4_096
UNSENT_BYTES = 16_384  # the same in the kernel's
_NOTSENT_LOWAT = getattr(sockets, "TCP_NOTSENT_LOWAT", None)
REFUSED_FOR_GOOD = (401, 403)  # this key, or this edge: no pause makes it another one
NO_SUCH_HOST = (sockets.EAI_NONAME, getattr(sockets, "EAI_NODATA", sockets.EAI_NONAME))
# a wrong address; where a link has been up the address is right, and it may be again
REFUSED_AT_FIRST = (400, 404)


@dataclass(frozen=True)
class VerifierAddress:
    """Where it is and how to ask. eager: send audio while someone speaks, else only when a verdict
    is wanted. patience: how long a file waits until it is heard there."""

    url: str
    key: str | None = None
    tls: ssl.SSLContext | None = None
    eager: bool = True
    patience: Patience = field(default_factory=Patience)

    @property
    def address(self) -> str:
        """The URL with a port."""
        parts = urlsplit(self.url)
        return (
            self.url
            if parts.port
            else urlunsplit(parts._replace(netloc=f"{parts.netloc.rstrip(':')}:{PORT}"))
        )

    @property
    def name(self) -> str:
        """For error messages; without a password that the URL may hold."""
        parts = urlsplit(self.address)
        return f"the verifier at {parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def dial(verifier: VerifierAddress) -> connect:
    """A link, as an async context."""
    url = verifier.address.rstrip("/")
    url += "" if urlsplit(url).path else wire.PATH
    headers = {"Authorization": f"Bearer {verifier.key}"} if verifier.key else None
    return connect(
        url,
        additional_headers=headers,
        ssl=verifier.tls,
        compression=None,
        open_timeout=CONNECT_S,
        ping_interval=None,
        close_timeout=0.5,
        max_size=wire.MAX_MESSAGE_BYTES,
        write_limit=WRITE_BYTES,
        proxy=None,
    )


def keep_short(socket: ClientConnection) -> None:
    """Let the kernel, too, take little before a send waits."""
    raw = socket.transport.get_extra_info("socket")
    if _NOTSENT_LOWAT is not None and raw is not None:
        with suppress(OSError):
            raw.setsockopt(sockets.IPPROTO_TCP, _NOTSENT_LOWAT, UNSENT_BYTES)


class WrongScheme(OSError):
    """A ws:// address whose port speaks TLS, or a wss:// one whose port does not."""


async def explained(verifier: VerifierAddress, error: Exception) -> Exception:
    """`error`, or what is behind it: where plain words meet TLS, the connection is closed without
    one."""
    parts = urlsplit(verifier.address)
    where = parts.hostname or "", parts.port or PORT
    with (
        suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream),
        anyio.move_on_after(CONNECT_S),
    ):
        if parts.scheme == "ws" and _is_closed_at_once(error) and await _speaks_tls(*where):
            return WrongScheme("it speaks TLS; give wss:// instead of ws://")
        if parts.scheme == "wss" and _is_no_handshake(error) and await _speaks_plainly(*where):
            ways = "give it --cert and --key, or take ws:// where the network is your own"
            return WrongScheme(f"it does not speak TLS; {ways}")
    return error


async def _speaks_tls(host: str, port: int) -> bool:
    anyone = ssl.create_default_context()
    # nothing is said to it
    anyone.check_hostname = False
    anyone.verify_mode = ssl.CERT_NONE
    async with await anyio.connect_tcp(
        host, port, ssl_context=anyone, tls_standard_compatible=False
    ):
        return True


async def _speaks_plainly(host: str, port: int) -> bool:
    """Whether it answers a request in the clear, which says nothing: no key, no path of ours."""
    async with await anyio.connect_tcp(host, port) as stream:
        await stream.send(b"GET / HTTP/1.1\r\nHost: verifier\r\n\r\n")
        return (await stream.receive(16)).startswith(b"HTTP/1.")


def _is_no_handshake(error: BaseException) -> bool:
    """TLS was begun and not answered in kind; a certificate that does not fit came by TLS."""
    is_verified = not isinstance(error, ssl.SSLCertVerificationError)
    return is_verified and isinstance(error, ConnectionResetError | ssl.SSLError)


def _is_closed_at_once(error: BaseException) -> bool:
    if isinstance(error, ConnectionResetError):
        return not error.errno  # asyncio's word for an end within the handshake of TLS
    return isinstance(error, InvalidMessage) and isinstance(error.__cause__, EOFError)


def is_final(error: Exception, was_linked: bool) -> bool:
    """Whether to connect again makes no sense, as far as one can tell; it is tried all the same,
    seldom."""
    if isinstance(error, ssl.SSLCertVerificationError | WrongScheme):
        return not was_linked
    if isinstance(error, sockets.gaierror):
        return error.errno in NO_SUCH_HOST and not was_linked
    if not isinstance(error, InvalidStatus):
        return False
    status = error.response.status_code
    return status in REFUSED_FOR_GOOD or (status in REFUSED_AT_FIRST and not was_linked)


def first_of(group: ExceptionGroup) -> Exception:
    """What ended a link: a fault of the verifier's, if there was one, else that the link was
    cut."""
    flat = [
        e
        for part in group.exceptions
        for e in (part.exceptions if isinstance(part, ExceptionGroup) else [part])
    ]
    faults = [error for error in flat if not isinstance(error, ConnectionClosed)]
    found = (faults or flat)[0]
    assert isinstance(found, Exception)
    return found


def why(error: BaseException) -> str:
    """One line for a person, whatever the other side says."""
    return one_line(_why(error))


def _why(error: BaseException) -> str:
    if isinstance(error, InvalidStatus):
        body = error.response.body.decode("utf-8", "replace").strip()
        if error.response.status_code == 401:
            cause = body[:200].partition(";")[0] or "wrong or missing key"
            return f"HTTP 401 ({cause}); give its key with --cloud-key or STREAMER_CLOUD_KEY"
        if error.response.status_code == 404 and "connect to /v1/realtime" in body:
            return "it is a `streamer serve`; give the address of a `streamer verifier`"
        return f"HTTP {error.response.status_code}" + (f" ({body[:200]})" if body else "")
    if isinstance(error, ConnectionClosed):
        return (
            f"the link was closed ({error.rcvd.reason or error.rcvd.code})"
            if error.rcvd
            else "the link was cut"
        )
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_S:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        told = f"its certificate does not verify ({error.verify_message.rstrip('.')})"
        return (
            f"{told}; name the PEM file of its authority with --cloud-ca, and the host as the "
            "certificate does"
        )
    if _is_closed_at_once(error):
        return "it closes connections at once"
    if isinstance(error, InvalidHandshake):
        return f"it does not speak our protocol ({error})"
    if (
        isinstance(error, OSError)
        and (error.errno or 0) > 0
        and not isinstance(error, ssl.SSLError)
    ):
        return os.strerror(error.errno or 0)  # asyncio names the address there, once more
    return getattr(error, "strerror", None) or str(error) or type(error).__name__

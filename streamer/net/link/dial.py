"""How an edge connects to a verifier. In: where it is. Out: a websocket."""

from __future__ import annotations

import socket as sockets
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect

from streamer.core.link import wire
from streamer.core.link.patience import Patience

CONNECT_S = 5.0
PORT = 8766  # of a verifier, where the address names none
# in our buffer before a send waits: so a request does not queue behind another turn's audio
WRITE_BYTES = 4_096
UNSENT_BYTES = 16_384  # the same in the kernel's
_NOTSENT_LOWAT = getattr(sockets, "TCP_NOTSENT_LOWAT", None)


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
        if parts.port:
            return self.url
        return urlunsplit(parts._replace(netloc=f"{parts.netloc.rstrip(':')}:{PORT}"))

    @property
    def name(self) -> str:
        """For error messages; without a password that the URL may hold."""
        parts = urlsplit(self.address)
        return f"the verifier at {parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def dial(verifier: VerifierAddress, edge: str = "") -> connect:
    """A link, as an async context. edge: who dials, so that a director or a balancer before many
    verifiers sends it to the one that it had."""
    url = verifier.address.rstrip("/")
    url += "" if urlsplit(url).path else wire.PATH
    url += f"?edge={edge}" if edge and not urlsplit(url).query else ""
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

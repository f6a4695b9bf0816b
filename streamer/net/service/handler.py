"""What a service does, and where it listens (service.py runs it)."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from anyio.abc import TaskGroup

from streamer.net.service.admission import HttpRefusal
from streamer.net.service.big_messages import PacedConnection

Query = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Address:
    """Where to listen; `tls` for wss."""

    host: str = "127.0.0.1"
    port: int = 8765
    tls: ssl.SSLContext | None = None


class Handler(Protocol):
    """What a service does."""

    max_message_bytes: int
    kind: str  # what it says of itself: server or verifier

    @property
    def lag_s(self) -> float:
        """Seconds of audio that were taken and are not heard, of who is furthest behind."""
        ...

    def start(self, group: TaskGroup) -> None:
        """Called before the first client; tasks of this group end with the service."""
        ...

    def check(self, query: Query, tenant: str) -> HttpRefusal | None:
        """Why a client that may connect has no place, or None."""
        ...

    async def serve(self, socket: PacedConnection, query: Query) -> None:
        """One client, from the upgrade to its end; what it raises ends this client alone."""
        ...

    async def drain(self, within_s: float) -> None:
        """Bring what is in flight to an end and close every socket with 1012."""
        ...

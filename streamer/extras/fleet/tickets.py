"""Tickets: a director signs one, and the replica that it names lets one client in for it.

A client that is sent on to another address must not take its key along (websockets does not), and
a browser cannot. So the director, which saw the key, signs a ticket that goes into the address: it
is useless elsewhere, later, or twice. Clocks may differ by less than LIFE_S.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from streamer.net.service.admission import is_equal

LIFE_S = 30.0


def sign(key: str, replica: str, now: float) -> str:
    """A ticket into the replica of this name, until `now` (Unix time, seconds) + LIFE_S."""
    head = f"{int(now + LIFE_S):x}.{secrets.token_hex(8)}"
    return f"{head}.{_signature(key, replica, head)}"


def _signature(key: str, replica: str, head: str) -> str:
    return hmac.digest(key.encode(), f"{replica} {head}".encode(), hashlib.sha256)[:16].hex()


@dataclass
class Tickets:
    """Those into one replica."""

    keys: Sequence[str]
    replica: str
    clock: Callable[[], float] = time.time
    # Used ones: their beginning -> when they expire. Then they are forgotten, so the number is
    # bounded by the tickets that directors sign in LIFE_S.
    used: dict[str, int] = field(default_factory=dict)

    def redeem(self, ticket: str) -> list[str]:
        """The key that signed it; none if no key did, or it expired or was used."""
        head, _, shown = ticket.rpartition(".")
        signed = [k for k in self.keys if is_equal(_signature(k, self.replica, head), shown)]
        now = self.clock()
        until = int(head.partition(".")[0], 16) if signed else 0
        if not now <= until <= now + 2 * LIFE_S or head in self.used:
            return []
        self.used = {used: end for used, end in self.used.items() if end >= now}
        self.used[head] = until
        return signed

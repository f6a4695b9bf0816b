"""A way in, given by who has the key. In: a key. Out: a text that lets one client in, once.

A client that is sent on to another address must not take its key along (websockets does not), and a
browser cannot. So the director, which saw the key, signs a ticket, and the ticket stands in the
address. It is of no use elsewhere, later, or twice. Clocks may differ by less than LIFE_S.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence

LIFE_S = 30.0
MAX_CHARACTERS = 128  # of a ticket that is worth a look
_SIGNED_BYTES = 16
_NONCE_BYTES = 8


def sign(key: str, replica: str, now: float) -> str:
    """A ticket into the replica of this name, until `now` (Unix time, seconds) + LIFE_S."""
    head = f"{int(now + LIFE_S):x}.{secrets.token_hex(_NONCE_BYTES)}"
    return f"{head}.{_signature(key, replica, head)}"


class Tickets:
    """Those of one replica. Who was let in is kept until the ticket is too old, so at most what
    directors signed in LIFE_S."""

    def __init__(self, replica: str, clock: Callable[[], float] = time.time) -> None:
        self._replica = replica
        self._clock = clock
        self._used: dict[str, int] = {}  # head -> until when it would be good

    def redeem(self, ticket: str, keys: Sequence[str]) -> str | None:
        """The key that signed it; None where none did, it is too old, or was used."""
        head, _, signature = ticket.rpartition(".")
        until = _until(head) if len(ticket) <= MAX_CHARACTERS else None
        now = self._clock()
        if until is None or not now <= until <= now + 2 * LIFE_S or head in self._used:
            return None
        signed_by = [k for k in keys if _is_signed(k, self._replica, head, signature)]
        if not signed_by:
            return None
        self._used = {used: end for used, end in self._used.items() if end >= now}
        self._used[head] = until
        return signed_by[0]


def _until(head: str) -> int | None:
    try:
        return int(head.partition(".")[0], 16)
    except ValueError:
        return None


def _is_signed(key: str, replica: str, head: str, signature: str) -> bool:
    wanted = _signature(key, replica, head).encode()
    return hmac.compare_digest(wanted, signature.encode("utf-8", "surrogatepass"))


def _signature(key: str, replica: str, head: str) -> str:
    told = f"{replica} {head}".encode("utf-8", "surrogatepass")
    signed = hmac.digest(key.encode(), told, hashlib.sha256)
    return signed[:_SIGNED_BYTES].hex()

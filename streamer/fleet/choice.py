"""Which replica gets who comes. In: what each replica said last. Out: one of them, or none. Pure.

A server's newcomer goes where most places are free. An edge's link comes back to the verifier that
it had, as long as that has room: each verifier gets a number from the edge's name and its own, and
the highest wins (rendezvous hashing). So every director decides alike, without telling the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from streamer.net.service.status import ReplicaStatus

SERVER = "server"
VERIFIER = "verifier"


@dataclass(frozen=True)
class Candidate:
    """A replica that answers. num_sent: clients that were sent to it and have not arrived there."""

    address: str  # ws://HOST:PORT
    status: ReplicaStatus
    num_sent: int = 0
    is_leaving: bool = False  # about to be drained: nobody new

    @property
    def num_free(self) -> int:
        """Places for newcomers."""
        is_open = not (self.is_leaving or self.status.is_draining)
        return self.status.limit - self.status.taken - self.num_sent if is_open else 0


def choose(candidates: Iterable[Candidate], kind: str, edge: str = "") -> Candidate | None:
    """The one for a newcomer of `kind`; None where all are full. edge: the name of an edge's
    process, where it has one."""
    open_now = [c for c in candidates if c.status.kind == kind and c.num_free > 0]
    if not open_now:
        return None
    if edge:
        return max(open_now, key=lambda c: _weight(edge, c.status.name or c.address))
    return max(open_now, key=lambda c: (c.num_free, c.address))


def find(candidates: Iterable[Candidate], incarnation: str) -> Candidate | None:
    """The replica that a session's id names, while it lives; full or leaving, it has the
    session."""
    return next((c for c in candidates if incarnation and c.status.name == incarnation), None)


def _weight(edge: str, replica: str) -> bytes:
    return hashlib.blake2b(f"{edge} {replica}".encode(), digest_size=8).digest()

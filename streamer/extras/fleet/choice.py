"""Which replica gets who comes. In: what each replica said last. Out: one of them, or none. Pure.

A server's newcomer goes where most places are free. An edge's link comes back to the verifier that
it had, as long as that has room: each verifier gets a number from the edge's name and its own, and
the highest wins (rendezvous hashing). So every director decides alike, without telling the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamer.net.service.admission import NOBODY, ReplicaStatus

SERVER = "server"
VERIFIER = "verifier"


@dataclass(frozen=True)
class Candidate:
    """A replica that answers. sent: clients on their way there, by their tenant."""

    address: str  # ws://HOST:PORT
    status: ReplicaStatus
    sent: Mapping[str, int] = field(default_factory=dict)
    is_leaving: bool = False  # about to be drained: nobody new

    @property
    def num_sent(self) -> int:
        return sum(self.sent.values())

    @property
    def num_free(self) -> int:
        """Places, were all to arrive who were sent here."""
        return self._num_open - self.num_sent

    def has_room(self, tenant: str) -> bool:
        """For a newcomer. Others who were sent here may be refused, for want of a share: they take
        no place before they have it."""
        return self._num_open > self.sent.get(tenant, 0)

    @property
    def _num_open(self) -> int:
        is_open = not (self.is_leaving or self.status.is_draining)
        return self.status.limit - self.status.taken if is_open else 0


def choose(
    candidates: Iterable[Candidate], kind: str, edge: str = "", tenant: str = NOBODY
) -> Candidate | None:
    """The one for a newcomer of `kind`; None where all are full. edge: its process's name."""
    open_now = [c for c in candidates if c.status.kind == kind and c.has_room(tenant)]
    if not open_now:
        return None
    if edge:
        return max(open_now, key=lambda c: _weight(edge, c.status.name or c.address))
    return max(open_now, key=lambda c: (c.num_free, c.address))


def find(candidates: Iterable[Candidate], incarnation: str) -> Candidate | None:
    """The living replica that a session's id names; full or leaving, it has the session."""
    return next((c for c in candidates if incarnation and c.status.name == incarnation), None)


def _weight(edge: str, replica: str) -> bytes:
    return hashlib.blake2b(f"{edge} {replica}".encode(), digest_size=8).digest()

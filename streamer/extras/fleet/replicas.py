"""The replicas that a director knows, and which of them gets a new client.

Each replica is polled at /statusz every POLL_S. A replica that refuses the connection counts as
gone at once; a silent one gets no new clients and is gone after GONE_S. Bounds: one request per
replica at a time, NUM_ASKED in all, MAX_BYTES of an answer.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import time
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass

import anyio
import anyio.to_thread
import msgspec

from streamer.net.service.admission import ReplicaStatus

SERVER = "server"
VERIFIER = "verifier"
POLL_S = 0.25
SILENCE_S = 1.0
GONE_S = 3.0
NUM_ASKED = 32
MAX_BYTES = 1 << 20
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # not the environment's
_decode = msgspec.json.Decoder(ReplicaStatus).decode
_logger = logging.getLogger("streamer.notice")  # its lines go to stderr


@dataclass
class Known:
    """A replica at an address.

    status: the last one; sent: clients sent there since. silent_since: None while it answers.
    is_gone: it refuses connections, or is silent for too long. is_leaving: about to be drained.
    """

    address: str  # ws://HOST:PORT
    status: ReplicaStatus | None = None
    silent_since: float | None = None
    is_gone: bool = False
    is_leaving: bool = False
    is_asked: bool = False
    sent: int = 0

    @property
    def answers(self) -> bool:
        return self.status is not None and self.silent_since is None

    @property
    def staying(self) -> ReplicaStatus | None:
        """The last status, if it may get new clients."""
        status = self.status if self.answers and not self.is_leaving else None
        return None if status is None or status.is_draining else status

    @property
    def kind(self) -> str:
        return self.status.kind if self.status else ""

    @property
    def num_free(self) -> int:
        """Free places by the last status; 0 if it gets no new clients."""
        return max(0, self.staying.limit - self.staying.taken) if self.staying else 0

    def heard(self, status: ReplicaStatus) -> None:
        self.status, self.silent_since, self.sent = status, None, 0
        self.is_gone = False

    def missed(self, now: float, is_refused: bool) -> None:
        """It did not answer. is_refused: nothing listens there."""
        if self.silent_since is None:
            self.silent_since = now
        self.is_gone = is_refused or now - self.silent_since > GONE_S


def choose(replicas: Iterable[Known], kind: str, edge: str = "") -> Known | None:
    """The replica for a new client of `kind`; None if all are full.

    A client of a server goes where most places are free. An edge returns to the verifier that it
    had: the highest hash of both names wins (rendezvous hashing), so all directors agree.
    """
    there = [r for r in replicas if r.kind == kind and r.num_free]
    if edge:
        return max(there, key=lambda r: _weight(edge, r), default=None)
    return max(there, key=lambda r: (r.num_free - r.sent, r.address), default=None)


def _weight(edge: str, replica: Known) -> bytes:
    name = (replica.status and replica.status.name) or replica.address
    return hashlib.blake2b(f"{edge} {name}".encode(), digest_size=8).digest()


class Roster:
    """`set` the addresses, `run` it, and read `known` and `answering`."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}  # by address

    @property
    def answering(self) -> list[Known]:
        """Replicas that answered the last poll."""
        return [known for known in self.known.values() if known.answers]

    def find(self, incarnation: str) -> Known | None:
        """The replica that a session's id names, even if it is silent, full or leaving."""
        there = (k for k in self.known.values() if k.status and not k.is_gone)
        return next((k for k in there if k.status and k.status.name == incarnation), None)

    def set(self, addresses: Iterable[str]) -> None:
        """Know exactly these addresses; the state of those that stay is kept."""
        self.known = {a: self.known.get(a) or Known(a) for a in addresses}

    async def run(self) -> None:
        """Poll until cancelled. A slow replica delays no other."""
        limiter = anyio.CapacityLimiter(NUM_ASKED)
        async with anyio.create_task_group() as group:
            while True:
                for known in self.known.values():
                    if not known.is_asked:
                        known.is_asked = True
                        group.start_soon(self._ask, known, limiter)
                await anyio.sleep(POLL_S)

    async def _ask(self, known: Known, limiter: anyio.CapacityLimiter) -> None:
        was_gone = known.is_gone
        try:
            known.heard(
                await anyio.to_thread.run_sync(
                    _fetch, known.address, limiter=limiter, abandon_on_cancel=True
                )
            )
        except (OSError, http.client.HTTPException, ValueError, msgspec.MsgspecError) as error:
            cause = getattr(error, "reason", error)  # urllib wraps it
            known.missed(time.monotonic(), isinstance(cause, ConnectionRefusedError))
            if known.is_gone and not was_gone:
                told = "%s does not answer as a replica (%.120s)"
                _logger.warning(told, known.address, cause)
        finally:
            known.is_asked = False


def _fetch(address: str) -> ReplicaStatus:
    with _opener.open(f"{address.replace('ws', 'http', 1)}/statusz", timeout=SILENCE_S) as answer:
        return _decode(answer.read(MAX_BYTES))

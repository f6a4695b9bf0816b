"""The replicas that a director knows, and which of them gets a new client.

Each replica is polled at /statusz every POLL_S. A replica that refuses the connection counts as
gone at once; a silent one gets no new clients and is gone after GONE_S. Bounds: one request per
replica at a time, NUM_ASKED in all, MAX_BYTES of an answer.
"""

from __future__ import annotations

import functools
import hashlib
import http.client
import logging
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import anyio
import anyio.to_thread
import msgspec

from streamer.net.service.admission import HANDSHAKE_S, NO_TENANT, ReplicaStatus

SERVER = "server"
VERIFIER = "verifier"
POLL_S = 0.25
SILENCE_S = 1.0
GONE_S = 3.0
UNHEARD_S = 10.0  # after which an address that never answered is reported
NUM_ASKED = 32
MAX_BYTES = 1 << 20
_decode = msgspec.json.Decoder(ReplicaStatus).decode
_logger = logging.getLogger("streamer.notice")  # its lines go to stderr


@dataclass
class Known:
    """A replica at an address.

    status: its last status, None if it does not answer; last: the same, kept when it is gone.
    silent_since: None while it answers. sent: (time, tenant) of clients on their way. is_leaving:
    about to be drained, so it gets no new clients.
    """

    address: str  # ws://HOST:PORT
    status: ReplicaStatus | None = None
    since: float = 0.0
    last: ReplicaStatus | None = None
    silent_since: float | None = None
    is_asked: bool = False
    is_leaving: bool = False
    is_reported: bool = False
    sent: deque[tuple[float, str]] = field(default_factory=deque)

    @property
    def answers(self) -> bool:
        return self.status is not None and self.silent_since is None

    @property
    def is_ending(self) -> bool:
        """It gets no new clients."""
        return self.is_leaving or (self.status is not None and self.status.is_draining)

    @property
    def is_gone(self) -> bool:
        """It should be there and is not."""
        return self.status is None and self.silent_since is not None

    @property
    def num_free(self) -> int:
        """Places left once every client on its way has arrived."""
        return self._num_open - len(self.sent)

    def has_room(self, tenant: str) -> bool:
        """Clients of other tenants on their way do not count: if their share is used up, the
        replica refuses them."""
        return self._num_open > sum(whose == tenant for _, whose in self.sent)

    @property
    def _num_open(self) -> int:
        if self.status is None or self.is_ending:
            return 0
        return self.status.limit - self.status.taken

    def heard(self, status: ReplicaStatus, now: float) -> None:
        """It answered. Clients that it counted or refused since the last time have arrived."""
        same = self.status is not None and self.status.name == status.name
        came = status.num_came - self.status.num_came if self.status and same else len(self.sent)
        for _ in range(min(came, len(self.sent))):
            self.sent.popleft()
        while self.sent and now - self.sent[0][0] > HANDSHAKE_S:
            self.sent.popleft()
        self.status = self.last = status
        self.silent_since = None

    def missed(self, now: float, is_refused: bool) -> None:
        """It did not answer. is_refused: nothing listens there."""
        if self.silent_since is None:
            self.silent_since = now
        if is_refused or now - self.silent_since > GONE_S:
            self.status = None


def choose(
    replicas: Iterable[Known], kind: str, edge: str = "", tenant: str = NO_TENANT
) -> Known | None:
    """The replica for a new client of `kind`; None if all are full.

    A client of a server goes where most places are free. An edge returns to the verifier that it
    had: the highest hash of both names wins (rendezvous hashing), so all directors agree.
    """
    there = [r for r in replicas if r.status and r.status.kind == kind and r.has_room(tenant)]
    if edge:
        return max(there, key=lambda r: _weight(edge, r), default=None)
    return max(there, key=lambda r: (r.num_free, r.address), default=None)


def find(replicas: Iterable[Known], incarnation: str) -> Known | None:
    """The replica that a session's id names, even if it is full or leaving."""
    there = (r for r in replicas if r.status and r.status.name == incarnation)
    return next(there, None) if incarnation else None


def _weight(edge: str, replica: Known) -> bytes:
    assert replica.status is not None
    name = replica.status.name or replica.address
    return hashlib.blake2b(f"{edge} {name}".encode(), digest_size=8).digest()


class Roster:
    """`set` the addresses, `run` it, and read `answering`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, Known] = {}

    @property
    def known(self) -> list[Known]:
        return list(self._known.values())

    @property
    def answering(self) -> list[Known]:
        """Replicas that answered the last poll."""
        return [known for known in self._known.values() if known.answers]

    def set(self, addresses: Iterable[str]) -> None:
        """Know exactly these addresses; the state of those that stay is kept."""
        now = self._clock()
        self._known = {
            a: self._known.get(a) or Known(a, since=now) for a in dict.fromkeys(addresses)
        }

    def send(self, address: str, tenant: str) -> None:
        """A client of this tenant is on its way there."""
        self._known[address].sent.append((self._clock(), tenant))

    def leave(self, address: str) -> None:
        """Send no new clients there."""
        if address in self._known:
            self._known[address].is_leaving = True

    def expect(self, address: str) -> None:
        """It was started again: forget that it was gone."""
        if address in self._known and self._known[address].is_gone:
            self._known[address].silent_since = None

    def names(self, incarnation: str) -> bool:
        """Whether a replica of this name was there and may be again."""
        return find(self._known.values(), incarnation) is not None

    async def run(self) -> None:
        """Poll until cancelled. A slow replica delays no other."""
        limiter = anyio.CapacityLimiter(NUM_ASKED)
        async with anyio.create_task_group() as group:
            while True:
                for known in self._known.values():
                    if not known.is_asked:
                        known.is_asked = True
                        group.start_soon(self._ask, known, limiter)
                await anyio.sleep(POLL_S)

    async def _ask(self, known: Known, limiter: anyio.CapacityLimiter) -> None:
        url = f"{known.address.replace('ws', 'http', 1)}/statusz"
        try:
            body = await anyio.to_thread.run_sync(
                fetch, url, limiter=limiter, abandon_on_cancel=True
            )
            status = _decode(body)
            if status.kind not in (SERVER, VERIFIER):
                raise OSError(f"it is a {status.kind}; give its replicas")
            known.heard(status, self._clock())
        except (OSError, msgspec.MsgspecError) as error:
            cause = getattr(error, "reason", error)  # urllib wraps it
            known.missed(self._clock(), isinstance(cause, ConnectionRefusedError))
            self._report(known, cause)
        finally:
            known.is_asked = False

    def _report(self, known: Known, cause: object) -> None:
        """Once for an address that never answered: it may be mistyped."""
        is_new = known.last is not None or self._clock() - known.since < UNHEARD_S
        if not (is_new or known.is_reported):
            known.is_reported = True
            why = getattr(cause, "strerror", None) or cause
            why = "no status of a replica" if isinstance(cause, msgspec.MsgspecError) else why
            told = f"{known.address} has never answered as a replica"
            _logger.warning("%s", f"{told} ({why!s:.120}); is the address right?")


def fetch(url: str) -> bytes:
    """The body of a GET.

    Raises OSError, also for a status other than success, SILENCE_S without an answer, an answer
    that is not HTTP, and a URL that is none.
    """
    try:
        with _opener().open(url, timeout=SILENCE_S) as answer:
            return bytes(answer.read(MAX_BYTES))
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"{url}: {error}") from None


@functools.cache
def _opener() -> urllib.request.OpenerDirector:
    """Ignores the environment's proxy, which is for the world outside."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))

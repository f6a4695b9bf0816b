"""The replicas that a director knows, and what each said last. In: addresses. Out: candidates.

Each is asked over HTTP every POLL_S, or when it has answered. One that refuses the connection is
gone at once, with its sessions. One that says nothing gets nobody new from then on, and is gone
after GONE_S. Bounded: one request per replica at a time, NUM_ASKED at once, MAX_BYTES of an answer.
"""

from __future__ import annotations

import functools
import http.client
import ssl
import time
import urllib.request
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import anyio
import anyio.to_thread
import msgspec

from streamer.extras.fleet.choice import Candidate
from streamer.net.service.admission import HANDSHAKE_S, ReplicaStatus

POLL_S = 0.25
SILENCE_S = 1.0
GONE_S = 3.0
NUM_ASKED = 32
MAX_BYTES = 1 << 20  # a list of replicas, too, comes this way
_decode = msgspec.json.Decoder(ReplicaStatus).decode


@dataclass
class Known:
    """One address. status: None while nobody answers there; last: what it said before that.
    silent_since: None while it answers."""

    address: str
    status: ReplicaStatus | None = None
    last: ReplicaStatus | None = None
    silent_since: float | None = None
    pid: int = 0  # of the process that answered last
    is_leaving: bool = False
    is_asked: bool = False  # a request is on its way
    # clients that were sent there and are not known to have arrived: when, whose
    sent: deque[tuple[float, str]] = field(default_factory=deque)

    @property
    def is_gone(self) -> bool:
        """It was there, or should be, and is not."""
        return self.status is None and self.silent_since is not None

    def heard(self, status: ReplicaStatus, now: float) -> None:
        """It answered. Clients that arrived since are counted by itself, or were refused."""
        same = self.status is not None and self.status.name == status.name
        came = status.num_came - self.status.num_came if self.status and same else len(self.sent)
        for _ in range(min(came, len(self.sent))):
            self.sent.popleft()
        while self.sent and now - self.sent[0][0] > HANDSHAKE_S:
            self.sent.popleft()
        self.status = self.last = status
        self.pid = status.pid
        self.silent_since = None

    def missed(self, now: float, is_refused: bool) -> None:
        """It did not answer. is_refused: nobody listens there."""
        if self.silent_since is None:
            self.silent_since = now
        if is_refused or now - self.silent_since > GONE_S:
            self.status = None


class Roster:
    """`set` the addresses, `run` it, and read `candidates`."""

    def __init__(
        self, tls: ssl.SSLContext | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tls = tls
        self._clock = clock
        self._known: dict[str, Known] = {}

    @property
    def known(self) -> list[Known]:
        return list(self._known.values())

    @property
    def candidates(self) -> list[Candidate]:
        """Replicas that answered when they were asked last."""
        return [
            Candidate(k.address, k.status, Counter(whose for _, whose in k.sent), k.is_leaving)
            for k in self._known.values()
            if k.status is not None and k.silent_since is None
        ]

    def set(self, addresses: Iterable[str]) -> None:
        """These, and no others. What is known of those that stay is kept."""
        self._known = {a: self._known.get(a) or Known(a) for a in dict.fromkeys(addresses)}

    def send(self, address: str, tenant: str) -> None:
        """A client of this tenant is on its way there."""
        self._known[address].sent.append((self._clock(), tenant))

    def leave(self, address: str, is_leaving: bool = True) -> None:
        """Nobody new goes there; False takes it back."""
        if address in self._known:
            self._known[address].is_leaving = is_leaving

    def expect(self, address: str) -> None:
        """It was started again: that it was gone is forgotten."""
        if address in self._known and self._known[address].is_gone:
            self._known[address].silent_since = None

    def names(self, incarnation: str) -> bool:
        """Whether a replica of this name was there and may be again."""
        there = [k.status.name for k in self._known.values() if k.status is not None]
        return bool(incarnation) and incarnation in there

    async def run(self) -> None:
        """Ask, again and again; until cancelled. One that is slow holds nobody else up."""
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
                fetch, url, self._tls, limiter=limiter, abandon_on_cancel=True
            )
            known.heard(_decode(body), self._clock())
        except (OSError, msgspec.MsgspecError) as error:
            cause = getattr(error, "reason", error)  # urllib wraps it
            known.missed(self._clock(), isinstance(cause, ConnectionRefusedError))
        finally:
            known.is_asked = False


def fetch(url: str, tls: ssl.SSLContext | None) -> bytes:
    """The body of a GET. Raises OSError, also for a status that is none of success, for silence of
    SILENCE_S, for an answer that is no HTTP, and for a URL that is none: a list may hold any."""
    try:
        with _opener(tls).open(url, timeout=SILENCE_S) as answer:
            return bytes(answer.read(MAX_BYTES))
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"{url}: {error}") from None


@functools.lru_cache(maxsize=1)  # a process has one trust
def _opener(tls: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    """Without a proxy of the environment: that is for the world outside, and no link asks it."""
    https = urllib.request.HTTPSHandler(context=tls)
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), https)

"""The edge's side of the link: a verifier elsewhere as a Cloud, with a websocket per turn.

One spare connection is kept, so a turn that begins does not wait for a handshake. Pings on the
spare tell whether the verifier answers. Times are seconds of any monotonic clock.
"""

from __future__ import annotations

import math
import os
import random
import secrets
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit, urlunsplit

import anyio
from anyio.abc import TaskGroup
from websockets import exceptions
from websockets.asyncio.client import ClientConnection, connect
from websockets.protocol import State

from streamer.core.description import one_line
from streamer.core.link import wire
from streamer.core.rules.settings import Rules
from streamer.net.link.target import DecodingTerms, RemoteFault, RemoteTarget
from streamer.net.service.metrics import ServiceMetrics, StateNotices
from streamer.stages.events import quietly

CONNECT_S = 5.0
PORT = 8766  # of a verifier, where the address names none
# A pong may wait for the audio before it on a thin link: 2 s of it take 16 s at 32 kbit/s.
KEEP_ALIVE_S, PONG_S = 5.0, 20.0
REFUSED_FOR_GOOD = (401, 403)  # this key, or this edge: no pause makes it another one
# A wrong address. Where a connection has been up the address is right, and it may be again.
REFUSED_AT_FIRST = (400, 404)
UNREACHABLE = (OSError, exceptions.WebSocketException)  # errors of a dial
MAX_DIALS = 4  # at once
PING_S = 1.0
PATIENCE_S = 5.0  # for a pong
DIAL_PAUSES_S = (0.02, 2.0)  # after one failure in a row, and at most
VERDICT_PAUSES_S = (0.5, 30.0)
# of a pause, up or down: edges that lost one verifier do not come back to it all at once
JITTER = 0.25
STEADY_S = 30.0  # without a failure to connect; then they are forgotten
MAX_TRIES = 4  # in vain, in a row; from then on no turn waits
NOT_YET = "not connected yet"
SLOW = "it is slow"


@dataclass(frozen=True)
class VerifierAddress:
    """The address of a verifier, and how to use it.

    eager: send audio while someone speaks, else only when a verdict is wanted. budget_s: for a
    verdict. edge: a name by which a director or a balancer sends it to the verifier that it had.
    """

    url: str
    key: str | None = None
    tls: ssl.SSLContext | None = None
    eager: bool = True
    budget_s: float = 5.0
    edge: str = field(default_factory=partial(secrets.token_hex, 8))

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

    @property
    def dialled(self) -> str:
        """The URL to connect to."""
        parts = urlsplit(self.address)
        asked = [parts.query, f"{wire.VERSION_QUERY}={wire.VERSION}", f"edge={self.edge}"]
        path = parts.path.rstrip("/") or wire.PATH
        return urlunsplit(parts._replace(path=path, query="&".join(filter(None, asked))))

    async def dial(self) -> ClientConnection:
        """A connection for one turn. Raises UNREACHABLE."""
        return await connect(
            self.dialled,
            additional_headers={"Authorization": f"Bearer {self.key}"} if self.key else None,
            ssl=self.tls,
            compression=None,
            open_timeout=CONNECT_S,
            close_timeout=0.5,
            max_size=wire.MAX_MESSAGE_BYTES,
            proxy=None,
            ping_interval=KEEP_ALIVE_S,
            ping_timeout=PONG_S,
        )


class Backoff:
    """The pause after failures in a row, in seconds: it doubles with each, and is 0 for none.

    Attempts that began before the latest failure count with it: one outage counts once.
    """

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self.succeeded()

    def succeeded(self) -> None:
        self.failed_at = -math.inf
        self.pause_s = 0.0

    def failed(self, now: float, began_at: float = math.inf) -> None:
        """An attempt that began at `began_at` failed."""
        if began_at >= self.failed_at:
            self.failed_at = now
            self.pause_s = min(self._most_s, 2 * self.pause_s or self._first_s)


@dataclass(eq=False)
class RemoteCloud:
    """The cloud of a verifier elsewhere, with the methods of LocalCloud (stages/parts.py). Tasks
    of `group` keep its connections, until that is cancelled.

    on_model: called with the fingerprint of the verifier's model as a turn is opened.
    """

    verifier: VerifierAddress
    terms: DecodingTerms
    clock: Callable[[], float]
    group: TaskGroup
    on_model: Callable[[str], None] = lambda model: None

    def __post_init__(self) -> None:
        self.name = self.verifier.name
        self.was_linked = False  # since the start
        self.rtt_s = math.nan  # round trip of the latest ping
        self.lost: str | None = None  # why the verifier refuses this edge, as it seems for good
        self.trouble = NOT_YET  # why there is no connection, or no verdict
        # when the latest ping was sent that was answered; None where the verifier is not there
        self._answered_at: float | None = None
        self._settled = anyio.Event()  # the verifier has answered, or is known to be absent
        self._late = Backoff(*VERDICT_PAUSES_S)  # verdicts that were late, or wrong
        self._dialled = Backoff(*DIAL_PAUSES_S)
        self._dials = anyio.CapacityLimiter(MAX_DIALS)
        self._taken: set[ClientConnection] = set()  # by turns
        self._spare: ClientConnection | None = None
        self._wake = anyio.Event()  # the spare is taken, or should be pinged now
        self._num_tries = 0  # in vain, in a row
        self._notices = StateNotices()
        self.turns: set[RemoteTarget] = set()  # turns that are not over
        self.group.start_soon(quietly, self._keep_spares)

    @property
    def is_linked(self) -> bool:
        """Whether the verifier is there, or was a moment ago."""
        return self._answered_at is not None

    @property
    def is_up(self) -> bool:
        """Whether asking is worth it now.

        Not after a late verdict, before the verifier has answered a later ping and a pause is over:
        one that answers pings and never verifies costs a verify budget per pause, not per block.
        """
        late_at = self._late.failed_at
        if self._answered_at is None or self._answered_at < late_at:
            return False
        return self.clock() >= late_at + self._late.pause_s

    @property
    def why_not(self) -> str | None:
        """Why waiting for a verdict is useless; None where one may come.

        A verifier that was there may come back: the first turn to miss it waits its whole budget.
        """
        if self.lost is not None:
            return self.lost
        is_missed = not self.was_linked or self._late.pause_s > 0
        if self._num_tries < MAX_TRIES or not is_missed:
            return None
        return f"{self.name} is not there ({self.trouble})"

    def listen(self, rules: Rules) -> RemoteTarget:
        """Begin a turn."""
        target = RemoteTarget(self, rules)
        self.turns.add(target)
        self.group.start_soon(quietly, target.run)
        return target

    async def settled(self, within_s: float) -> None:
        """Wait until the verifier answers or is known to be absent, at most `within_s`."""
        with anyio.move_on_after(within_s):
            await self._settled.wait()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[ClientConnection]:
        """The spare connection, or a new one, however long that takes; closed at the end."""
        socket, self._spare = self._spare, None
        self._wake.set()
        if socket is None or socket.state is not State.OPEN:
            socket = await self._dial()
        self._taken.add(socket)
        try:
            yield socket
        finally:
            self._taken.discard(socket)
            with anyio.CancelScope(shield=True):  # bounded by close_timeout
                await socket.close()

    def verdict_came(self) -> None:
        """Earlier trouble is over."""
        self._dialled.succeeded()
        self._late.succeeded()
        self.trouble = SLOW

    def failed(self, asked_at: float) -> None:
        """A verdict that was asked for at `asked_at` is late."""
        self._late.failed(self.clock(), asked_at)
        self._wake.set()

    def cut(self, error: Exception, since: float) -> None:
        """A connection, there or dialled since `since`, was ended by `error`. A verifier that
        serves other turns is there, though it may be full; else end the waits that are useless."""
        self._dialled.failed(self.clock(), since)
        self.trouble = one_line(why(error))
        self._wake.set()  # perhaps only this connection was cut
        is_there = self._spare is not None or bool(self._taken)
        if is_there and isinstance(error, exceptions.ConnectionClosed | exceptions.InvalidStatus):
            return
        self._answered_at = None
        self._notices.state(False, f"{self.name} is not there ({self.trouble}); it is tried again")
        if isinstance(error, RemoteFault | wire.WireError):
            self._late.failed(self.clock())
        # nothing listens there, no route leads there, or the connection ends at once
        self._num_tries += isinstance(error, OSError | exceptions.InvalidMessage)
        if is_final(error, self.was_linked):
            self.lost = f"{self.name} refuses: {self.trouble}"
        if (why_not := self.why_not) is not None:
            self._settled.set()
        for turn in self.turns:
            turn.miss(why_not if self.lost or not self.was_linked else None)

    async def _keep_spares(self) -> None:
        while True:
            self._spare = socket = await self._dial()
            since = self.clock()
            try:
                await self._ping(socket)
            except (TimeoutError, exceptions.ConnectionClosed) as error:
                if self._spare is socket:  # else its turn says so
                    self._spare = None
                    self.cut(error, since)
                    socket.transport.abort()
            finally:
                if self._spare is socket:
                    socket.transport.abort()

    async def _ping(self, socket: ClientConnection) -> None:
        """Ping the spare connection until a turn takes it. Raises TimeoutError and ConnectionClosed
        where it is lost."""
        while self._spare is socket:
            self._wake = anyio.Event()
            asked_at = self.clock()
            with anyio.fail_after(PATIENCE_S):
                await (await socket.ping())
            self.rtt_s = self.clock() - asked_at
            self._answered_at = asked_at
            if asked_at - self._dialled.failed_at > STEADY_S:
                self._dialled.succeeded()
            self._settled.set()
            if self.trouble == NOT_YET:
                self.trouble = SLOW
            self._notices.state(True, f"{self.name} is there again")
            with anyio.move_on_after(PING_S):
                await self._wake.wait()

    async def _dial(self) -> ClientConnection:
        while True:
            async with self._dials:
                pause_s = self._dialled.pause_s
                await anyio.sleep(pause_s * random.uniform(1.0 - JITTER, 1.0 + JITTER))
                since = self.clock()
                try:
                    socket = await self.verifier.dial()
                except UNREACHABLE as error:
                    self.cut(error, since)
                    continue
                self.lost, self.was_linked, self._num_tries = None, True, 0
                return socket


def watch_link(link: RemoteCloud, metrics: ServiceMetrics) -> None:
    """Add gauges of the link to a verifier. A round trip that was not measured yet is NaN."""
    metrics.watch("link_up", "1: connected to the verifier", lambda: link.is_linked)
    metrics.watch("link_breaker_open", "1: the verifier is not asked now", lambda: not link.is_up)
    metrics.watch("link_rtt_seconds", "Round trip of the latest ping", lambda: link.rtt_s)


def is_final(error: Exception, was_linked: bool) -> bool:
    """Whether a new attempt seems useless; it is made all the same, seldom."""
    if isinstance(error, exceptions.InvalidStatus):
        status = error.response.status_code
        return status in REFUSED_FOR_GOOD or (status in REFUSED_AT_FIRST and not was_linked)
    is_wrong = isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)
    return is_wrong and not was_linked


def why(error: Exception) -> str:
    """The error as one line, which may hold what the other side says."""
    match error:
        case exceptions.InvalidStatus(response=response):
            body = response.body.decode("utf-8", "replace").strip()
            told = f"HTTP {response.status_code}" + (f" ({body[:200]})" if body else "")
            way = "; give its key with --cloud-key or STREAMER_CLOUD_KEY"
            return told + way * (response.status_code == 401)
        case exceptions.ConnectionClosed(rcvd=closed):
            told = f"closed ({closed.reason or closed.code})" if closed else "cut"
            return f"the link was {told}"
        case TimeoutError():
            return f"no answer within {CONNECT_S:g} s"
        case ssl.SSLCertVerificationError():
            told = f"its certificate does not verify ({error.verify_message.rstrip('.')})"
            way = "name the PEM file of its authority in SSL_CERT_FILE, and the host as the "
            return f"{told}; {way}certificate does"
        case ssl.SSLError():
            ways = "give it --cert and --key, or take ws:// where the network is your own"
            return f"it does not speak TLS ({error.reason}); {ways}"
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number)  # asyncio's text repeats the address
        case ConnectionResetError() | exceptions.InvalidMessage(__cause__=EOFError()):
            return "it closes connections at once; give wss:// if it has a certificate, else ws://"
        case exceptions.InvalidHandshake():
            return f"it does not speak our protocol ({error})"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__

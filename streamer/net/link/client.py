"""The edge's side of the link: a verifier elsewhere as a Cloud, with a websocket per turn.

One spare connection is kept, so a turn that begins does not wait for a handshake. Pings on the
spare tell whether the verifier answers. Times are seconds of any monotonic clock.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.protocol import State

from streamer.core.description import one_line
from streamer.core.link.wire import WireError
from streamer.core.rules.settings import Rules
from streamer.net.link.dial import UNREACHABLE, VerifierAddress, is_absent, is_final, why
from streamer.net.link.target import DecodingTerms, RemoteFault, RemoteTarget
from streamer.net.service.logs import StateNotices
from streamer.net.service.metrics import ServiceMetrics
from streamer.stages.ports import quietly

MAX_DIALS = 4  # at once
PING_S = 1.0
PATIENCE_S = 5.0  # for a pong
MODEL_CHARACTERS = 16  # of a fingerprint, in a warning
DIAL_PAUSES_S = (0.02, 2.0)  # after one failure in a row, and at most
VERDICT_PAUSES_S = (0.5, 30.0)
# of a pause, up or down: edges that lost one verifier do not come back to it all at once
JITTER = 0.25
STEADY_S = 30.0  # without a failure to connect; then they are forgotten
MAX_TRIES = 4  # in vain, in a row; from then on no turn waits
NOT_YET = "not connected yet"
SLOW = "it is slow"


class Backoff:
    """Failures in a row, and the pause after them, which doubles with each.

    Attempts that began before the latest failure count with it, so turns that miss the same outage
    count once. A success forgets all failures.
    """

    def __init__(self, first_s: float, most_s: float) -> None:
        self.failed_at = -math.inf
        self.num_failures = 0  # in a row
        self._first_s = first_s
        self._most_s = most_s

    def failed(self, now: float, began_at: float = math.inf) -> None:
        """An attempt that began at `began_at` failed."""
        if began_at >= self.failed_at:
            self.num_failures += 1
            self.failed_at = now

    def succeeded(self) -> None:
        self.num_failures = 0
        self.failed_at = -math.inf

    @property
    def pause_s(self) -> float:
        """The pause after the latest failure, 0 for none."""
        num = min(self.num_failures, 32)  # the largest float is 2 ** 1024
        return min(self._most_s, self._first_s * 2.0 ** (num - 1)) if num else 0.0


class RemoteCloud:
    """The cloud of a verifier elsewhere, with the methods of LocalCloud (stages/batcher.py). Tasks
    of `group` keep its connections, until that is cancelled.

    on_model: called with the fingerprint of a verifier's model, if it is another one than before.
    """

    hears_ends = True

    def __init__(
        self,
        verifier: VerifierAddress,
        terms: DecodingTerms,
        clock: Callable[[], float],
        group: TaskGroup,
        on_model: Callable[[str], None] = lambda model: None,
    ) -> None:
        self.name = verifier.name
        self.verifier = verifier
        self.clock = clock
        # there was a connection since the start
        self.was_linked = False
        # round trip of the latest ping
        self.rtt_s = math.nan
        # why the verifier refuses this edge, as it seems for good
        self.lost: str | None = None
        # why there is no connection, or no verdict
        self.trouble = NOT_YET
        self._terms = terms
        self._on_model = on_model
        self._model = ""  # fingerprint, of the latest turn
        # when the latest ping was sent that was answered; None where the verifier is not there
        self._answered_at: float | None = None
        self._settled = anyio.Event()  # the verifier has answered, or is known to be absent
        self._late = Backoff(*VERDICT_PAUSES_S)  # verdicts that were late, or wrong
        self._dialled = Backoff(*DIAL_PAUSES_S)
        self._dials = anyio.CapacityLimiter(MAX_DIALS)
        self._edge = secrets.token_hex(8)
        self._taken: set[ClientConnection] = set()  # by turns
        self._spare: ClientConnection | None = None
        self._wake = anyio.Event()  # the spare is taken, or should be pinged now
        self._num_tries = 0  # in vain, in a row
        self._notices = StateNotices()
        # turns that are not over
        self.turns: set[RemoteTarget] = set()
        self._group = group
        group.start_soon(quietly, self._keep_spares)

    @property
    def is_linked(self) -> bool:
        """Whether the verifier is there, or was a moment ago."""
        return self._answered_at is not None

    @property
    def is_up(self) -> bool:
        """Whether asking is worth it now.

        Not after a late verdict, before the verifier has answered a later ping and a pause is over:
        a verifier that answers pings and never verifies costs a verify budget per pause, not one
        per block.
        """
        late_at = self._late.failed_at
        if self._answered_at is None or self._answered_at < late_at:
            return False
        return self.clock() >= late_at + self._late.pause_s

    @property
    def why_not(self) -> str | None:
        """Why waiting for a verdict is useless; None where one may come.

        A verifier that was there may come back, so the first turn that misses it waits for its
        whole budget.
        """
        if self.lost is not None:
            return self.lost
        is_missed = not self.was_linked or self._late.num_failures > 0
        if self._num_tries < MAX_TRIES or not is_missed:
            return None
        return f"{self.name} is not there ({self.trouble})"

    def listen(self, rules: Rules | None = None) -> RemoteTarget:
        """Begin a turn. rules: in place of those of the cloud's terms."""
        target = RemoteTarget(self, replace(self._terms, rules=rules or self._terms.rules))
        self.turns.add(target)
        self._group.start_soon(quietly, target.run)
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
            socket, _ = await self._dial()
        self._taken.add(socket)
        try:
            yield socket
        finally:
            self._taken.discard(socket)
            with anyio.CancelScope(shield=True):  # bounded by close_timeout
                await socket.close()

    # Reports of the turns.

    def opened(self, model: str) -> None:
        """A turn was opened by this model; within a turn it cannot change."""
        model = one_line(model)[:MODEL_CHARACTERS]
        if model not in ("", self._model):
            self._model = model
            self._on_model(model)

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
        if is_there and isinstance(error, ConnectionClosed | InvalidStatus):
            return
        self._answered_at = None
        self._notices.state(False, f"{self.name} is not there ({self.trouble}); it is tried again")
        if isinstance(error, RemoteFault | WireError):
            self._late.failed(self.clock())
        self._num_tries += is_absent(error)
        if is_final(error, self.was_linked):
            self.lost = f"{self.name} refuses: {self.trouble}"
        if (why_not := self.why_not) is not None:
            self._settled.set()
        for turn in list(self.turns):
            if self.lost is not None:
                turn.lose(self.lost)
            else:
                turn.miss(None if self.was_linked else why_not)

    # Connections.

    async def _keep_spares(self) -> None:
        while True:
            socket, since = await self._dial()
            self._spare = socket
            try:
                await self._ping(socket)
            except (TimeoutError, ConnectionClosed) as error:
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

    async def _dial(self) -> tuple[ClientConnection, float]:
        """A new connection, and when it was dialled."""
        while True:
            async with self._dials:
                await anyio.sleep(
                    self._dialled.pause_s * random.uniform(1.0 - JITTER, 1.0 + JITTER)
                )
                since = self.clock()
                try:
                    socket = await self.verifier.dial(self._edge)
                except UNREACHABLE as error:
                    self.cut(error, since)
                else:
                    self.lost = None
                    self.was_linked = True
                    self._num_tries = 0
                    return socket, since


def watch_link(link: RemoteCloud, metrics: ServiceMetrics) -> None:
    """Add gauges of the link to a verifier. A round trip that was not measured yet is NaN."""
    metrics.watch("link_up", "1: connected to the verifier", lambda: link.is_linked)
    told = "1: the verifier is not asked now"
    metrics.watch("link_breaker_open", told, lambda: not link.is_up)
    metrics.watch("link_rtt_seconds", "Round trip of the latest ping", lambda: link.rtt_s)

"""The edge's side of the link: a verifier elsewhere as a Cloud, with a websocket per turn.

One spare connection is kept, so a turn that begins does not wait for a handshake. Pings on the
spare tell whether the verifier answers. core/link/edge_turn.py paces connections and requests.
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
from streamer.core.link.edge_turn import (
    DIAL_PAUSES_S,
    VERDICT_PAUSES_S,
    Backoff,
    DecodingTerms,
    RemoteFault,
)
from streamer.core.link.wire import WireError
from streamer.core.rules.settings import Rules
from streamer.net.link.dial import UNREACHABLE, VerifierAddress, is_absent, is_final, why
from streamer.net.link.target import RemoteTarget
from streamer.net.service.logs import Notices
from streamer.net.service.metrics import ServiceMetrics
from streamer.stages.ports import quietly

MAX_DIALS = 4  # at once; one while they fail
PING_S = 1.0
PATIENCE_S = 5.0  # for a pong
MODEL_CHARACTERS = 16  # of a fingerprint, in a warning
DIALS_FORGOTTEN_S = 30.0
MAX_TRIES = 4  # in vain, in a row; from then on no turn waits
NOT_YET = "not connected yet"
SLOW = "it is slow"


class RemoteCloud:
    """A cloud, as LocalCloud of stages/batcher.py is one. `run` it until it is cancelled.

    on_model: called with the fingerprint of a verifier's model, if it is another one than before.
    """

    hears_ends = True

    def __init__(
        self,
        verifier: VerifierAddress,
        terms: DecodingTerms,
        clock: Callable[[], float],
        on_model: Callable[[str], None] = lambda model: None,
    ) -> None:
        self.name = verifier.name
        self.verifier = verifier
        self.clock = clock
        # verdicts that were late, or wrong
        self.late = Backoff(VERDICT_PAUSES_S)
        # there was a connection since the start
        self.was_linked = False
        # connections that were lost, since the start
        self.num_cuts = 0
        # round trip of the latest ping
        self.rtt_s: float | None = None
        # why the verifier refuses this edge, as it seems for good
        self.lost: str | None = None
        # why there is no connection, or no verdict
        self.trouble = NOT_YET
        # fingerprint of the model that served the latest turn
        self.model = ""
        self._terms = terms
        self._on_model = on_model
        # when the latest ping was sent that was answered; None where the verifier is not there
        self._answered_at: float | None = None
        self._settled = anyio.Event()  # the verifier has answered, or is known to be absent
        self._dialled = Backoff(DIAL_PAUSES_S, DIALS_FORGOTTEN_S)
        self._edge = secrets.token_hex(8)
        self._dials = anyio.CapacityLimiter(MAX_DIALS)
        self._taken: set[ClientConnection] = set()  # by turns
        self._spare: ClientConnection | None = None
        self._wake = anyio.Event()  # the spare is taken, or should be pinged now
        self._num_tries = 0  # in vain, in a row
        self._notices = Notices()
        self._turns: set[RemoteTarget] = set()
        self._group: TaskGroup | None = None

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
        now, late_at = self.clock(), self.late.failed_at
        if self._answered_at is None or self._answered_at < late_at:
            return False
        return now >= late_at + self.late.pause_s(now)

    @property
    def why_not(self) -> str | None:
        """Why waiting for a verdict is useless; None where one may come.

        A verifier that was there may come back, so the first turn that misses it waits for its
        whole budget.
        """
        if self.lost is not None:
            return self.lost
        is_missed = not self.was_linked or self.late.num_failures(self.clock()) > 0
        if self._num_tries < MAX_TRIES or not is_missed:
            return None
        return f"{self.name} is not there ({self.trouble})"

    @property
    def num_in_flight(self) -> int:
        """Requests of all turns without a reply."""
        return sum(turn.num_waiting for turn in self._turns)

    def listen(self, rules: Rules | None = None) -> RemoteTarget:
        """Begin a turn. rules: in place of those of the cloud's terms."""
        terms = replace(self._terms, rules=rules or self._terms.rules)
        target = RemoteTarget(self, terms)
        self._turns.add(target)
        if self._group is not None:
            self._group.start_soon(quietly, target.run)
        return target

    async def run(self) -> None:
        """Keep a spare connection, and serve turns, until cancelled."""
        try:
            async with anyio.create_task_group() as self._group:
                for target in self._turns:
                    self._group.start_soon(quietly, target.run)
                while True:
                    await self._keep_spare()
        finally:
            self._group = None

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

    def closed(self, turn: RemoteTarget) -> None:
        """The turn is over."""
        self._turns.discard(turn)

    def opened(self, model: str) -> None:
        """A turn was opened by this model; within a turn it cannot change."""
        model = one_line(model)[:MODEL_CHARACTERS]
        if model not in ("", self.model):
            self.model = model
            self._on_model(model)

    def verdict_came(self) -> None:
        """Earlier trouble is over."""
        self._dialled.succeeded()
        self.late.succeeded()
        self.trouble = SLOW

    def failed(self, asked_at: float) -> None:
        """A verdict that was asked for at `asked_at` is late."""
        self.late.failed(self.clock(), asked_at)
        self._wake.set()

    def cut(self, error: Exception, since: float) -> None:
        """A connection, there since `since`, was ended by `error`."""
        self.num_cuts += 1
        self._failed(error, since)

    # Connections.

    async def _keep_spare(self) -> None:
        """Ping a new spare connection until a turn takes it or it is lost."""
        socket, since = await self._dial()
        self._spare = socket
        error: Exception | None = None
        try:
            while self._spare is socket:
                self._wake = anyio.Event()
                asked_at = self.clock()
                with anyio.fail_after(PATIENCE_S):
                    await (await socket.ping())
                self._answered(asked_at)
                with anyio.move_on_after(PING_S):
                    await self._wake.wait()
        except (TimeoutError, ConnectionClosed) as ended:
            error = ended
        finally:
            is_lost = self._spare is socket
            if is_lost:
                self._spare = None
                socket.transport.abort()
        if is_lost and error is not None:
            self.cut(error, since)

    async def _dial(self) -> tuple[ClientConnection, float]:
        """A new connection, and when it was dialled."""
        while True:
            is_failing = self._dialled.num_failures(self.clock()) > 0
            self._dials.total_tokens = 1 if is_failing else MAX_DIALS
            async with self._dials:
                await anyio.sleep(self._dialled.pause_s(self.clock(), random.random()))
                since = self.clock()
                try:
                    socket = await self.verifier.dial(self._edge)
                except UNREACHABLE as error:
                    self._failed(error, since)
                else:
                    self.lost = None
                    self.was_linked = True
                    self._num_tries = 0
                    return socket, since

    def _answered(self, asked_at: float) -> None:
        self.rtt_s = self.clock() - asked_at
        self._answered_at = asked_at
        self._settled.set()
        if self.trouble == NOT_YET:
            self.trouble = SLOW
        self._notices.state(True, f"{self.name} is there again")

    def _failed(self, error: Exception, since: float) -> None:
        """A dial failed, or a connection ended. A verifier that serves other turns is there, though
        it may be full; else end the waits that are useless."""
        self._dialled.failed(self.clock(), since)
        self.trouble = why(error)
        self._wake.set()  # perhaps only this connection was cut
        is_there = self._spare is not None or bool(self._taken)
        if is_there and isinstance(error, ConnectionClosed | InvalidStatus):
            return
        self._answered_at = None
        for turn in self._turns:
            turn.look()
        self._notices.state(False, f"{self.name} is not there ({self.trouble}); it is tried again")
        if isinstance(error, RemoteFault | WireError):
            self.late.failed(self.clock())
        self._num_tries += is_absent(error)
        if is_final(error, self.was_linked):
            self.lost = f"{self.name} refuses: {self.trouble}"
        if (why_not := self.why_not) is None:
            return
        self._settled.set()
        for turn in list(self._turns):
            if self.lost is not None:
                turn.lose(why_not)
            elif not self.was_linked:
                turn.tell(why_not)


def watch_link(link: RemoteCloud, metrics: ServiceMetrics) -> None:
    """Add gauges of the link to a verifier. A round trip that was not measured yet is NaN."""
    for name, help, read in (
        ("up", "1: connected to the verifier", lambda: link.is_linked),
        ("breaker_open", "1: the verifier is not asked now", lambda: not link.is_up),
        ("rtt_seconds", "Round trip of the latest ping", lambda: link.rtt_s or math.nan),
        ("blocks_in_flight", "Blocks asked about, not answered", lambda: link.num_in_flight),
        ("reconnects", "Connections that were lost", lambda: link.num_cuts),
    ):
        metrics.watch(f"link_{name}", help, read)

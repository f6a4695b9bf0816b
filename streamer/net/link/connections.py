"""An edge's connections to a verifier elsewhere, and whether the verifier is there.

One spare connection is kept, so a turn that begins does not wait for a handshake. Pings on the
spare tell whether the verifier answers. core/link/edge_turn.py paces connections and requests.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.protocol import State

from streamer.core.description import one_line
from streamer.core.link.edge_turn import DIAL_PAUSES_S, VERDICT_PAUSES_S, Backoff, RemoteFault
from streamer.core.link.wire import WireError
from streamer.net.link.dial import UNREACHABLE, VerifierAddress, dial, is_absent, is_final, why
from streamer.net.service.logs import Notices

MAX_DIALS = 4  # at once; one while they fail
PING_S = 1.0
PATIENCE_S = 5.0  # for a pong
MODEL_CHARACTERS = 16  # of a fingerprint, in a warning
DIALS_FORGOTTEN_S = 30.0
MAX_TRIES = 4  # in vain, in a row; from then on no turn waits
NOT_YET = "not connected yet"
SLOW = "it is slow"


class Connections:
    """Run `keep_spare`; take a `connection` per turn.

    on_model: called with the fingerprint of a verifier's model, if it is another one than before.
    """

    def __init__(
        self, verifier: VerifierAddress, clock: Callable[[], float], on_model: Callable[[str], None]
    ) -> None:
        self.name = verifier.name
        self.verifier = verifier
        self.clock = clock
        # verdicts that were late, or wrong
        self.late = Backoff(VERDICT_PAUSES_S)
        # when the latest ping was sent that was answered; None where the verifier is not there
        self._answered_at: float | None = None
        # there is a connection, or was until a moment ago
        self.is_linked = False
        # there is a connection, or was one since the start
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
        self._on_model = on_model
        self._settled = anyio.Event()  # the verifier has answered, or is known to be absent
        self._dialled = Backoff(DIAL_PAUSES_S, DIALS_FORGOTTEN_S)
        self._edge = secrets.token_hex(8)
        self._dials = anyio.CapacityLimiter(MAX_DIALS)
        self._taken: set[ClientConnection] = set()  # by turns
        self._spare: ClientConnection | None = None
        self._wake = anyio.Event()  # the spare is taken, or should be pinged now
        self._num_tries = 0  # in vain, in a row
        self._notices = Notices()

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

    async def settled(self, within_s: float) -> None:
        """Wait until the verifier answers or is known to be absent, at most `within_s`."""
        with anyio.move_on_after(within_s):
            await self._settled.wait()

    async def keep_spare(self) -> None:
        """Until cancelled."""
        while True:
            socket, since = await self._dial()
            self._spare = socket
            try:
                error = await self._watch(socket)
            finally:
                is_lost = self._spare is socket
                if is_lost:
                    self._spare = None
                    socket.transport.abort()
            if is_lost and error is not None:
                self.cut(error, since)

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
        self._dialled.failed(self.clock(), since)
        if not self._has_connection or not isinstance(error, ConnectionClosed):
            self._absent(error)
        else:
            self.trouble = why(error)
        self._wake.set()  # perhaps only this connection was cut

    def on_absent(self) -> None:
        """The verifier is not there: end the waits that are useless."""

    @property
    def _has_connection(self) -> bool:
        return self._spare is not None or bool(self._taken)

    async def _dial(self) -> tuple[ClientConnection, float]:
        """A new connection, and when it was dialled."""
        while True:
            is_failing = self._dialled.num_failures(self.clock()) > 0
            self._dials.total_tokens = 1 if is_failing else MAX_DIALS
            async with self._dials:
                await anyio.sleep(self._dialled.pause_s(self.clock(), random.random()))
                since = self.clock()
                try:
                    socket = await dial(self.verifier, self._edge)
                except UNREACHABLE as error:
                    self._refused(error, since)
                else:
                    self.lost = None
                    self.is_linked = self.was_linked = True
                    self._num_tries = 0
                    return socket, since

    async def _watch(self, socket: ClientConnection) -> Exception | None:
        """Ping the spare connection until a turn takes it. Returns the error that ended it."""
        while self._spare is socket:
            self._wake = anyio.Event()
            asked_at = self.clock()
            try:
                with anyio.fail_after(PATIENCE_S):
                    await (await socket.ping())
            except TimeoutError:
                return VerifierSilent(f"no answer for {PATIENCE_S:g} s")
            except ConnectionClosed as closed:
                return closed
            self._answered(asked_at)
            with anyio.move_on_after(PING_S):
                await self._wake.wait()
        return None

    def _answered(self, asked_at: float) -> None:
        """The verifier answered a ping that was sent at `asked_at`."""
        self.rtt_s = self.clock() - asked_at
        self._answered_at = asked_at
        self._settled.set()
        if self.trouble == NOT_YET:
            self.trouble = SLOW
        self._notices.state(True, f"{self.name} is there again")

    def _refused(self, error: Exception, since: float) -> None:
        """A dial failed. A verifier that serves turns is there, though it may be full."""
        self._dialled.failed(self.clock(), since)
        if not (isinstance(error, InvalidStatus) and self._has_connection):
            self._absent(error)

    def _absent(self, error: Exception) -> None:
        """There is no connection, or the verifier is at fault."""
        self.is_linked = False
        self._answered_at = None
        self.trouble = why(error)
        self._notices.state(False, f"{self.name} is not there ({self.trouble}); it is tried again")
        if isinstance(error, RemoteFault | WireError):
            self.late.failed(self.clock())
        if is_absent(error):
            self._num_tries += 1
        if is_final(error, self.was_linked):
            self.lost = f"{self.name} refuses: {self.trouble}"
        if self.why_not is not None:
            self._settled.set()
        self.on_absent()


class VerifierSilent(Exception):
    """The verifier does not answer pings."""

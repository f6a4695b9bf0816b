"""The edge's side of the link: a verifier elsewhere as a Cloud, a websocket per turn.

One spare connection is kept, so a turn that begins does not wait for a handshake. Pings on the
spare tell whether the verifier is there. Connections are paced by core/link/backoff.py. Bounds:
turns by their KV slots on the edge; of each turn its samples (at most max_turn_s), its requests,
and the unheard audio of core/link/edge_turn.py.
"""

from __future__ import annotations

import math
import random
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import anyio
from anyio.abc import TaskGroup
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.link.backoff import Redial
from streamer.core.link.edge_turn import DecodingTerms, EdgeTurn
from streamer.core.rules.settings import Rules
from streamer.net.link.dial import UNREACHABLE, VerifierAddress, VerifierSilent, dial, why
from streamer.net.link.presence import Presence
from streamer.net.link.remote_target import RemoteTarget
from streamer.net.service.metrics import ServiceMetrics

MAX_DIALS = 4  # at once; one while they fail
PING_S = 1.0
PATIENCE_S = 5.0  # for a pong


@dataclass(eq=False)
class _Waiting:
    """A turn that waits for a connection."""

    socket: ClientConnection | None = None
    came: anyio.Event = field(default_factory=anyio.Event)


class RemoteCloud:
    """Implements stages/ports.py's Cloud. `run` it until it is cancelled."""

    is_remote = True
    is_busy = False

    def __init__(
        self,
        verifier: VerifierAddress,
        terms: DecodingTerms,
        clock: Callable[[], float],
        chance: Callable[[], float] = random.random,
        on_model: Callable[[str], None] = lambda model: None,
    ) -> None:
        self.name = verifier.name
        self.presence = Presence(verifier.name, clock, on_model)
        # connections that were lost, since the start
        self.num_cuts = 0
        self._verifier = verifier
        self._terms = terms
        self._clock = clock
        self._chance = chance
        self._redial = Redial()
        self._edge = secrets.token_hex(8)
        self._turns: set[RemoteTarget] = set()
        self._spare: ClientConnection | None = None
        self._waiting: deque[_Waiting] = deque()
        self._num_dialling = 0
        # set when the spare should be pinged now
        self._doubt = anyio.Event()
        self._group: TaskGroup | None = None

    @property
    def is_up(self) -> bool:
        return self.presence.is_up

    @property
    def model(self) -> str:
        return self.presence.model

    @property
    def is_linked(self) -> bool:
        return self.presence.is_linked

    @property
    def trouble(self) -> str:
        return self.presence.trouble

    @property
    def why_not(self) -> str | None:
        return self.presence.why_not

    @property
    def rtt_s(self) -> float | None:
        return self.presence.rtt_s

    @property
    def num_in_flight(self) -> int:
        """Requests of all turns without a reply."""
        return sum(turn.num_waiting for turn in self._turns)

    @property
    def unheard_s(self) -> float:
        """Seconds of audio of all turns that are not heard yet; 0 without a connection."""
        if not self.is_linked:
            return 0.0
        return sum(turn.num_unheard for turn in self._turns) / SAMPLE_RATE_HZ

    def listen(self, rules: Rules | None = None) -> RemoteTarget:
        """Begin a turn. rules: in place of those of the cloud's terms."""
        terms = replace(self._terms, rules=rules or self._terms.rules)
        turn = EdgeTurn(secrets.token_bytes(16), terms)
        target = RemoteTarget(self, turn, self._verifier, self._clock, self._chance)
        self._turns.add(target)
        if self._group is not None:
            self._group.start_soon(target.run)
        return target

    async def settled(self, within_s: float) -> None:
        """Wait until the verifier answers or is known to be absent, at most `within_s`."""
        with anyio.move_on_after(within_s):
            await self.presence.settled.wait()

    async def run(self) -> None:
        """Keep a spare connection, and serve turns, until cancelled."""
        try:
            async with anyio.create_task_group() as self._group:
                for target in self._turns:
                    self._group.start_soon(target.run)
                self._dial_missing()
                await anyio.sleep_forever()
        finally:
            self._group = None
            if self._spare is not None:
                self._spare.transport.abort()

    async def connection(self) -> ClientConnection:
        """The spare connection, or a new one, however long that takes."""
        if self._spare is not None:
            socket, self._spare = self._spare, None
            self._dial_missing()
            return socket
        waiting = _Waiting()
        self._waiting.append(waiting)
        self._dial_missing()
        try:
            await waiting.came.wait()
        except BaseException:
            if waiting.socket is not None:
                self._hand_over(waiting.socket, self._clock())
            else:
                self._waiting.remove(waiting)
            raise
        assert waiting.socket is not None
        return waiting.socket

    def verdict_came(self) -> None:
        self._redial.succeeded()
        self.presence.verdict_came()

    def failed(self, asked_at: float) -> None:
        self.presence.breaker.failed(self._clock(), asked_at)
        self._doubt.set()

    def cut(self, error: Exception, since: float) -> None:
        self._lost_connection(error, since)
        self._doubt.set()  # perhaps only this connection was cut

    def leave(self, target: RemoteTarget) -> None:
        self._turns.discard(target)

    @property
    def _has_connection(self) -> bool:
        return self._spare is not None or any(turn.is_connected for turn in self._turns)

    def _dial_missing(self) -> None:
        """Dial for each turn that waits, and for a spare."""
        num_missing = len(self._waiting) + (self._spare is None)
        most = 1 if self._redial.is_failing(self._clock()) else MAX_DIALS
        while self._group is not None and self._num_dialling < min(num_missing, most):
            self._num_dialling += 1
            self._group.start_soon(self._dial)

    async def _dial(self) -> None:
        try:
            await anyio.sleep(self._redial.pause_s(self._clock(), self._chance()))
            since = self._clock()
            socket = await dial(self._verifier, self._edge)
        except UNREACHABLE as error:
            self._refused(error, since)
        else:
            self.presence.linked()
            self._hand_over(socket, since)
        finally:
            self._num_dialling -= 1
        self._dial_missing()

    def _hand_over(self, socket: ClientConnection, since: float) -> None:
        """Give a connection to the turn that has waited longest, or keep it as the spare."""
        if self._waiting:
            waiting = self._waiting.popleft()
            waiting.socket = socket
            waiting.came.set()
        elif self._spare is None and self._group is not None:
            self._spare = socket
            self._group.start_soon(self._watch, socket, since)
            self._group.start_soon(self._doubt_when_closed, socket)
        else:
            socket.transport.abort()

    async def _watch(self, socket: ClientConnection, since: float) -> None:
        """Ping the spare connection until a turn takes it."""
        error: Exception | None = None
        while self._spare is socket and error is None:
            self._doubt = anyio.Event()
            asked_at = self._clock()
            try:
                with anyio.fail_after(PATIENCE_S):
                    await (await socket.ping())
                self.presence.answered(asked_at)
                with anyio.move_on_after(PING_S):
                    await self._doubt.wait()
            except TimeoutError:
                error = VerifierSilent(f"no answer for {PATIENCE_S:g} s")
            except ConnectionClosed as closed:
                error = closed
        if self._spare is socket and error is not None:
            self._spare = None
            socket.transport.abort()
            self._lost_connection(error, since)

    async def _doubt_when_closed(self, socket: ClientConnection) -> None:
        await socket.wait_closed()
        self._doubt.set()

    def _refused(self, error: Exception, since: float) -> None:
        """A dial failed. A verifier that serves turns is there, though it may be full."""
        self._redial.failed(self._clock(), since)
        if not (isinstance(error, InvalidStatus) and self._has_connection):
            self._absent(error)

    def _lost_connection(self, error: Exception, since: float) -> None:
        self.num_cuts += 1
        self._redial.failed(self._clock(), since)
        if not self._has_connection or not isinstance(error, ConnectionClosed):
            self._absent(error)
        else:
            self.presence.trouble = why(error)
        self._dial_missing()

    def _absent(self, error: Exception) -> None:
        """Tell the turns that wait for a verdict where none will come."""
        presence = self.presence
        presence.unlinked(error)
        for turn in list(self._turns):
            if presence.lost is not None:
                turn.lose(presence.lost)
            elif presence.why_not is not None and not presence.was_linked:
                turn.tell(presence.why_not)


def watch_link(link: RemoteCloud, metrics: ServiceMetrics) -> None:
    """Add gauges of the link to a verifier. A round trip that was not measured yet is NaN."""
    for name, help, read in (
        ("up", "1: connected to the verifier", lambda: link.is_linked),
        ("breaker_open", "1: the verifier is not asked now", lambda: not link.is_up),
        ("rtt_seconds", "Round trip of the latest ping", lambda: link.rtt_s or math.nan),
        ("blocks_in_flight", "Blocks asked about, not answered", lambda: link.num_in_flight),
        ("reconnects", "Connections that were lost", lambda: link.num_cuts),
    ):
        metrics.watch(f"streamer_link_{name}", help, read)

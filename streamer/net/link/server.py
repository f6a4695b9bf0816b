"""`streamer verifier`'s server. In: links, many turns on each. Out: verdicts; a KV slot per turn.

Admission, HTTP and drain are net/service/service.py's. A turn outlives its link for `hold_s`: the
edge that comes back finds it as it was. Bounds: `max_sessions` turns, of which one without a link
makes place for one that comes; of each turn MAX_WORK messages wait, of each link MAX_SAYS; a link
that says nothing for IDLE_S is dead, and links are few.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from websockets.exceptions import ConnectionClosed

from streamer.core.link import wire
from streamer.core.link.verifier_turn import Broken, ServedTurn, VerifierModel
from streamer.net.link.served_turns import ServedTurns
from streamer.net.service.admission import Admission, HttpRefusal
from streamer.net.service.metrics import VerifierMetrics
from streamer.net.service.notices import Notices
from streamer.net.service.service import Address, ClientSocket, Query, Service
from streamer.stages.ports import Judge

HOLD_S = 30.0
IDLE_S = 10.0  # an edge pings every second
MAX_SAYS = 1_024
SPARE_LINKS = 8  # beyond two for each turn: edges that are connected and say nothing
GARBAGE = (1008, "not a message of this protocol")
RESTART = (1012, "the verifier is going down")
OpenJudge = Callable[[ServedTurn], Judge]


@dataclass(frozen=True)
class VerifierTerms:
    """hold_s: for an edge whose link was cut. idle_s: for a link that says nothing."""

    hold_s: float = HOLD_S
    idle_s: float = IDLE_S


class VerifierServer:
    """Serves one model to many edges. `run` returns when it was told to stop and has drained."""

    max_message_bytes = wire.MAX_MESSAGE_BYTES
    kind = "verifier"

    def __init__(
        self,
        open_judge: OpenJudge,
        model: VerifierModel,
        admission: Admission,
        terms: VerifierTerms | None = None,
    ) -> None:
        self.metrics = VerifierMetrics()
        self.model_name = ""  # for whoever starts it
        self.fingerprint = model.fingerprint
        self._admission = admission
        self._terms = terms or VerifierTerms()
        self._service = Service(self, admission, self.metrics, Notices())
        self.turns = ServedTurns(open_judge, model, admission, self.metrics, self._terms.hold_s)
        self._links: set[ServedLink] = set()

    async def run(self, address: Address, ready: Callable[[int], None]) -> None:
        """Until `stop` or SIGTERM; `ready` is told the port. Raises OSError where it is taken."""
        await self._service.run(address, ready)

    def stop(self) -> None:
        """No new turns; requests in hand are answered."""
        self._service.stop()

    def start(self, group: TaskGroup) -> None:
        self.turns.start(group)
        self.metrics.watch("streamer_links", "Edges that are connected", lambda: len(self._links))
        self.metrics.watch(
            "streamer_sessions", "Turns with a KV slot", lambda: self._admission.num_sessions
        )
        self.metrics.watch(
            "streamer_sessions_held", "Turns whose link was cut", lambda: self.turns.num_held
        )
        self.metrics.watch(
            "streamer_audio_lag_seconds",
            "Audio that came and is not heard, of the slowest turn",
            lambda: self.lag_s,
        )

    @property
    def lag_s(self) -> float:
        return self.turns.lag_s

    def check(self, query: Query, tenant: str) -> HttpRefusal | None:
        """A link is of use where a turn more has room, or where there may be some to resume."""
        if len(self._links) >= 2 * self._admission.max_sessions + SPARE_LINKS:
            return HttpRefusal(503, "too many links; close some", {"Retry-After": "5"})
        return None if self.turns.num_held else self._admission.check_room(tenant)

    async def serve(self, socket: ClientSocket, query: Query) -> None:
        """One edge's link, to its end."""
        link = ServedLink(socket, self.turns, self._terms.idle_s)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)
            self.turns.detach(link)

    async def drain(self, within_s: float) -> None:
        """Turns in hand come to their end, at most `within_s`; then every link is closed."""
        with anyio.move_on_after(within_s):
            await self.turns.all_over()
        async with anyio.create_task_group() as group:  # one that is hung holds up nobody's goodbye
            for link in list(self._links):
                group.start_soon(partial(link.socket.close, *RESTART))


class ServedLink:
    """One edge's socket: messages up to the turns, what they say down."""

    def __init__(self, socket: ClientSocket, turns: ServedTurns, idle_s: float) -> None:
        self.socket = socket
        self.tenant = socket.tenant
        self._turns = turns
        self._idle_s = idle_s
        self._say, self._says = anyio.create_memory_object_stream[wire.Down](MAX_SAYS)

    def say(self, message: wire.Down) -> None:
        """Send soon. A link whose edge does not read is cut."""
        try:
            self._say.send_nowait(message)
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.socket.transport.abort()

    async def run(self) -> None:
        """Until the edge goes away, is silent for too long, or sends garbage."""
        with self._say, self._says:
            async with anyio.create_task_group() as group:
                group.start_soon(self._write)
                try:
                    await self._read()
                except ConnectionClosed:
                    pass
                except wire.WireError:
                    await self.socket.close(*GARBAGE)
                except TimeoutError:
                    self.socket.transport.abort()
                group.cancel_scope.cancel()

    async def _write(self) -> None:
        try:
            async for message in self._says:
                if self.socket.transport.is_closing():  # asyncio would log each further write
                    return
                await self.socket.send(wire.encode(message))
        except ConnectionClosed:
            return  # the reader notices it too

    async def _read(self) -> None:
        while True:
            with anyio.fail_after(self._idle_s):
                data = await self.socket.recv()
            await anyio.lowlevel.checkpoint()  # many that wait are no reason to hold others up
            await self._take(wire.decode_up(data))

    async def _take(self, message: wire.Up) -> None:
        match message:
            case wire.Ping(token=token):
                self.say(wire.Pong(token))
            case wire.Open():
                try:
                    await self._turns.open(self, message)
                except Broken as broken:
                    place = (message.channel, message.epoch)
                    self.say(wire.Rejected(*place, broken.is_final, str(broken)))
            case wire.Close(channel=channel):
                await self._turns.close(self, channel)
            case _:
                await self._turns.take(self, message)

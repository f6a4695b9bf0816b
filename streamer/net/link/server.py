"""The server of `streamer verifier`: a turn per websocket, a KV slot per turn.

Admission, HTTP and drain are net/service/service.py's. A websocket that has opened no turn is an
edge's spare. A turn outlives a websocket that was cut by `hold_s`, so that its edge can resume it.
Bounds: `max_sessions` turns, where a held one makes room for a new one, and the messages of each
turn that wait. Websockets without a pong are closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import anyio
from anyio.abc import TaskGroup
from websockets.exceptions import ConnectionClosed

from streamer.core.link import wire
from streamer.net.link.served_turn import Broken, ServedTurn, VerifierModel
from streamer.net.service.admission import Admission, HttpRefusal
from streamer.net.service.http import ClientSocket
from streamer.net.service.metrics import VerifierMetrics
from streamer.net.service.service import Query, Service
from streamer.stages.ports import Judge, quietly

HOLD_S = 30.0
GOODBYE = 1000  # the close code of a turn that is over
GARBAGE = (1008, "not a message of this protocol")
RESTART = (1012, "the verifier is going down")
OpenJudge = Callable[[ServedTurn], Judge]
_logger = logging.getLogger("streamer")


class VerifierServer(Service):
    """Serves one model to many edges. `run` returns when it was stopped and has drained."""

    metrics: VerifierMetrics

    max_message_bytes = wire.MAX_MESSAGE_BYTES
    # more than a turn's unheard audio in pieces of 100 ms, so that pings after it are answered
    max_queue = 64
    kind = "verifier"
    ping_interval_s = 10.0

    def __init__(
        self,
        open_judge: OpenJudge,
        model: VerifierModel,
        admission: Admission,
        hold_s: float = HOLD_S,
    ) -> None:
        """hold_s: how long a turn waits for an edge whose websocket was cut."""
        super().__init__(admission, VerifierMetrics())
        self.model_name = ""  # for the line that says it listens
        self.fingerprint = model.fingerprint
        self._open_judge = open_judge
        self._model = model
        self._hold_s = hold_s
        self._turns: dict[bytes, ServedTurn] = {}  # the longest held come before those held later
        self._links: set[ClientSocket] = set()
        self._group: TaskGroup

    def start(self, group: TaskGroup) -> None:
        self._group = group
        watch = self.metrics.watch
        watch("links", "Websockets of edges", lambda: len(self._links))
        watch("sessions", "Turns with a KV slot", lambda: self._admission.num_sessions)
        watch("sessions_held", "Turns whose websocket was cut", lambda: self.num_held)
        told = "Audio that arrived and is not heard, of the slowest turn"
        watch("audio_lag_seconds", told, lambda: self.lag_s)

    @property
    def num_held(self) -> int:
        """Turns without a websocket."""
        return sum(turn.socket is None for turn in self._turns.values())

    @property
    def lag_s(self) -> float:
        return max((turn.lag_s for turn in self._turns.values()), default=0.0)

    def check(self, query: Query, tenant: str) -> None:
        """A full verifier takes websockets all the same: an edge needs one to resume a turn."""
        version = query.get(wire.VERSION_QUERY, ["an older one"])[0]
        if version != str(wire.VERSION):
            told = f"this verifier speaks version {wire.VERSION} of the link, the edge {version}"
            raise HttpRefusal(400, f"{told}; update the older of the two")

    async def serve(self, socket: ClientSocket, query: Query) -> None:
        """Serve one websocket: the turn that its first message opens."""
        self._links.add(socket)
        try:
            opened = wire.decode_up(await socket.recv())
            if not isinstance(opened, wire.Open):
                raise wire.WireError("a message before the turn is open")
            await self._serve_turn(await self._claim(socket, opened), socket)
        except wire.WireError:
            await socket.close(*GARBAGE)
        except Broken as broken:
            rejected = wire.Rejected(broken.is_final, str(broken)[:200])
            with suppress(ConnectionClosed):
                await socket.send(wire.encode(rejected))
        except ConnectionClosed:
            return
        finally:
            self._links.discard(socket)

    async def drain(self, within_s: float) -> None:
        """Let present turns end, at most `within_s`; then close every websocket."""
        serving = {turn.socket for turn in self._turns.values()}
        await _close_all(self._links - serving)
        with anyio.move_on_after(within_s):
            while waiting := [turn for turn in self._turns.values() if turn.socket is not None]:
                await waiting[0].released.wait()
        await _close_all(self._links)

    async def _claim(self, socket: ClientSocket, opened: wire.Open) -> ServedTurn:
        """A new turn, or the one that is resumed. Raises Broken."""
        while (turn := self._turns.get(opened.session)) is not None:
            if turn.socket is None:
                break
            turn.socket.transport.abort()  # the edge has given it up
            await turn.released.wait()
        if turn is None:
            turn = self._begin(socket.tenant, opened)
        else:
            turn.hold_over.set()
            self.metrics.resumed.inc()
        turn.socket = socket
        turn.released = anyio.Event()
        return turn

    def _begin(self, tenant: str, opened: wire.Open) -> ServedTurn:
        """A new turn, which may end the turns held longest; a key that has its share makes room
        among its own. Raises Broken."""
        turn = ServedTurn(self._model, opened)
        admission = self._admission
        while (told := admission.why_full(tenant)) is not None:
            is_own = admission.has_its_share(tenant)
            held = (turn for turn in self._turns.values() if turn.socket is None)
            oldest = next((t for t in held if not is_own or t.tenant == tenant), None)
            if oldest is None:
                raise Broken(told, is_final=False)
            self._end(oldest)
        if admission.is_draining:
            raise Broken("the verifier is going down", is_final=False)
        try:
            turn.judge = self._open_judge(turn)
        except Exception as error:
            _logger.error("turn.failed", exc_info=error)
            told = "the verifier cannot open a turn; its log says more"
            raise Broken(told, is_final=False) from None
        turn.tenant = tenant
        admission.enter(tenant)
        self._turns[turn.session] = turn
        return turn

    async def _serve_turn(self, turn: ServedTurn, socket: ClientSocket) -> None:
        is_over = True
        try:
            await turn.serve(socket, self.metrics)
        except (ConnectionClosed, wire.WireError):
            is_over = socket.close_code == GOODBYE
            raise
        except Broken:
            raise
        except Exception as error:  # this turn's alone
            self.metrics.failed.inc()
            _logger.error("turn.failed", exc_info=error)
            raise Broken("internal error; the verifier's log says more") from None
        finally:
            turn.socket = None
            turn.released.set()
            if is_over or self._admission.is_draining:
                self._end(turn)
            else:  # after those held longer
                self._turns[turn.session] = self._turns.pop(turn.session)
                turn.hold_over = anyio.Event()
                self._group.start_soon(quietly, self._hold, turn)

    async def _hold(self, turn: ServedTurn) -> None:
        """Wait for the turn's edge, at most `hold_s`, or to the service's end."""
        try:
            with anyio.move_on_after(self._hold_s):
                await turn.hold_over.wait()
        finally:
            if not turn.hold_over.is_set():
                self._end(turn)

    def _end(self, turn: ServedTurn) -> None:
        """Give the turn's KV slot and place back; a second call does nothing."""
        if self._turns.get(turn.session) is turn:
            del self._turns[turn.session]
            turn.hold_over.set()
            turn.judge.close()
            self._admission.leave(turn.tenant)


async def _close_all(sockets: set[ClientSocket]) -> None:
    async with anyio.create_task_group() as group:  # a hung one does not delay the others
        for socket in list(sockets):
            group.start_soon(partial(socket.close, *RESTART))

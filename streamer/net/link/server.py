"""The server of `streamer verifier`: a turn per websocket, a KV slot per turn.

Admission, HTTP and drain are net/service/service.py's. A websocket that has opened no turn is an
edge's spare. A turn outlives a websocket that was cut by `hold_s`, so that its edge can resume it.
Bounds: `max_sessions` turns, where a held one makes room for a new one, and the messages of each
turn that wait. Websockets without a pong are closed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import aclosing, suppress
from functools import partial

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.decoding.plan import Refusal, VerifyRequest
from streamer.core.link import wire
from streamer.core.link.verifier_turn import Broken, VerifierModel, VerifierTurn
from streamer.net.service.admission import Admission, HttpRefusal
from streamer.net.service.http import ClientSocket
from streamer.net.service.logs import Notices
from streamer.net.service.metrics import VerifierMetrics
from streamer.net.service.service import Query, Service
from streamer.stages.ports import Judge, quietly

HOLD_S = 30.0
HELD_EVERY_S = 0.25
GOODBYE = 1000  # the close code of a turn that is over
GARBAGE = (1008, "not a message of this protocol")
RESTART = (1012, "the verifier is going down")
# messages of one turn: more than its unheard audio in pieces of 100 ms; 4 MB at most
MAX_WAITING = 64
MAX_TURN_IDLE_S = 300.0  # with nothing to do
OpenJudge = Callable[[VerifierTurn], Judge]
_logger = logging.getLogger("streamer")


class ServedTurn:
    """One turn on a verifier: its messages in order, on one websocket after another.

    A reader and a worker share each websocket. The reader always reads, so pings are answered and a
    cut is seen at once; it pauses only where an edge sends MAX_WAITING messages ahead of the
    worker. The turn's state changes only in the worker. Messages that still wait where a websocket
    ends are dropped, since the edge sends them again. tenant: the owner (net/service/admission.py).
    """

    def __init__(
        self, state: VerifierTurn, judge: Judge, tenant: str, metrics: VerifierMetrics
    ) -> None:
        self.state = state
        self.judge = judge
        self.tenant = tenant
        # the websocket that serves the turn; None while it is held for its edge
        self.socket: ServerConnection | None = None
        # set when `socket` has let go of the turn
        self.released = anyio.Event()
        self.held_until = math.inf
        self._metrics = metrics
        self._num_received = 0  # samples
        self._is_prefilled = False  # to the turn's end
        self._ended: Exception | None = None  # why no more messages come on the present websocket

    @property
    def lag_s(self) -> float:
        """Seconds of audio that arrived and are not heard."""
        return max(0, self._num_received - self.state.num_samples) / SAMPLE_RATE_HZ

    async def serve(self, socket: ServerConnection, model: str) -> None:
        """Serve one websocket until it ends.

        Raises ConnectionClosed, Broken where the turn is over, wire.WireError for garbage, and the
        judge's errors.
        """
        await _send(socket, wire.Opened(self.state.num_samples, model))
        if self._is_prefilled:
            await self._send_heard(socket)
        self._num_received = self.state.num_samples
        self._ended = None
        give, messages = anyio.create_memory_object_stream[wire.Up](MAX_WAITING)
        with give, messages:
            async with anyio.create_task_group() as group:
                group.start_soon(quietly, self._read, socket, give)
                error = await self._work(socket, messages)
                group.cancel_scope.cancel()
        raise error

    async def _read(self, socket: ServerConnection, give: MemoryObjectSendStream[wire.Up]) -> None:
        """Read ahead of the worker, to the websocket's end."""
        try:
            while True:
                message = wire.decode_up(await socket.recv())
                if isinstance(message, wire.Audio):
                    before = min(self._num_received, message.start)
                    self._num_received = before + message.num_samples
                await give.send(message)
        except (wire.WireError, ConnectionClosed) as error:
            self._ended = error
        give.close()

    async def _work(
        self, socket: ServerConnection, messages: MemoryObjectReceiveStream[wire.Up]
    ) -> Exception:
        """Do what the messages ask for, in their order. Returns what ended it."""
        try:
            while self._ended is None:
                with anyio.move_on_after(MAX_TURN_IDLE_S) as idle:
                    message = await messages.receive()
                if idle.cancelled_caught:
                    return Broken(f"nothing came for {MAX_TURN_IDLE_S:g} s", is_final=False)
                if self._ended is None:
                    await self._take(socket, message)
        except anyio.EndOfStream:
            pass
        except Exception as error:
            return error
        assert self._ended is not None, "the reader says why it ends"
        return self._ended

    async def _take(self, socket: ServerConnection, message: wire.Up) -> None:
        match message:
            case wire.Audio():
                if len(samples := self.state.audio(message)):
                    await self.judge.hear(samples)
                await self._send_heard(socket)
            case wire.Finish():
                self.state.finish(message)
                if not self._is_prefilled:
                    await self.judge.finish()
                    self._is_prefilled = True
                await self._send_heard(socket)
            case VerifyRequest():
                await self._judge(socket, message)
            case wire.Open():
                raise Broken("the turn is open already")

    async def _judge(self, socket: ServerConnection, request: VerifyRequest) -> None:
        self.state.check(request)
        since = anyio.current_time()
        async with aclosing(self.judge.judge(request)) as replies:
            async for reply in replies:
                now = anyio.current_time()
                self._metrics.judging.inc(now - since)
                since = now
                if isinstance(reply, Refusal):
                    self._metrics.refused.labels(reply.reason).inc()
                else:
                    self._metrics.verdict(request, reply)
                await _send(socket, reply)

    async def _send_heard(self, socket: ServerConnection) -> None:
        await _send(socket, wire.Heard(self.state.num_samples, self._is_prefilled))


class VerifierServer(Service):
    """Serves one model to many edges. `run` returns when it was stopped and has drained."""

    metrics: VerifierMetrics

    max_message_bytes = wire.MAX_MESSAGE_BYTES
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
        super().__init__(admission, VerifierMetrics(), Notices())
        self.model_name = ""  # for the line that says it listens
        self.fingerprint = model.fingerprint
        self._open_judge = open_judge
        self._model = model
        self._hold_s = hold_s
        self._turns: dict[bytes, ServedTurn] = {}  # the longest held come before those held later
        self._links: set[ClientSocket] = set()

    def start(self, group: TaskGroup) -> None:
        group.start_soon(self._end_held)
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
            with suppress(ConnectionClosed):
                await _send(socket, wire.Rejected(broken.is_final, str(broken)[:200]))
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

    async def _serve_turn(self, turn: ServedTurn, socket: ClientSocket) -> None:
        is_over = True
        try:
            await turn.serve(socket, self._model.fingerprint)
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
            else:  # hold it for its edge, after those held longer
                self._turns[turn.state.session] = self._turns.pop(turn.state.session)
                turn.held_until = anyio.current_time() + self._hold_s

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
            self.metrics.resumed.inc()
        turn.socket = socket
        turn.released = anyio.Event()
        return turn

    def _begin(self, tenant: str, opened: wire.Open) -> ServedTurn:
        state = VerifierTurn(self._model, opened)
        self._make_room(tenant)
        try:
            judge = self._open_judge(state)
        except Exception as error:
            _logger.error("turn.failed", exc_info=error)
            told = "the verifier cannot open a turn; its log says more"
            raise Broken(told, is_final=False) from None
        turn = self._turns[state.session] = ServedTurn(state, judge, tenant, self.metrics)
        self._admission.enter(tenant)
        return turn

    def _make_room(self, tenant: str) -> None:
        """End the turns held longest until there is room for another; a key that has its share
        makes room among its own. Raises Broken."""
        admission = self._admission
        while (told := admission.why_full(tenant)) is not None:
            is_own = admission.has_its_share(tenant)
            held = (turn for turn in self._turns.values() if turn.socket is None)
            oldest = next((t for t in held if not is_own or t.tenant == tenant), None)
            if oldest is None:
                admission.num_refused += 1
                raise Broken(told, is_final=False)
            self._end(oldest)
        if admission.is_draining:
            raise Broken("the verifier is going down", is_final=False)

    async def _end_held(self) -> None:
        """End the turns whose edge does not come back; at the service's end, all that are held."""
        try:
            while True:
                await anyio.sleep(HELD_EVERY_S)
                self._end_until(anyio.current_time())
        finally:
            self._end_until(math.inf)

    def _end_until(self, now: float) -> None:
        for turn in list(self._turns.values()):
            if turn.socket is None and turn.held_until <= now:
                self._end(turn)

    def _end(self, turn: ServedTurn) -> None:
        """Give the turn's KV slot and place back; a second call does nothing."""
        if self._turns.get(turn.state.session) is turn:
            del self._turns[turn.state.session]
            turn.judge.close()
            self._admission.leave(turn.tenant)


async def _send(socket: ServerConnection, message: wire.Down) -> None:
    await socket.send(wire.encode(message))


async def _close_all(sockets: set[ClientSocket]) -> None:
    async with anyio.create_task_group() as group:  # a hung one does not delay the others
        for socket in list(sockets):
            group.start_soon(partial(socket.close, *RESTART))

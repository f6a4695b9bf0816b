"""The server of `streamer verifier`: a turn per websocket, a KV slot per turn.

Admission, HTTP and drain are net/service/service.py's. A websocket that has opened no turn is an
edge's spare. A turn outlives a websocket that was cut by `hold_s`, so that its edge can resume it.
Bounds: `max_sessions` turns, where a held one makes room for a new one; websockets of each key; the
messages of each turn that wait. Websockets without a pong are closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial

import anyio
import msgspec
import numpy as np
from anyio.abc import TaskGroup
from numpy.typing import NDArray
from websockets.exceptions import ConnectionClosed

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.trim import AROUND_SAMPLES
from streamer.core.decoding.plan import VerifyRequest
from streamer.core.link import wire
from streamer.core.rules.settings import FLAT, Rules, Sampling, check_weights
from streamer.net.service.admission import Admission, HttpRefusal, busy
from streamer.net.service.http import ClientSocket
from streamer.net.service.metrics import VerifierMetrics
from streamer.net.service.service import Query, Service
from streamer.stages.ports import Judge, quietly

MAX_RULE = 4_096  # of any number in an edge's rules: they run in the steps of all turns
# committed and drafted together: the room of a KV slot after the longest turn
MAX_ANSWER_IDS = 176
SPARE_LINKS = 8  # websockets of each key, beyond two for each turn
MAX_TURN_IDLE_S = 300.0  # with nothing to do
IN_HAND_S = 0.001  # a message that comes sooner was there already
HOLD_S = 30.0
GOODBYE = 1000  # the close code of a turn that is over
GARBAGE = (1008, "not a message of this protocol")
RESTART = (1012, "the verifier is going down")
_logger = logging.getLogger("streamer")


class Broken(ValueError):
    """The turn ends here; the text goes to the edge. is_final: opening it again is useless."""

    def __init__(self, reason: str, is_final: bool = True) -> None:
        super().__init__(reason)
        self.is_final = is_final


@dataclass(frozen=True)
class VerifierModel:
    """The model of a verifier. phrases: for each language that it speaks a digest of the phrases of
    its sentences, "" for none."""

    fingerprint: str
    tokenizer: str  # its fingerprint
    num_ids: int
    max_turn_s: float
    phrases: Mapping[str, str]


class ServedTurn:
    """One turn, through all of its websockets: its messages in order.

    A repeat is harmless. A gap, or an order that cannot be, ends the turn with Broken. Messages
    that wait where a websocket ends are of no use, since the edge sends them again. TargetLedger
    (core/decoding/plan.py) decides what a request does to the target's sequence.
    """

    def __init__(self, model: VerifierModel, opened: wire.Open) -> None:
        """Raises Broken where edge and verifier do not fit."""
        self.rules, self.sampling = _terms(model, opened)
        self.session = opened.session
        # samples that were taken, in order
        self.num_samples = 0
        self.is_finished = False
        # of the levels that the sentence may say; known at the turn's end
        self.weights = FLAT
        # the websocket that serves the turn; None while it is held for its edge
        self.socket: ClientSocket | None = None
        # set when `socket` has let go of the turn
        self.released = anyio.Event()
        # set when a held turn is resumed, or ended
        self.hold_over = anyio.Event()
        self.judge: Judge = None
        self.tenant = ""  # the owner (net/service/admission.py)
        self._model = model
        self._is_prefilled = False  # to the turn's end
        self._behind_since: float | None = None  # None where it waits for the edge

    @property
    def lag_s(self) -> float:
        """Seconds since it last waited for its edge."""
        since = self._behind_since
        return 0.0 if since is None or self.socket is None else anyio.current_time() - since

    async def serve(self, socket: ClientSocket, metrics: VerifierMetrics) -> None:
        """Serve one websocket until it ends.

        Raises ConnectionClosed, Broken where the turn is over, wire.WireError for garbage, and the
        judge's errors.
        """
        opened = wire.Opened(self.num_samples, self._model.fingerprint)
        await socket.send(wire.encode(opened))
        if self._is_prefilled:
            await self._send_heard(socket)
        while True:
            asked_at = anyio.current_time()
            behind_since, self._behind_since = self._behind_since, None
            with anyio.move_on_after(MAX_TURN_IDLE_S) as idle:
                data = await socket.recv()
            if idle.cancelled_caught:
                raise Broken(f"nothing came for {MAX_TURN_IDLE_S:g} s", is_final=False)
            now = anyio.current_time()
            was_there = now - asked_at < IN_HAND_S
            self._behind_since = (was_there and behind_since) or now
            match wire.decode_up(data):
                case wire.Audio() as audio:
                    if len(samples := self.audio(audio)):
                        await self.judge.hear(samples)
                    await self._send_heard(socket)
                case wire.Finish() as finish:
                    self.finish(finish)
                    if not self._is_prefilled:
                        await self.judge.finish()
                        self._is_prefilled = True
                    await self._send_heard(socket)
                case VerifyRequest() as request:
                    self._behind_since = None  # all audio is heard
                    self.check(request)
                    await self._answer(request, socket, metrics)
                case wire.Open():
                    raise Broken("the turn is open already")

    async def _answer(
        self, request: VerifyRequest, socket: ClientSocket, metrics: VerifierMetrics
    ) -> None:
        since = anyio.current_time()
        async with aclosing(self.judge.judge(request)) as replies:
            async for reply in replies:
                now = anyio.current_time()
                metrics.replied(request, reply, now - since)
                since = now
                await socket.send(wire.encode(reply))

    async def _send_heard(self, socket: ClientSocket) -> None:
        await socket.send(wire.encode(wire.Heard(self.num_samples, self._is_prefilled)))

    def audio(self, message: wire.Audio) -> NDArray[np.float32]:
        """The samples [n] float32 that are new, none for a repeat. Raises Broken, WireError."""
        samples = message.samples()
        if message.start > self.num_samples:
            raise Broken(f"samples {self.num_samples} to {message.start} are missing")
        fresh = samples[self.num_samples - message.start :]
        most = self._model.max_turn_s * SAMPLE_RATE_HZ + AROUND_SAMPLES
        if len(fresh) and (self.is_finished or self.num_samples + len(fresh) > most):
            most_s = f"{self._model.max_turn_s:g} s"
            raise Broken(f"a turn is at most {most_s}, and over once it is finished")
        self.num_samples += len(fresh)
        return fresh

    def finish(self, message: wire.Finish) -> None:
        """End the turn's audio; an edge that came back says it again. Raises Broken."""
        if message.num_samples != self.num_samples:
            told = f"the turn has {self.num_samples} samples here"
            raise Broken(f"{told} and {message.num_samples} there")
        try:
            check_weights(message.weights)
        except ValueError as error:
            raise Broken(str(error)) from None
        self.is_finished = True
        self.weights = message.weights

    def check(self, request: VerifyRequest) -> None:
        """Raises Broken for an impossible request."""
        ids = (*request.unverified, *request.draft)
        if not self.is_finished:
            raise Broken("a request before the turn's end")
        if request.base + len(ids) > MAX_ANSWER_IDS or max(ids, default=0) >= self._model.num_ids:
            raise Broken("ids that cannot be")


def _terms(model: VerifierModel, opened: wire.Open) -> tuple[Rules, Sampling]:
    """How the edge decodes. Raises Broken where edge and verifier do not fit."""
    if opened.tokenizer != model.tokenizer:
        raise Broken("edge and verifier have different tokenizers; take two models of one family")
    if opened.language not in model.phrases:
        told = f"the verifier's model speaks {' and '.join(model.phrases)}"
        raise Broken(f"{told}, and the turn is to be described in {opened.language!r}")
    if opened.model and opened.model != model.fingerprint:
        raise Broken("the verifier's model is not the one that the turn began with")
    given = opened.rules | {"language": opened.language}
    phrases = given.pop("phrases", "")
    if given.get("form") and phrases != model.phrases[opened.language]:
        way = "take two models that were trained together"
        raise Broken(f"edge and verifier say different phrases; {way}")
    known = vars(Rules()).keys()
    if given.keys() != known:
        told = f"the verifier knows {len(known)} rules, the edge has others"
        raise Broken(f"{told}; use one version on both sides")
    try:
        rules = msgspec.convert(given, Rules)
        sampling = Sampling(*opened.sampling)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise Broken(f"the verifier cannot follow the edge's rules: {str(error)[:120]}") from None
    for name, value in vars(rules).items():
        most = MAX_ANSWER_IDS - 48 if name == "max_new_tokens" else MAX_RULE
        if isinstance(value, int | float) and not value <= most:
            raise Broken(f"the edge's {name} is {value:g}; it may be {most} at most")
    return rules, sampling


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
        open_judge: Callable[[ServedTurn], Judge],
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
        told = "Since the slowest turn last waited for its edge"
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
        admission = self._admission
        most = 2 * (admission.max_per_key or admission.max_sessions) + SPARE_LINKS
        if sum(link.tenant == tenant for link in self._links) >= most:
            raise busy("too many websockets; close some")

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
            if turn.tenant != socket.tenant:
                raise Broken("the turn belongs to another key")
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
        over = turn.hold_over  # it has another one as soon as it is held again
        try:
            with anyio.move_on_after(self._hold_s):
                await over.wait()
        finally:
            if not over.is_set():
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

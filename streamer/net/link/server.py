"""The server of `streamer verifier`: a turn per websocket, a KV slot per turn.

Admission, HTTP and drain are net/service/service.py's. A websocket that has opened no turn is an
edge's spare. A turn outlives a websocket that was cut by `hold_s`, so that its edge can resume it.
Bounds: `max_sessions` turns, where a held one makes room for a new one; websockets of each key; the
messages of each turn that wait. Websockets without a pong are closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import anyio
import msgspec
import numpy as np
from anyio.abc import TaskGroup
from numpy.typing import NDArray
from websockets.exceptions import ConnectionClosed

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn import AROUND_SAMPLES
from streamer.core.decoding.plan import Refusal, VerifyRequest, prefix_hash
from streamer.core.link import wire
from streamer.core.rules.settings import Rules, Sampling, stop
from streamer.core.text.vocabulary import Vocabulary
from streamer.net.service.admission import Admission, HttpRefusal, busy
from streamer.net.service.metrics import VerifierMetrics
from streamer.net.service.service import RESTART, ClientSocket, Service
from streamer.stages.parts import Judge

# committed and drafted together: the room of a KV slot after the longest turn
MAX_ANSWER_IDS = 176
SPARE_LINKS = 8  # websockets of each key, beyond two for each turn
MAX_TURN_IDLE_S = 300.0  # with nothing to do
HOLD_S = 30.0
GOODBYE = 1000  # the close code of a turn that is over
GARBAGE = (1008, "not a message of this protocol")


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
    vocabulary: Vocabulary
    max_turn_s: float
    phrases: Mapping[str, str]


class ServedTurn:
    """One turn, through all of its websockets: its messages in order.

    A repeat is harmless. A gap, or an order that cannot be, ends the turn with Broken. Messages
    that wait where a websocket ends are of no use, since the edge sends them again.
    """

    def __init__(self, model: VerifierModel, opened: wire.Open) -> None:
        """Raises Broken where edge and verifier do not fit."""
        self.rules, self.sampling = _terms(model, opened)
        self.session = opened.session
        self.num_samples = 0  # samples that were taken, in order
        self.is_finished = False
        # the websocket that serves the turn; None while it is held for its edge
        self.connection: ClientSocket | None = None
        self.released = anyio.Event()  # set when `connection` has let go of the turn
        self.hold: asyncio.TimerHandle | None = None  # ends a turn that is held for too long
        self.judge: Judge = None
        self.tenant = ""  # the owner (net/service/admission.py)
        self._model = model
        self._answer: list[int] = []  # as it was judged
        self._hearing_since: float | None = None

    @property
    def lag_s(self) -> float:
        """Seconds since the current piece of audio went to the model."""
        since = self._hearing_since
        return 0.0 if since is None else anyio.current_time() - since

    async def serve(self, socket: ClientSocket, metrics: VerifierMetrics) -> None:
        """Serve one websocket until it ends.

        Raises ConnectionClosed, Broken at the turn's end, WireError for garbage, judges' errors.
        """
        await self._send_heard(socket, self._model.fingerprint)
        while True:
            with anyio.move_on_after(MAX_TURN_IDLE_S) as idle:
                data = await socket.recv()
            if idle.cancelled_caught:
                raise Broken(f"nothing came for {MAX_TURN_IDLE_S:g} s", is_final=False)
            match wire.decode_up(data):
                case wire.Audio() | wire.Finish() as message:
                    self._hearing_since = anyio.current_time()
                    try:
                        await self._hear(message)
                    finally:
                        self._hearing_since = None
                    await self._send_heard(socket)
                case VerifyRequest() as request:
                    self.check(request)
                    await self._judge(request, socket, metrics)
                case wire.Open():
                    raise Broken("the turn is open already")

    async def _hear(self, message: wire.Audio | wire.Finish) -> None:
        if isinstance(message, wire.Finish):
            if self.finish(message):
                await self.judge.finish(message.weights)
        elif len(samples := self.audio(message)):
            await self.judge.hear(samples)

    async def _judge(
        self, request: VerifyRequest, socket: ClientSocket, metrics: VerifierMetrics
    ) -> None:
        """Reply; in a run, also to the requests that an edge without a draft would make next. After
        a cut link these may be repeats, too."""
        while True:
            since = anyio.current_time()
            reply = await self.judge.verify(request)
            metrics.replied(request, reply, anyio.current_time() - since)
            await socket.send(wire.encode(reply))
            if isinstance(reply, Refusal) or not request.runs_on:
                return
            ids = (*request.unverified, *request.draft[: reply.n_accepted], reply.next_id)
            self._answer[request.base :] = ids
            answer = self._answer
            if stop(self._model.vocabulary, self.rules, answer[:-1], answer[-1]) is not None:
                return
            at, prefix = len(answer), prefix_hash(answer)
            request = VerifyRequest(request.number + 1, at, prefix, (), (), runs_on=True)

    async def _send_heard(self, socket: ClientSocket, model: str = "") -> None:
        await socket.send(wire.encode(wire.Heard(self.num_samples, self.is_finished, model)))

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

    def finish(self, message: wire.Finish) -> bool:
        """End the turn's audio. False: it was ended, and an edge that came back says it again.
        Raises Broken."""
        if message.num_samples != self.num_samples:
            told = f"the turn has {self.num_samples} samples here"
            raise Broken(f"{told} and {message.num_samples} there")
        is_first, self.is_finished = not self.is_finished, True
        return is_first

    def check(self, request: VerifyRequest) -> None:
        """Raises Broken for an impossible request."""
        ids, known = (*request.unverified, *request.draft), self._model.vocabulary
        if not self.is_finished:
            raise Broken("a request before the turn's end")
        if request.base + len(ids) > MAX_ANSWER_IDS or max(ids, default=0) >= known.num_ids:
            raise Broken("ids that cannot be")


def _terms(model: VerifierModel, opened: wire.Open) -> tuple[Rules, Sampling]:
    """How the edge decodes. Raises Broken where edge and verifier do not fit."""
    if opened.tokenizer != model.vocabulary.fingerprint:
        raise Broken("edge and verifier have different tokenizers; take two models of one family")
    if opened.model and opened.model != model.fingerprint:
        raise Broken("the verifier's model is not the one that the turn began with")
    known = vars(Rules()).keys()
    if opened.rules.keys() != known:
        told = f"the verifier knows {len(known)} rules, the edge has others"
        raise Broken(f"{told}; use one version on both sides")
    try:
        rules = msgspec.convert(opened.rules, Rules)
        sampling = Sampling(*opened.sampling)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise Broken(f"the verifier cannot follow the edge's rules: {str(error)[:120]}") from None
    if rules.language not in model.phrases:
        told = f"the verifier's model speaks {' and '.join(model.phrases)}"
        raise Broken(f"{told}, and the turn is to be described in {rules.language!r}")
    if rules.form and opened.phrases != model.phrases[rules.language]:
        way = "take two models that were trained together"
        raise Broken(f"edge and verifier say different phrases; {way}")
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
        # by their sessions; the longest held come before those held later
        self._turns: dict[bytes, ServedTurn] = admission.places

    def start(self, group: TaskGroup) -> None:
        watch = self.metrics.watch
        watch("links", "Websockets of edges", lambda: len(self.links))
        watch("sessions", "Turns with a KV slot", lambda: len(self._turns))
        watch("sessions_held", "Turns whose websocket was cut", lambda: self.num_held)
        told = "That the audio in hand takes to be heard, of the slowest turn"
        watch("audio_lag_seconds", told, lambda: self.lag_s)

    def check(self, socket: ClientSocket) -> None:
        """A full verifier takes websockets all the same: an edge needs one to resume a turn."""
        version = socket.query.get(wire.VERSION_QUERY, ["an older one"])[0]
        if version != str(wire.VERSION):
            told = f"this verifier speaks version {wire.VERSION} of the link, the edge {version}"
            raise HttpRefusal(400, f"{told}; update the older of the two")
        admission = self._admission
        most = 2 * (admission.max_per_key or admission.max_sessions) + SPARE_LINKS
        if sum(link.tenant == socket.tenant for link in self.links) >= most:
            raise busy("too many websockets; close some")

    async def serve(self, socket: ClientSocket) -> None:
        """Serve one websocket: the turn that its first message opens, and whose errors end it."""
        try:
            opened = wire.decode_up(await socket.recv())
            if not isinstance(opened, wire.Open):
                raise wire.WireError("a message before the turn is open")
            turn, is_over = await self._claim(socket, opened), True
            try:
                await turn.serve(socket, self.metrics)
            except (ConnectionClosed, wire.WireError):
                is_over = socket.close_code == GOODBYE
                raise
            finally:
                self._release(turn, is_over)
        except wire.WireError:
            await socket.close(*GARBAGE)
        except ConnectionClosed:
            return
        except Broken as broken:
            await self._reject(socket, broken)
        except Exception as error:
            self.failed("turn", error)
            await self._reject(socket, Broken("internal error; the verifier's log says more"))

    async def _reject(self, socket: ClientSocket, broken: Broken) -> None:
        with suppress(ConnectionClosed):
            await socket.send(wire.encode(wire.Rejected(broken.is_final, str(broken)[:200])))

    async def drain(self, within_s: float) -> None:
        """Let present turns end, at most `within_s`; other websockets are closed at once."""
        for turn in [turn for turn in self._turns.values() if turn.connection is None]:
            self._end(turn)
        async with anyio.create_task_group() as group:  # a hung one does not delay the others
            for link in self.links - {turn.connection for turn in self._turns.values()}:
                group.start_soon(partial(link.close, *RESTART))
        with anyio.move_on_after(within_s):
            for turn in list(self._turns.values()):
                await turn.released.wait()

    async def _claim(self, socket: ClientSocket, opened: wire.Open) -> ServedTurn:
        """A new turn, or the one that is resumed. Raises Broken."""
        while (turn := self._turns.get(opened.session)) is not None:
            if turn.tenant != socket.tenant:
                raise Broken("the turn belongs to another key")
            if turn.connection is None:
                break
            turn.connection.transport.abort()  # the edge has given it up
            await turn.released.wait()
        if turn is None:
            turn = self._begin(socket.tenant, opened)
        elif turn.hold is not None:
            turn.hold.cancel()
            self.metrics.resumed.inc()
        turn.connection = socket
        turn.released = anyio.Event()
        return turn

    def _begin(self, tenant: str, opened: wire.Open) -> ServedTurn:
        """A new turn, which may end the turns held longest; a key that has its share makes room
        among its own. Raises Broken."""
        turn = ServedTurn(self._model, opened)
        admission = self._admission
        while (told := admission.why_full(tenant)) is not None:
            is_own = admission.has_its_share(tenant)
            held = (turn for turn in self._turns.values() if turn.connection is None)
            oldest = next((t for t in held if not is_own or t.tenant == tenant), None)
            if oldest is None:
                raise Broken(told, is_final=False)
            self._end(oldest)
        if admission.is_draining:
            raise Broken("the verifier is going down", is_final=False)
        turn.judge = self._open_judge(turn)
        turn.tenant = tenant
        self._turns[turn.session] = turn
        return turn

    def _release(self, turn: ServedTurn, is_over: bool) -> None:
        """Its websocket has ended: end the turn, or hold it for its edge."""
        turn.connection = None
        turn.released.set()
        if is_over or self._admission.is_draining:
            self._end(turn)
        else:  # after those held longer
            self._turns[turn.session] = self._turns.pop(turn.session)
            turn.hold = asyncio.get_running_loop().call_later(self._hold_s, self._end, turn)

    def _end(self, turn: ServedTurn) -> None:
        """Give the turn's KV slot and place back."""
        if turn.hold is not None:
            turn.hold.cancel()
        del self._turns[turn.session]
        turn.judge.close()

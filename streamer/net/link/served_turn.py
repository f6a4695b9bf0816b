"""One turn on a verifier: which messages are valid, and what they do.

A repeat is harmless. A gap, or an order that cannot be, ends the turn with Broken. TargetLedger
(core/decoding/plan.py) decides what a request does to the target's sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass

import anyio
import msgspec
import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.trim import AROUND_SAMPLES
from streamer.core.decoding.plan import VerifyRequest
from streamer.core.link import wire
from streamer.core.rules.settings import FLAT, Rules, Sampling, check_weights
from streamer.net.service.http import ClientSocket
from streamer.net.service.metrics import VerifierMetrics
from streamer.stages.ports import Judge

MAX_RULE = 4_096  # of any number in an edge's rules: they run in the steps of all turns
# committed and drafted together: the room of a KV slot after the longest turn
MAX_ANSWER_IDS = 176
MAX_TURN_IDLE_S = 300.0  # with nothing to do
IN_HAND_S = 0.001  # a message that comes sooner was there already


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

    Messages that wait where a websocket ends are of no use, since the edge sends them again.
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

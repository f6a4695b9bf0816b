"""One turn that an edge has verified here, without a socket. In: messages. Out: the target's work.

The rules of the link: a repeat is no harm, a gap or an order that cannot be ends the turn (Broken),
a request of an older link is refused. What a request does to the target's sequence is
TargetLedger's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.trim import AROUND_SAMPLES
from streamer.core.decoding.verdict import VerifyRequest
from streamer.core.link import packing, wire
from streamer.core.rules.level_weights import FLAT, LevelWeights, check_weights
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules

MAX_RULE = 4_096  # of any number in an edge's rules: they run in everybody's step
# committed and drafted together: what a KV slot has room for behind the longest turn
MAX_ANSWER_IDS = 176


class Broken(ValueError):
    """The turn ends here: one line for the edge. `is_final`: to ask again makes no sense."""

    def __init__(self, reason: str, is_final: bool = True) -> None:
        super().__init__(reason)
        self.is_final = is_final


@dataclass(frozen=True)
class VerifierModel:
    """What a verifier holds: fingerprints of its model and tokenizer, language, ids, the longest
    turn in seconds, a digest of the phrases that its sentences have."""

    fingerprint: str
    tokenizer: str
    language: str
    num_ids: int
    max_turn_s: float
    phrases: str = ""


@dataclass(frozen=True, slots=True)
class Hear:
    """Prefill these samples [n] float32."""

    samples: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class End:
    """The turn's audio is over; said again where the edge came back and cannot know."""


@dataclass(frozen=True, slots=True)
class VerifyWork:
    """Verify; `runs_on`: then decode alone to the answer's end."""

    request: VerifyRequest
    runs_on: bool


Work = Hear | End | VerifyWork


def admit(model: VerifierModel, message: wire.Open) -> tuple[Rules, Sampling]:
    """How an edge decodes. Raises Broken where the two cannot work together."""
    if message.version != wire.VERSION:
        told = f"the verifier speaks version {wire.VERSION}, the edge {message.version}"
        raise Broken(f"{told}; update the older one")
    if message.tokenizer != model.tokenizer:
        raise Broken("edge and verifier have different tokenizers; take two models of one family")
    if message.language != model.language:
        told = f"the verifier's model describes in {model.language!r}"
        raise Broken(f"{told}, the edge's in {message.language!r}")
    if message.model and message.model != model.fingerprint:
        raise Broken("the verifier's model is not the one that the turn began with")
    if message.rules.get("form") and message.rules.get("phrases", "") != model.phrases:
        way = "take two models that were trained together"
        raise Broken(f"edge and verifier say different phrases; {way}")
    try:
        return _rules(message.rules), Sampling(*message.sampling)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise Broken(f"the verifier cannot follow the edge's rules: {str(error)[:120]}") from None


def _rules(raw: dict[str, Any]) -> Rules:
    known = set(vars(Rules()))
    if set(raw) - {"phrases"} != known:
        told = f"it knows {len(known)} rules, the edge has others"
        raise ValueError(f"{told}; use one version on both sides")
    rules: Rules = msgspec.convert({name: raw[name] for name in known}, Rules)
    if rules.max_new_tokens > (most := MAX_ANSWER_IDS - 48):
        raise ValueError(f"max_new_tokens is {rules.max_new_tokens}; it may be {most}")
    for name, value in vars(rules).items():
        if isinstance(value, int | float) and not value <= MAX_RULE:
            raise ValueError(f"{name} is {value:g}; it may be {MAX_RULE} at most")
    return rules


class ServedTurn:
    """`take` messages in the order in which they came; do the work they mean in that order."""

    def __init__(self, model: VerifierModel, opened: wire.Open) -> None:
        self.rules, self.sampling = admit(model, opened)
        self.session = opened.session
        self.channel = opened.channel
        self.epoch = opened.epoch
        self.num_samples = 0
        self.is_finished = False
        self.weights = FLAT  # of the levels; known at the turn's end
        self._model = model

    def reopen(self, message: wire.Open) -> None:
        """The edge came back. Raises Broken for a link that is older than the present one."""
        if message.epoch <= self.epoch:
            raise Broken(f"link {message.epoch} is older than link {self.epoch}", is_final=False)
        if admit(self._model, message) != (self.rules, self.sampling):
            raise Broken("the edge came back with other rules")
        self.channel = message.channel
        self.epoch = message.epoch

    def take(self, message: wire.OfTurn) -> Work | None:
        """The work that `message` means, None where it is a repeat. Raises Broken, WireError."""
        match message:
            case wire.AudioMessage(start=start):
                return self._audio(start, packing.unpack_audio(message))
            case wire.Finish(num_samples=num_samples):
                return self._finish(num_samples, FLAT)
            case wire.FinishWithin(num_samples=num_samples, weights=weights):
                return self._finish(num_samples, weights)
            case wire.VerifyMessage() | wire.Decode():
                return self._judge(message)

    def _audio(self, start: int, samples: NDArray[np.float32]) -> Work | None:
        if start > self.num_samples:
            raise Broken(f"samples {self.num_samples} to {start} are missing")
        fresh = samples[self.num_samples - start :]
        if not len(fresh):
            return None
        most = self._model.max_turn_s * SAMPLE_RATE_HZ + AROUND_SAMPLES
        if self.is_finished or self.num_samples + len(fresh) > most:
            most_s = f"{self._model.max_turn_s:g} s"
            raise Broken(f"a turn is at most {most_s}, and over once it is finished")
        self.num_samples += len(fresh)
        return Hear(fresh)

    def _finish(self, num_samples: int, weights: LevelWeights) -> Work | None:
        if num_samples != self.num_samples:
            raise Broken(f"the turn has {self.num_samples} samples here and {num_samples} there")
        try:
            check_weights(weights)
        except ValueError as error:
            raise Broken(str(error)) from None
        if self.is_finished and weights != self.weights:
            raise Broken("the edge came back with other level weights")
        self.is_finished = True
        self.weights = weights
        return End()

    def _judge(self, message: wire.VerifyMessage | wire.Decode) -> Work:
        request = packing.request_of(message)
        ids = (*request.unverified, *request.draft)
        if not self.is_finished:
            raise Broken("a request before the turn's end")
        if request.base + len(ids) > MAX_ANSWER_IDS or max(ids, default=0) >= self._model.num_ids:
            raise Broken("ids that cannot be")
        return VerifyWork(request, isinstance(message, wire.Decode))

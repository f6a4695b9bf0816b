"""The verifier's end of a turn, without a socket: which messages are valid, and what they ask for.

A repeat is harmless. A gap, or an order that cannot be, ends the turn with Broken. TargetLedger
decides what a request does to the target's sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.trim import AROUND_SAMPLES
from streamer.core.decoding.plan import VerifyRequest
from streamer.core.link import wire
from streamer.core.rules.settings import FLAT, Rules, Sampling, check_weights

MAX_RULE = 4_096  # of any number in an edge's rules: they run in the steps of all turns
# committed and drafted together: the room of a KV slot after the longest turn
MAX_ANSWER_IDS = 176


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


class VerifierTurn:
    """One turn, through all of its websockets: `num_samples` were taken, in order."""

    def __init__(self, model: VerifierModel, opened: wire.Open) -> None:
        """Raises Broken where edge and verifier do not fit."""
        self.rules, self.sampling = _terms(model, opened)
        self.session = opened.session
        self.num_samples = 0
        self.is_finished = False
        self.weights = FLAT  # of the levels that the sentence may say; known at the turn's end
        self._model = model

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
    phrases = model.phrases[opened.language]
    if opened.rules.get("form") and opened.rules.get("phrases", "") != phrases:
        way = "take two models that were trained together"
        raise Broken(f"edge and verifier say different phrases; {way}")
    try:
        rules = replace(_rules(opened.rules), language=opened.language)
        return rules, Sampling(*opened.sampling)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise Broken(f"the verifier cannot follow the edge's rules: {str(error)[:120]}") from None


def _rules(raw: dict[str, Any]) -> Rules:
    known = set(vars(Rules())) - {"language"}
    if set(raw) - {"phrases"} != known:
        told = f"it knows {len(known)} rules, the edge has others"
        raise ValueError(f"{told}; use one version on both sides")
    rules: Rules = msgspec.convert({name: raw[name] for name in known}, Rules)
    for name, value in vars(rules).items():
        most = MAX_ANSWER_IDS - 48 if name == "max_new_tokens" else MAX_RULE
        if isinstance(value, int | float) and not value <= most:
            raise ValueError(f"{name} is {value:g}; it may be {most} at most")
    return rules

"""The target: verifies a draft in one engine step."""

from __future__ import annotations

from streamer.core.decoding.verdict import Refusal, TargetLedger, Verdict, VerifyRequest
from streamer.core.rules.level_weights import FLAT, LevelWeights
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.model.listener import Listener
from streamer.model.sampler import Sampler
from streamer.model.scheduler import Steps
from streamer.model.thinker import form_of


class LocalVerifier:
    """Verifies on a listener of this process, whose turn is over."""

    def __init__(
        self, listener: Listener, rules: Rules, sampling: Sampling, weights: LevelWeights = FLAT
    ) -> None:
        thinker = listener.thinker
        self._listener = listener
        form = form_of(thinker, rules, weights)
        self._sampler = Sampler(thinker.vocabulary, rules, sampling, form)
        self._ledger = TargetLedger(listener.sequence)
        # 0.7 ms per row of 150,000 ids: only where the card turns them into a confidence
        self._tells = thinker.card.confidence is not None

    def verify(self, request: VerifyRequest) -> Steps[Verdict | Refusal]:
        """Feed the new ids, choose k + 1 ids by the same rules as the edge, accept while equal.

        An empty draft asks for the next id. Returns a Refusal where the target holds other ids.
        """
        known = self._ledger.begin(request)
        if known is not None:
            return known
        k = len(request.draft)
        logits = yield from self._listener.feed(num_logits=k + 1)
        answer = self._listener.sequence.answer
        ids, log_probs = self._sampler.judge(logits, answer, k, self._tells)
        return self._ledger.conclude(request, ids, log_probs)

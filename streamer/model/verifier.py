"""The target's judgement. In: VerifyRequest. Out: Verdict or Refusal, one step per block."""

from __future__ import annotations

from streamer.core.decoding.verdict import Refusal, TargetLedger, Verdict, VerifyRequest
from streamer.core.rules.clauses import FREE, Ranges
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.model.listener import Listener
from streamer.model.sampler import Chooser
from streamer.model.scheduler import Steps
from streamer.model.thinker import form_of


class LocalVerifier:
    """The cloud here, on a listener whose turn is over. An empty draft asks for the next id."""

    def __init__(
        self, listener: Listener, rules: Rules, sampling: Sampling, ranges: Ranges = FREE
    ) -> None:
        thinker = listener.thinker
        self._listener = listener
        form = form_of(thinker, rules, ranges)
        self._chooser = Chooser(thinker.vocabulary, rules, sampling, form)
        self._ledger = TargetLedger(listener.sequence)
        # of 150,000 ids a row takes 0.7 ms: only where a curve makes a confidence of it
        self._tells = thinker.card.confidence is not None

    def verify(self, request: VerifyRequest) -> Steps[Verdict | Refusal]:
        """Feed what is new, choose k + 1 ids under the same rules, accept while equal."""
        known = self._ledger.begin(request)
        if known is not None:
            return known
        k = len(request.draft)
        logits = yield from self._listener.feed(num_logits=k + 1)
        answer = self._listener.sequence.answer
        ids, log_probs = self._chooser.judge(logits, answer, k, self._tells)
        return self._ledger.conclude(request, ids, log_probs)

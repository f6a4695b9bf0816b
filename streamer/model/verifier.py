"""The target's judgement of a block. In: VerifyRequest. Out: Verdict (or Refusal), one step per block."""

from __future__ import annotations

from streamer.core.choice import Sampling
from streamer.core.rules import Rules, constrain
from streamer.core.verify import Refusal, TargetLedger, Verdict, VerifyRequest
from streamer.model.choose import choose
from streamer.model.listener import Listener
from streamer.model.steps import Steps


class LocalVerifier:
    """The cloud in this process, on a listener whose turn is over. An empty draft asks for the next id."""

    def __init__(self, listener: Listener, rules: Rules, sampling: Sampling) -> None:
        self._listener, self._rules, self._sampling = listener, rules, sampling
        self._ledger = TargetLedger(listener.sequence)

    def verify(self, request: VerifyRequest) -> Steps[Verdict | Refusal]:
        """Feed what the target has not seen, choose k + 1 ids under the same rules, accept while equal."""
        known = self._ledger.begin(request)
        if known is not None:
            return known
        thinker, answer, k = self._listener.thinker, self._listener.sequence.answer, len(request.draft)
        logits = yield from self._listener.feed(num_logits=k + 1)
        first = len(answer) - k
        constraints = [constrain(thinker.vocabulary, self._rules, answer[: first + i]) for i in range(k + 1)]
        choices = choose(
            logits, constraints, thinker.never, self._sampling, self._rules, with_signals=False
        )
        return self._ledger.conclude(request, choices.ids)

"""Slow and obviously right. In: a toy model. Out: what decoding must give, by the plainest loop
there is."""

from __future__ import annotations

from collections.abc import Sequence

from fakes import ToyModel

from streamer.core.rules.constrain import constrain
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.core.rules.stop import stop
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.choose import choose


def target_alone(
    model: ToyModel, vocabulary: Vocabulary, prompt: Sequence[int], rules: Rules, sampling: Sampling
) -> tuple[list[int], str]:
    """One id at a time from the whole context, no cache, no draft: (answer, stop reason)."""
    answer: list[int] = []
    never = vocabulary.never
    while True:
        logits = model.logits([*prompt, *answer])[None]
        [token] = choose(logits, [constrain(vocabulary, rules, answer)], never, sampling, rules).ids
        stopped = stop(vocabulary, rules, answer, token)
        if stopped is None or stopped.keep:
            answer.append(token)
        if stopped is not None:
            return answer, stopped.reason

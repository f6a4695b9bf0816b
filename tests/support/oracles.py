"""Slow and obviously right. In: a toy model. Out: what decoding must give, by the plainest loop
there is."""

from __future__ import annotations

from collections.abc import Sequence

from fakes import ToyModel

from streamer.core.rules.constrain import constrain
from streamer.core.rules.form import SentenceForm
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.core.rules.stop import stop
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.choose import choose, choose_among


def target_alone(
    model: ToyModel,
    vocabulary: Vocabulary,
    prompt: Sequence[int],
    rules: Rules,
    sampling: Sampling,
    form: SentenceForm | None = None,
) -> tuple[list[int], str]:
    """One id at a time from the whole context, no cache, no draft: (answer, stop reason)."""
    answer: list[int] = []
    never = vocabulary.never
    while True:
        logits = model.logits([*prompt, *answer])[None]
        constraint = constrain(vocabulary, rules, answer)
        [token] = choose(logits, [constraint], never, sampling, rules).ids
        state = None if form is None else form.behind(answer)
        if form is not None and state is not None and form.step(state, token) is None:
            allowed = form.allowed(state)
            [token] = choose_among(allowed, logits, constraint, sampling, rules).ids
        stopped = stop(vocabulary, rules, answer, token)
        if stopped is None or stopped.keep:
            answer.append(token)
        if stopped is not None:
            return answer, stopped.reason

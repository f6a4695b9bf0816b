"""The expected result of decoding, by a plain loop: slow and easy to check."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from fakes import ToyModel

from streamer.core.rules.form import SentenceForm, marks_of
from streamer.core.rules.settings import NOT_SHOWN, Rules, Sampling, gumbel, stop
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.decoding import choose


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
    while True:
        logits = model.logits([*prompt, *answer])
        state = None if form is None else form.after(answer)
        if form is None or state is None:
            token = choose(logits, answer, vocabulary, rules, sampling)
        else:
            token = in_form(logits, form, answer, sampling)
        stopped = stop(vocabulary, rules, answer, token)
        if stopped not in NOT_SHOWN:
            answer.append(token)
        if stopped is not None:
            return answer, stopped


def in_form(
    logits: Sequence[float], form: SentenceForm, answer: Sequence[int], sampling: Sampling
) -> int:
    """The choice within a form, in plain words: of all ids that keep it, one by one."""
    state = form.after(answer)
    ids = [i for i in range(len(logits)) if form.step(state, i) is not None]
    biases = form.biases(state)
    scores = {
        token: float(logits[token]) + (0.0 if biases is None else biases[i])
        for i, token in enumerate(ids)
    }
    if sampling.temperature == 0:
        return max(ids, key=lambda token: (scores[token], -token))
    heated = {token: score / sampling.temperature for token, score in scores.items()}
    best = max(heated.values())
    total = sum(math.exp(heat - best) for heat in heated.values())
    kept, mass = [], 0.0
    for token in sorted(ids, key=lambda token: (-heated[token], token)):
        if mass < sampling.top_p * total:
            kept.append(token)
        mass += math.exp(heated[token] - best)
    noise = gumbel(sampling.seed, len(answer), np.array(kept))
    return max(zip(kept, noise, strict=True), key=lambda pair: heated[pair[0]] + pair[1])[0]


def levels_said(text: str, language: str) -> dict[str, int]:
    """The levels of a sentence: an opening, then each attribute once between marks."""
    from pipelines.embedded.export import spoken  # it loads torch

    words, (comma, end, gap) = spoken(language), marks_of(language)
    opening = next(filter(text.startswith, words["openings"]))
    assert text.endswith(end)
    clauses = (comma + text[len(opening) : -len(end)]).split(comma)[1:]
    level_of = {
        gap + phrase: (name, number)
        for name, levels in words["attributes"].items()
        for number, level in enumerate(levels)
        for phrase in level["phrases"]
    }
    found = dict(level_of[clause] for clause in clauses)
    assert len(found) == len(clauses) == len(words["attributes"]), text
    return found

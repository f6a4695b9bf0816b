"""Sampled choices: the distribution, the seed, the redraw."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from choices import EMPTY, GREEDY, NEVER, VOCABULARY, V, logits_of
from scipy import stats
from scipy.special import softmax

from streamer.core.rules.constrain import constrain
from streamer.core.rules.sampling import Sampling, gumbel
from streamer.core.rules.settings import Rules
from streamer.model.sampler import choose, pick, processed


def frequencies(
    logits: np.ndarray, rules: Rules, sampling: Sampling, answer: list[int], n: int
) -> np.ndarray:
    constraint = constrain(VOCABULARY, rules, answer)
    scores = processed(logits, [constraint], NEVER, rules)
    ids = [pick(scores, [constraint], replace(sampling, seed=seed), rules)[0] for seed in range(n)]
    return np.bincount(ids, minlength=V)


def p_value(counts: np.ndarray, probabilities: np.ndarray) -> float:
    assert not counts[probabilities == 0].any()
    kept = probabilities * counts.sum() >= 5
    seen = np.append(counts[kept], counts[~kept].sum())
    wanted = np.append(probabilities[kept], probabilities[~kept].sum()) * counts.sum()
    if wanted[-1] < 1e-9:
        seen, wanted = seen[:-1], wanted[:-1]
    return float(stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_sampled_ids_follow_the_targets_distribution(temperature: float, top_p: float) -> None:
    logits = logits_of(12, 1) / 4  # no id alone is the nucleus
    rules = Rules(loop_local=False)
    answer = [8, 4, 3, 0, 1, 2, 4]
    scores = processed(logits, [constrain(VOCABULARY, rules, answer)], NEVER, rules)[0].astype(
        float
    )
    wanted = np.exp((scores - scores.max()) / temperature)
    wanted /= wanted.sum()
    order = sorted(range(V), key=lambda i: (-wanted[i], i))
    kept, mass = [], 0.0
    for i in order:  # the nucleus in plain words
        if mass < top_p:
            kept.append(i)
        mass += wanted[i]
    outside = np.setdiff1d(np.arange(V), kept)
    wanted[outside] = 0.0
    wanted /= wanted.sum()
    counts = frequencies(logits, rules, Sampling(temperature, top_p), answer, 4000)
    assert p_value(counts, wanted) > 1e-3


def test_sampled_pairs_follow_the_product_over_places() -> None:
    """Enumerated on two places: the joint of successive ids is the chain of conditionals."""
    rules, n = Rules.off(clean=True), 3000
    logits = logits_of(5, 1) / 4
    free = np.flatnonzero(~VOCABULARY.never & ~VOCABULARY.invalid)
    first = processed(logits, [constrain(VOCABULARY, rules, [0])], NEVER, rules)[0].astype(float)
    p = softmax(first)
    joint = np.zeros((V, V))
    constraints = [constrain(VOCABULARY, rules, [0]), constrain(VOCABULARY, rules, [0, 1])]
    scores = processed(np.repeat(logits, 2, axis=0), constraints, NEVER, rules)
    for seed in range(n):
        a, b = pick(scores, constraints, Sampling(1.0, 1.0, seed), rules)
        joint[a, b] += 1
    assert len(free) > 5
    assert p_value(joint.ravel(), np.outer(p, p).ravel()) > 1e-3


def test_the_same_seed_and_place_give_the_same_id_on_both_sides() -> None:
    """Another batch, a mask as a copy, other logits of banned ids: the choice stays."""
    rules, sampling = Rules(), Sampling(1.0, 0.95, 7)
    constraint = constrain(VOCABULARY, rules, [8, 4])
    logits = logits_of(2, 1)
    other = logits.copy()
    other[0, 10] = 40.0  # a line break is never emitted
    assert (
        choose(logits, [constraint], NEVER, sampling, rules).ids
        == choose(other, [constraint], NEVER.copy(), sampling, rules).ids
    )


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(1.0, 1.0, 3)])
def test_a_candidate_that_stands_twice_in_the_last_four_is_drawn_again(sampling: Sampling) -> None:
    rules = Rules.off(loop_local=True)
    logits = np.full((1, V), -20.0)
    logits[0, :6] = [30.0, 29.5, 29.0, 28.5, 28.0, 27.9]
    once = frequencies(logits, Rules.off(), sampling, [0, 1, 0, 2], 400)
    if sampling == GREEDY:
        assert once[0] == 400
        assert frequencies(logits, rules, sampling, [0, 1, 2, 4], 50)[0] == 50, "once is no loop"
        counts = frequencies(logits, rules, sampling, [0, 1, 0, 2], 3000)
        wanted = np.zeros(V)
        wanted[:5] = np.exp(np.array([30.0, 29.5, 29.0, 28.5, 28.0]) / 0.8 - 30 / 0.8)
        assert p_value(counts, wanted / wanted.sum()) > 1e-3
    else:
        counts = frequencies(logits, rules, sampling, [0, 1, 0, 2], 400)
        assert counts[5:].sum() <= once[5:].sum()


def test_the_redraw_uses_the_same_noise() -> None:
    rules = Rules.off(loop_local=True)
    logits = logits_of(9, 1)
    first = int(logits.argmax())
    answer = [first, 3, first, 5]
    sampling = Sampling(seed=21)
    top = np.argsort(-logits[0])[:5]
    wanted = int(top[np.argmax(logits[0, top].astype(float) / 0.8 + gumbel(21, 4, top))])
    assert choose(logits, [constrain(VOCABULARY, rules, answer)], NEVER, sampling, rules).ids == [
        wanted
    ]


def test_the_redraw_never_takes_a_banned_id() -> None:
    rules = Rules(loop_top=5, min_new_tokens=0, comma_gap=0, end_gap=0)
    only = np.array([0, 3])
    base = constrain(VOCABULARY, rules, [0, 3, 0, 3])
    constraint = replace(base, never=np.setdiff1d(np.arange(V), only), adjacency=EMPTY, ngram=EMPTY)
    logits = logits_of(4, 1)
    found = {choose(logits, [constraint], NEVER, Sampling(seed=s), rules).ids[0] for s in range(40)}
    assert found <= {0, 3}

"""Logits to ids: against a slow wording of the rules, within a form, by guesses ahead."""

import math
import random

import numpy as np
import pytest
from fakes import in_form, toy_form, toy_vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import entr, log_softmax
from speech import recording

from streamer.core.decoding.plan import Signal, accept
from streamer.core.rules.settings import Rules, Sampling, constrain, stop
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.decoding import Decoder, choose, entropy_of, log_probs_of, ruled
from streamer.model.listener import hear_parts
from streamer.model.scheduler import drive
from streamer.model.thinker import form_of, load

TOKENS = [
    *("音", "色", "中", "，", "慢", "。", "、", "，请", "语速", "a", "\n", "Human", "微"),
    "音色",
]
DATA = [*(t.encode() for t in TOKENS), b"\xe9\xbe", b"\x98", b"\x99", b"<eos>"]
EOS = len(DATA) - 1
VOCABULARY = Vocabulary(DATA, [EOS], [EOS], len(DATA) + 2)
V = VOCABULARY.num_ids
GREEDY = Sampling()


def logits_of(seed, rows):
    return np.random.default_rng(seed).standard_normal((rows, V), np.float32) * 4


answers = st.lists(st.integers(0, EOS - 1), max_size=24)
most = {"ngram": 3, "comma_gap": 4, "end_gap": 8, "min_new_tokens": 16}
drawn = {name: st.integers(0, num) for name, num in most.items()}
drawn |= dict.fromkeys(("adjacency", "loop_local", "clean"), st.booleans())
settings_of_rules = st.builds(Rules, repetition_penalty=st.sampled_from([1.0, 1.22, 2.0]), **drawn)


def by_hand(logits, constraint, rules):
    """One row in Python's words, tier by tier."""
    scores = [float(np.float32(x)) for x in logits]
    penalty = rules.repetition_penalty
    for i in constraint.penalised:
        scores[i] = scores[i] / penalty if scores[i] > 0 else scores[i] * penalty
    for i in constraint.lowered:
        scores[i] -= 8.0
    tiers = [constraint.commas, constraint.adjacency, constraint.ngram]
    while True:
        banned = {int(i) for ids in (constraint.never, *tiers) for i in ids}
        if rules.clean:
            banned |= set(np.flatnonzero(VOCABULARY.never).tolist())
        result = [-math.inf if i in banned else x for i, x in enumerate(scores)]
        if max(result) > -math.inf:
            return result
        if not tiers:
            result[VOCABULARY.fallback] = 0.0
            return result
        tiers.pop()


@given(answers, st.integers(0, 2**32), settings_of_rules)
def test_scores_equal_those_by_hand(answer, seed, rules):
    [logits] = logits_of(seed, 1)
    before = logits.copy()
    constraint = constrain(VOCABULARY, rules, answer)
    found = ruled(logits, constraint, VOCABULARY, rules)
    assert np.array_equal(logits, before), "the raw logits stay"
    wanted = by_hand(logits.tolist(), constraint, rules)
    np.testing.assert_allclose(found, np.array(wanted, dtype=np.float32), rtol=1e-6)


@given(st.integers(0, 2**32), st.integers(1, 4), st.floats(0.01, 30))
def test_signals_come_from_the_raw_softmax(seed, rows, scale):
    logits = logits_of(seed, rows) * scale
    log_p = log_softmax(logits.astype(float), -1)
    p = np.exp(log_p)
    ids = [(seed + 5 * row) % V for row in range(rows)]
    wanted = log_p[np.arange(rows), ids]
    assert log_probs_of(logits, ids) == pytest.approx(wanted, rel=1e-5, abs=2e-5)
    for row in range(rows):
        assert entropy_of(logits[row]) == pytest.approx(float(entr(p[row]).sum()), abs=2e-5)


def readable(vocabulary, rules, said, logits, sampling):
    token = choose(logits, said, vocabulary, rules, sampling)
    return token, Signal(entropy_of(logits), *log_probs_of(logits[None], [token]))


@settings(max_examples=60)
@given(st.data(), st.sampled_from([GREEDY, Sampling(0.9, 0.8, 4)]))
def test_a_draft_is_judged_at_once_as_id_by_id(data, sampling):
    """After other answers in between, too: up to the first id that differs."""
    vocabulary, rules = VOCABULARY, data.draw(settings_of_rules)
    seed = data.draw(st.integers(0, 2**32))
    noise = np.random.default_rng(seed).standard_normal((12, vocabulary.num_ids), np.float32) * 4
    sampler, said = Decoder(None, vocabulary, rules, sampling), list[int]()
    for row in range(12):
        token, signal = readable(vocabulary, rules, said, noise[row], sampling)
        assert sampler.judge(noise[row : row + 1], said) == ([token], [signal])
        said.append(token)
    k = data.draw(st.integers(0, 11))
    ids = st.integers(0, vocabulary.num_ids - 1)
    draft = [token if data.draw(st.booleans()) else data.draw(ids) for token in said[11 - k : 11]]
    other, rows = said[: 11 - k] + draft, noise[11 - k :]
    wanted = [
        readable(vocabulary, rules, other[: 11 - k + i], rows[i], sampling) for i in range(k + 1)
    ]
    chosen, signals = sampler.judge(rows, other)
    found = accept(draft, chosen)
    assert found == accept(draft, [token for token, _ in wanted])
    assert signals == [signal for _, signal in wanted[: 1 + found[0]]]


TOY = toy_vocabulary()
FORM = toy_form(TOY)
EITHER = st.integers(-1023, 0).flatmap(lambda w: st.permutations([0, w]).map(tuple))
TOY_WEIGHTS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("rate", "pitch", "loudness"), EITHER)
)


def form_signal(row, form, answer, token):
    """Entropy over the allowed ids with biases; the id's log of the raw softmax."""
    state = form.after(answer)
    scores = row[form.allowed(state)].astype(float)
    if form.biases(state) is not None:
        scores = scores + form.biases(state)
    (log_prob,) = log_probs_of(row[None], [token])
    if len(scores) == 1:
        return 0, log_prob
    chances = np.exp(scores - np.logaddexp.reduce(scores))
    return -sum(p * math.log(p) for p in chances if p > 0), log_prob


@settings(max_examples=60)
@given(
    st.integers(0, 2**32),
    TOY_WEIGHTS,
    st.sampled_from([GREEDY, Sampling(1.0, 1.0, 3), Sampling(0.7, 0.6, 8)]),
)
def test_within_a_form_the_choice_is_the_best_allowed_id(seed, weights, sampling):
    """Id by id against plain words; then the same ids are judged as a draft: all are accepted."""
    form = FORM.weighted(weights)
    noise = np.random.default_rng(seed).standard_normal((40, TOY.num_ids), np.float32) * 3
    rules = Rules().saying("rate,pitch,loudness")
    sampler, answer = Decoder(None, TOY, rules, sampling, form), []
    for row in noise:
        [token], [signal] = sampler.judge(row[None], answer)
        assert token == in_form(row, form, answer, sampling)
        assert signal == pytest.approx(form_signal(row, form, answer, token))
        answer.append(token)
        if stop(TOY, rules, answer[:-1], token):
            break
    assert form.is_whole(TOY.text_of(answer))
    k = len(answer) - 1
    judged, signals = Decoder(None, TOY, rules, sampling, form).judge(noise[: k + 1], answer[:k])
    assert judged == answer
    assert len(signals) == len(answer)


def test_an_answer_that_left_the_form_goes_on_by_the_rules():
    noise = np.random.default_rng(0).standard_normal((1, TOY.num_ids), np.float32) * 3
    answer = [TOY.texts.index(word) for word in ("语速", "语速", "快")]
    token, signal = readable(TOY, Rules(), answer, noise[0], GREEDY)
    assert Decoder(None, TOY, Rules(), GREEDY, FORM).judge(noise, answer) == ([token], [signal])


@pytest.fixture(scope="module", params=["edge", "cloud"])
def thinker(request):
    return load("embedded", request.param)


@pytest.mark.parametrize("language", ["zh", "en"])
def test_guesses_change_nothing_whatever_is_asked_for(thinker, language):
    """Any attributes, weights, length, draw and length of a draft; and they save steps. Whatever
    chance draws, no attribute is missing or stands twice, and no phrase is a mixture."""
    chance = random.Random(language)
    names, num_steps = list(thinker.card.attributes), [0, 0, 0]
    for (listener,), _ in hear_parts([thinker], [recording(0)], language=language):
        for seed in range(12):
            said = ",".join(chance.sample(names, chance.randint(1, 7)))
            rules = Rules(language=language, max_new_tokens=chance.randint(2, 60)).saying(said)
            sampling = Sampling(chance.choice([0.0, 0.7, 2.0]), chance.choice([0.5, 1.0]), seed)
            weights = {
                name: [chance.randint(-99, 0) for _ in levels]
                for name, levels in thinker.card.attributes.items()
                if chance.random() < 0.7
            }
            found = []
            for n, most in ((1, 0), (chance.randint(2, 40), 0), (1, chance.randint(2, 40))):
                listener.sequence.replace_tail(listener.sequence.answer_start)
                drafter = Decoder.of(listener, rules, sampling, weights)
                found.append(drafted(drafter, n, rules, most))
            assert found[0][:2] == found[1][:2] == found[2][:2], (rules, sampling, weights)
            text = thinker.vocabulary.text_of(found[0][0])
            form = form_of(thinker, rules)
            assert form.is_whole(text) or len(found[0][0]) == rules.max_new_tokens, text
            num_steps = [num + each[2] for num, each in zip(num_steps, found, strict=True)]
    assert max(num_steps[1:]) < 0.8 * num_steps[0]


def drafted(drafter, n, rules, most=0):
    """A sentence, `n` to `most` ids at a time, and how many steps it took."""
    ids, signals = [], []
    num_steps, vocabulary = 0, drafter.listener.thinker.vocabulary
    while not ids or stop(vocabulary, rules, ids[:-1], ids[-1]) is None:
        found, told, num = drive(drafter.listener.engine, counted(drafter.draft(n, most)))
        ids, signals, num_steps = ids + found, signals + told, num_steps + num
    return ids, signals, num_steps


def counted(steps):
    """The same steps, and their number."""
    num = 0
    try:
        wanted = next(steps)
        while True:
            num += 1
            wanted = steps.send((yield wanted))
    except StopIteration as over:
        return *over.value, num

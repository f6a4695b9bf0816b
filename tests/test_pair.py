"""The shipped pair on real speech: exact == cloud, cuts change nothing, sentences hold."""

import itertools

import numpy as np
import pytest
from answers import answer
from speech import recording, speech
from stock import generated

from bench.sentence_quality import measure
from streamer.core.attributes import parse
from streamer.core.decoding.plan import Plan
from streamer.core.rules.settings import Rules, Sampling
from streamer.model.engines.load import load_stock
from streamer.model.thinker import check_pair, load


@pytest.fixture(scope="module")
def pair():
    edge, cloud = load("embedded", "edge"), load("embedded", "cloud")
    check_pair(edge, cloud)
    return edge, cloud


def described(*arguments, **more):
    """(ids, text, reason, the Description with its counts) of one turn."""
    found = answer(*arguments, **more)
    return list(found.ids), found.text, found.stop_reason, found


class Hostile:
    """Drafts ids at random in place of what the edge chose, on the same KV slot."""

    def __init__(self, drafter, seed):
        self._drafter, self._chance = drafter, np.random.default_rng(seed)

    def draft(self, n, most=0):
        ids, signals = yield from self._drafter.draft(n)
        sequence = self._drafter.listener.sequence
        wrong = [int(self._chance.integers(900))]
        sequence.replace_tail(len(sequence) - len(ids), wrong)
        return wrong, signals[:1]


RULES = (Rules(), Rules.off(), Rules(min_new_tokens=4, ngram=2))
RULES += (Rules(repetition_penalty=1.5, comma_gap=6),)
CHANCE = (Sampling(), Sampling(temperature=1.0, seed=1), Sampling(0.7, top_p=0.9, seed=2))


@pytest.mark.parametrize(
    ("rules", "sampling"), list(itertools.product(range(len(RULES)), range(len(CHANCE))))
)
def test_exact_equals_cloud(pair, rules, sampling):
    """Invariant 4: edge or hostile drafts, k 1 to 9, all rules and chances."""
    edge, cloud = pair
    rule, chance, which = RULES[rules], CHANCE[sampling], rules + sampling
    samples = recording(which)
    wanted, _, why, _ = described(None, cloud, Plan(mode="cloud", rules=rule), chance, samples)
    for k, hostile in ((1, False), (4, False), (9, which % 2 > 0), (3, True)):
        before = (lambda drafter, s=k: Hostile(drafter, s)) if hostile else None
        got, _, reason, counts = described(
            edge, cloud, Plan(mode="exact", k=k, rules=rule), chance, samples, before=before
        )
        assert (got, reason) == (wanted, why), (k, hostile, which)
        assert counts.n_accepted <= counts.n_uploaded == counts.n_drafted


def test_sentences_hold_at_every_length(pair):
    """One well-formed sentence with all attributes; exact is cloud there, too."""
    for seconds in (3, 10, 30, 60):
        samples = speech(seconds, seconds)
        modes = (Plan(mode="exact"), Plan(mode="cloud"))
        exact, cloud = (described(*pair, plan, Sampling(), samples)[0] for plan in modes)
        assert exact == cloud
        ids, text, reason, counts = described(*pair, Plan(mode="gated"), Sampling(), samples)
        found = measure(pair[0].vocabulary, ids)
        assert (reason, found.one_sentence, found.adjacent_repeats) == ("sentence", True, 0), text
        assert 0.10 <= found.density <= 0.25, text
        assert None not in parse(text, pair[0].card.attributes).values(), text
        assert counts.n_tokens == len(ids) >= 16


@pytest.mark.parametrize("mode", ["edge", "cloud"])
@pytest.mark.parametrize("seconds", [3, 30])
def test_our_kernels_say_what_transformers_says(pair, mode, seconds):
    thinker, samples = pair[mode == "cloud"], speech(seconds, 1)
    rules, sampling = Rules(form=""), Sampling()
    ours = described(*pair, Plan(mode=mode, rules=rules), sampling, samples)[0]
    theirs = generated(load_stock(thinker.directory), thinker, samples, rules, sampling)
    assert ours == theirs
    assert len(ours) >= 16

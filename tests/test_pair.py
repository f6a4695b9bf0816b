"""The shipped pair on real speech: exact == cloud, sentences hold; each bundled sample is spoken as
its name says, whatever else is in the recording.
"""

import itertools

import numpy as np
import pytest
import soundfile
from answers import answer, generated
from places import ROOT
from speech import recording, speech

from bench.sentence_quality import measure
from streamer import Describer
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


SETTINGS = [
    (Rules(form=""), Sampling()),
    (Rules.off(max_new_tokens=40), Sampling()),
    (Rules(form=""), Sampling(temperature=1.0, seed=5)),
    (Rules(form="", ngram=2, min_new_tokens=4), Sampling(temperature=0.8, top_p=0.9, seed=6)),
]


@pytest.mark.parametrize("mode", ["edge", "cloud"])
@pytest.mark.parametrize("setting", range(len(SETTINGS)))
def test_our_kernels_say_what_transformers_says(pair, mode, setting):
    """By generate(), with the rules as its processors."""
    (rules, sampling), samples = SETTINGS[setting], speech((3, 30)[setting == 0], 1)
    thinker = pair[mode == "cloud"]
    ours, _, reason, _ = described(*pair, Plan(mode=mode, rules=rules), sampling, samples)
    theirs = generated(load_stock(thinker.directory), thinker, samples, rules, sampling)
    # generate() keeps the id that stopped it
    assert ours == (theirs[:-1] if reason in ("eos", "loop") else theirs)
    assert len(ours) >= 16


# attribute -> the levels that the name allows, lowest 0
NAMES = {
    "fast_loud": {"rate": (3, 4), "loudness": (3,)},
    "pauses": {"pauses": (2,)},
    "plain": {"rate": (1, 2, 3), "loudness": (2,), "pauses": (0,)},
    "slow_soft": {"rate": (0, 1), "loudness": (0, 1)},
}
SILENCE = np.zeros(5 * 16_000, np.float32)
ROOM = np.random.default_rng(0).normal(0, 1e-3, 5 * 16_000).astype(np.float32)
CHANGES = {
    "silence before": lambda x: np.concatenate([SILENCE, x]),
    "silence after": lambda x: np.concatenate([x, SILENCE, SILENCE]),
    "a room's noise before": lambda x: np.concatenate([ROOM, x]),
    "a room's noise after": lambda x: np.concatenate([x, ROOM]),
    "an offset": lambda x: x + np.float32(0.03),
    "a dead channel with an offset": lambda x: np.stack([0 * x + np.float32(0.1), x], 1),
    "the centre of six channels": lambda x: np.stack([x if i == 2 else 0 * x for i in range(6)], 1),
    "channels out of phase": lambda x: np.stack([x, -x, 0 * x, 0 * x], 1),
}


@pytest.mark.parametrize("mode", ["edge", "exact"])
async def test_the_sentence_of_a_sample_agrees_with_its_name(mode):
    """At most 0.05 of the seven levels change with the recording: one may lie beside an edge."""
    assert {path.stem for path in (ROOT / "samples").glob("*.wav")} == set(NAMES)
    changed = []
    async with Describer.open(mode=mode) as describer:
        for name, levels in NAMES.items():
            sound, rate = soundfile.read(ROOT / "samples" / f"{name}.wav", dtype="float32")
            wanted = (await describer.describe((sound, rate))).attributes
            assert all(wanted[each] in allowed for each, allowed in levels.items()), name
            for change, of in CHANGES.items() if mode == "edge" else ():
                found = (await describer.describe((of(sound), rate))).attributes
                changed += [(name, change, a) for a in wanted if found[a] != wanted[a]]
    assert len(changed) <= len(NAMES) * len(CHANGES) * 0.05, changed

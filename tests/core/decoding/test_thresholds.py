"""A gate's thresholds: the promise of each bound, paths at every threshold, and certificates."""

import math

import numpy as np
import pytest
from fakes import no_rules
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.core import calibration
from streamer.core.decoding import plan
from streamer.core.decoding.machine import Speculator
from streamer.core.decoding.sequence import Sequence
from streamer.core.rules.settings import stop
from streamer.core.text.vocabulary import Vocabulary

GRID = np.linspace(0, 1, 41)


def clips(chance, n, blocks=6):
    """[n, 41] losses of clips that differ in how hard they are, so their blocks are dependent."""
    hard, doubts = chance.beta(1, 3, (n, 1)), chance.random((n, blocks))
    changed = chance.random((n, blocks)) < hard * doubts
    return (changed[:, :, None] & (doubts[:, :, None] <= GRID)).mean(axis=1)


def realised(risk, confidence, n, trials, seed):
    """([trials] loss of a fresh clip, [trials] mean loss) at the thresholds of calibrations."""
    chance = np.random.default_rng(seed)
    truth = clips(np.random.default_rng(0), 50_000).mean(axis=0)
    fresh, means = [], []
    for _ in range(trials):
        index = calibration.safe_index(clips(chance, n), risk, confidence)
        fresh.append(0.0 if index is None else clips(chance, 1)[0, index])
        means.append(0.0 if index is None else truth[index])
    return np.array(fresh), np.array(means)


@pytest.mark.parametrize(("risk", "n"), [(0.05, 30), (0.03, 100), (0.1, 15)])
def test_the_next_clips_expected_loss_is_within_the_risk(risk, n):
    fresh, means = realised(risk, 0.0, n, trials=800, seed=n)
    assert fresh.mean() <= risk + 3 * fresh.std() / math.sqrt(len(fresh))
    assert means.mean() <= risk, "the same with the clip's own chance taken out"
    assert means.mean() >= risk - 2.5 / (n + 1), "the correction costs about 1 / (n + 1)"


def test_with_confidence_few_calibrations_are_above_the_risk():
    confidence, trials = 0.8, 250
    _, means = realised(0.08, confidence, 120, trials, seed=7)
    above = (means > 0.08).mean()
    assert above <= 1 - confidence + 3 * math.sqrt(0.2 * 0.8 / trials)
    _, plain = realised(0.08, 0.0, 120, trials, seed=7)
    assert (plain > 0.08).mean() > above, "which the expectation alone does not give"
    assert means.max() > 0.02, "the bound is not empty"


def test_num_needed_is_what_is_needed():
    assert calibration.num_needed(0.02) == 49
    assert calibration.num_needed(0.5) == 1
    for risk in (0.01, 0.04, 0.2):
        for confidence in (0.0, 0.9):
            n = calibration.num_needed(risk, confidence)
            assert calibration.safe_index(np.zeros((n, 1)), risk, confidence) == 0
            if n < 400:  # beyond, it is found in steps of half a percent
                assert (
                    n == 1 or calibration.safe_index(np.zeros((n - 1, 1)), risk, confidence) is None
                )
    assert calibration.num_needed(0.04, 0.9) > calibration.num_needed(0.04)


def test_no_threshold_is_better_than_a_broken_promise():
    assert calibration.safe_index(np.zeros((200, 3)), 0.05) == 2
    assert calibration.safe_index(np.repeat([[0.0, 0.04, 0.06]], 500, axis=0), 0.05) == 1


WORDS = ["音", "色", "中", "，", "慢", "。", "高", "低"]
OF_WORDS = Vocabulary([*(t.encode() for t in WORDS), b"<eos>"], [8], [8])
RULES = no_rules(min_new_tokens=4, max_new_tokens=24, loop_global=True)


class Toy:
    """A pair whose every choice is a hash of the seed and the prefix."""

    def __init__(self, seed, k, agreement):
        self.seed, self.k, self.agreement = seed, k, agreement

    def _hash(self, answer, what):
        return hash((self.seed, what, answer)) & 0xFFFF

    def cloud(self, answer):
        return self._hash(answer, 1) % 9

    def edge(self, answer):
        agrees = self._hash(answer, 2) % 10 < self.agreement
        number = self.cloud(answer) if agrees else self._hash(answer, 3) % 9
        return number, plan.Signal(self._hash(answer, 4) % 7 / 2, -self._hash(answer, 6) % 5 / 1.0)

    def block(self, prefix):
        answer, ids, signals = list(prefix), [], []
        while len(ids) < self.k:
            number, signal = self.edge(tuple(answer))
            ids, signals = [*ids, number], [*signals, signal]
            if stop(OF_WORDS, RULES, answer, number) is not None:
                break
            answer.append(number)
        return ids, signals

    def verdict(self, prefix, draft):
        n = 0
        while n < len(draft) and draft[n] == self.cloud((*prefix, *draft[:n])):
            n += 1
        return n, self.cloud((*prefix, *draft[:n]))

    def block_at(self, prefix):
        ids, signals = self.block(prefix)
        is_forced = plan.fires(math.inf, OF_WORDS, prefix, ids, signals)
        doubt = math.inf if is_forced else max(signal.entropy for signal in signals)
        return calibration.Block(tuple(ids), doubt, *self.verdict(prefix, ids))


def really(toy, threshold):
    """(answer, [(block, uploaded)], uploads) of the state machine in gated mode."""
    sequence = Sequence([0])
    sequence.start_answer()
    spec = Speculator(plan.Plan("gated", toy.k, threshold, RULES), OF_WORDS, sequence)
    blocks = []
    while True:
        answer = tuple(sequence.answer[: sequence.n_committed])
        match spec.next(0.0):
            case plan.DraftMore(n):
                ids, signals = toy.block(answer)
                assert len(ids) <= n
                sequence.extend(ids)
                spec.drafted(signals)
                blocks.append((tuple(ids), False))
            case plan.VerifyRequest() as request:
                blocks[-1] = blocks[-1][0], True
                verdict = toy.verdict(answer, list(request.draft))
                spec.replied(plan.Verdict(request.number, *verdict))
            case plan.Done():
                return answer, blocks, spec.counts.cloud_calls


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(3, 9))
def test_every_path_is_what_gated_mode_does(seed, k, agreement):
    toy = Toy(seed, k, agreement)
    paths = calibration.paths_of(toy.block_at, OF_WORDS, RULES)
    leasts = [path.least for path in paths]
    assert leasts == sorted(set(leasts), reverse=True)
    assert leasts[-1] == -math.inf
    highest = math.inf
    for path in paths:
        # both ends of its range
        for limit in {max(path.least, -9.0), min(math.nextafter(highest, -math.inf), 99.0)}:
            answer, blocks, calls = really(toy, limit)
            assert answer == path.answer
            assert blocks == [(b.ids, b.doubt > path.least) for b in path.blocks]
            assert calls == len(path.uploaded)
        highest = path.least


def turn(*blocks):
    """A turn of independent blocks (doubt, changed), at every threshold, falling."""
    made = [calibration.Block((1, 2), doubt, 1 if changed else 2, 3) for doubt, changed in blocks]
    levels = sorted({doubt for doubt, _ in blocks}, reverse=True)
    return [calibration.Path(least, (), tuple(made)) for least in [*levels, -math.inf]]


def test_a_clips_loss_is_over_all_blocks_of_all_its_turns():
    long = [turn((0.1, False), (0.3, True)), turn((0.2, True), (0.9, True), (0.4, False))]
    losses = calibration.losses_of([long], np.array([0.05, 0.2, 0.35, 1.0]))
    np.testing.assert_allclose(losses, [[0.0, 0.2, 0.4, 0.6]])
    assert calibration.certify([long], "fluent", 4, 0.65, 0.0).skipped == pytest.approx(0.4)
    assert len(calibration.at(long[0], 0.25).uploaded) == 1

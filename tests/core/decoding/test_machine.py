"""The state machine on given blocks and verdicts, the gate, the owner of length; a gate's thresholds:
the promise of each bound, paths at every threshold, and certificates.
"""

import math
from dataclasses import astuple

import numpy as np
import pytest
from fakes import no_rules, toy_vocabulary
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamer.core import calibration
from streamer.core.decoding import plan
from streamer.core.decoding.machine import Speculator
from streamer.core.decoding.sequence import Sequence
from streamer.core.rules.settings import Rules, stop
from streamer.core.text.vocabulary import Vocabulary

VOCABULARY = toy_vocabulary()
RELAXED = no_rules(max_new_tokens=30)
CALM = plan.Signal(0.0, -0.1)


def started():
    sequence = Sequence((3, 7, 1))
    sequence.start_answer()
    return sequence


@pytest.mark.parametrize("mode", ["exact", "gated"])
def test_a_verdict_that_does_not_come_ends_the_answer_or_is_done_without(mode):
    how = plan.Plan(mode=mode, k=1, threshold=0.0, rules=RELAXED, verify_budget_s=2.0)
    goes_on = mode == "gated"
    machine = Speculator(how, VOCABULARY, started())
    assert machine.next(0.0) == plan.DraftMore(1)
    machine.sequence.extend([4])
    machine.drafted([plan.Signal(1.0, -0.1)])
    asked = machine.next(1.0)
    assert isinstance(asked, plan.VerifyRequest)
    machine.replied(plan.Refusal(asked.number, "prefix"))
    assert isinstance(machine.next(1.2), plan.VerifyRequest)
    assert machine.next(1.5) == plan.Wait(3.2)
    assert machine.next(3.2) == (plan.Emit((4,), False, (-0.1,)) if goes_on else plan.Done("error"))
    assert machine.sequence.answer == [4] * goes_on
    assert (machine.num_failures, machine.counts.blocks_unverified) == (1, goes_on)


def test_time_with_nothing_to_do_is_counted_and_no_other():
    how = plan.Plan("exact", 2, rules=no_rules())
    machine = Speculator(how, VOCABULARY, started(), plan.Pace(1e-3))
    assert machine.next(1.0) == plan.DraftMore(2)
    machine.sequence.extend([0, 1])
    machine.drafted([CALM] * 2, 2.0)
    assert isinstance(machine.next(2.0), plan.VerifyRequest)
    assert isinstance(machine.next(2.5), plan.Wait)
    assert isinstance(machine.next(2.75), plan.Wait)
    machine.replied(plan.Verdict(1, 2, 3))
    machine.next(3.0)
    assert machine.counts.stall_ms == 500
    assert machine.pace.draft_s == 1e-3, "a first draft feeds the prompt's end, too"
    assert machine.next(4.0) == plan.DraftMore(2)
    machine.sequence.extend([0, 1])
    machine.drafted([CALM] * 2, 4.5)
    assert machine.pace.draft_s == pytest.approx(0.7 * 1e-3 + 0.3 * 0.25)


def test_drafts_after_the_first_one_grow_where_they_may():
    """The answer's first id is asked for alone, and a draft of k after it."""
    for grows, size in ((False, 2), (True, 8)):
        how = plan.Plan("exact", 2, rules=no_rules(), ahead=48, credits=2, grows=grows)
        machine = Speculator(how, VOCABULARY, started(), plan.Pace(plan.AT_ONCE_S / 8.5))
        sizes = []
        while len(sizes) < 3:
            match machine.next(0.0):
                case plan.DraftMore(n):
                    ids = [0, 1, 3, 5, 6, 2, 7, 4][:n]
                    machine.sequence.extend(ids)
                    machine.drafted([CALM] * n)
                case plan.VerifyRequest() as request:
                    sizes.append(len(request.draft))
                    if not request.draft:
                        machine.replied(plan.Verdict(request.number, 0, 0))
        assert sizes == [0, 2, size]


EOS = min(VOCABULARY.eos)


@pytest.mark.parametrize(
    ("draft", "ahead", "verdict", "wasted"),
    [
        ([4], [5, 6], (1, 5), (0, 0)),  # the guess is the target's next id
        ([4], [5, 6], (1, 3), (0, 2)),
        ([4, 5], [6], (1, 3), (1, 1)),
        ([4, 5], [], (1, EOS), (1, 0)),
        ([4, EOS], [], (2, 3), (0, 0)),  # it ends the answer, and is not shown
    ],
)
def test_drafted_ids_that_do_not_stand_are_wasted(draft, ahead, verdict, wasted):
    how = plan.Plan("gated", len(draft), threshold=-1.0, rules=RELAXED, ahead=len(ahead))
    machine = Speculator(how, VOCABULARY, started())
    for ids in filter(None, (draft, ahead)):
        assert machine.next(0.0) == plan.DraftMore(len(ids))
        machine.sequence.extend(ids)
        machine.drafted([CALM] * len(ids))
        machine.next(0.0)
    machine.replied(plan.Verdict(1, *verdict))
    counts = machine.counts
    assert (counts.n_wasted, counts.n_ahead_wasted, counts.blocks) == (*wasted, 1)


def test_a_block_may_be_refused_three_times():
    how = plan.Plan("gated", 1, threshold=-1.0, rules=RELAXED)
    machine = Speculator(how, VOCABULARY, started())
    for times in (3, 3, 4):
        assert machine.next(0.0) == plan.DraftMore(1)
        machine.sequence.extend([4])
        machine.drafted([CALM])
        for _ in range(times):
            machine.replied(plan.Refusal(machine.next(0.0).number, "prefix"))
        if times == 3:
            machine.replied(plan.Verdict(machine.next(0.0).number, 1, 3))
        shown = plan.Emit((4, 3), True) if times == 3 else plan.Emit((4,), False, (-0.1,))
        assert machine.next(0.0) == shown
    assert machine.num_failures == 1


def test_what_is_drafted_in_one_step_takes_8_ms_by_a_moving_average():
    pace = plan.Pace()
    assert pace.num_at_once == 4
    pace.drafted(4, 0.02)
    assert (pace.draft_s, pace.num_at_once) == (pytest.approx(0.0029), 2)
    assert (plan.Pace(1.0).num_at_once, plan.Pace(1e-9).num_at_once) == (1, 32)
    alone = Speculator(plan.Plan("edge", k=1), VOCABULARY, started(), pace)
    assert alone.next(0.0) == plan.DraftMore(2)


def test_a_plan_is_of_the_fluent_preset_and_counts_begin_at_0():
    assert plan.PRESETS == {"fluent": (5.75, 4), "quality": (3.25, 6)}
    assert plan.Plan() == plan.Plan("gated", 4, 5.75, Rules(), 5.0, ahead=0, credits=1, grows=False)
    assert not any(astuple(plan.Counts()))
    assert plan.Counts().verified_share == 0.0
    assert plan.Counts(n_verified=1, n_committed=4).verified_share == 0.25


TOKENS = ["音", "色", "中", "，", "慢", "。", "、", "，："]
SIGNS = Vocabulary([*(t.encode() for t in TOKENS), b"<eos>"], [8], [8])
ANSWER = (0, 1, 2, 4, 0)


@pytest.mark.parametrize(
    ("is_wanted", "block", "answer"),
    [
        (False, [0, 1, 2, 3], ()),
        (False, [], ()),
        (True, [0, 3, 6], ()),
        (True, [0, 1, 7], ()),  # an id of two signs counts twice
        (False, [0, 1, 2, 3, 3], ()),  # exactly 0.4
        (False, [5], ()),  # the sentence's end alone is no flood
        (True, [1, 2], ANSWER),  # it shows across blocks only
        (False, [1, 2], ()),
    ],
)
def test_what_the_text_of_a_block_says(is_wanted, block, answer):
    signals = [plan.Signal(0.1, -0.05)] * len(block)
    assert plan.fires(2.0, SIGNS, answer, block, signals) is is_wanted


@given(st.lists(st.floats(0, 9), min_size=1, max_size=6), st.floats(0, 9))
def test_a_gate_fires_iff_the_entropy_of_an_id_is_above_its_threshold(numbers, limit):
    """A threshold that was certified on a block's doubt then means the same at run time."""
    ids, signals = [0, 1, 2, 4, 0, 5][: len(numbers)], [plan.Signal(n, -1.0) for n in numbers]
    assert plan.fires(limit, SIGNS, [], ids, signals) == (max(numbers) > limit)


def test_accept_is_the_longest_equal_prefix():
    assert plan.accept([4, 5, 6], [4, 5, 6, 7]) == (3, 7)
    assert plan.accept([4, 5, 6], [4, 9, 6, 7]) == (1, 9)
    assert plan.accept([], [3]) == (0, 3)
    with pytest.raises(ValueError, match="need 2"):
        plan.accept([1], [1])


def test_the_hash_of_ids_is_part_of_the_wire_format():
    assert plan.prefix_hash([1, 70_000]).hex() == "9ac73599afce2c17"


KINDS = st.sampled_from(["extend", "feed", "cut", "commit"])
OPERATIONS = st.lists(st.tuples(KINDS, st.integers(0, 6), st.integers(0, 6)), max_size=60)


@example([("extend", 2, 0), ("feed", 2, 0), ("cut", 2, 0)])
@given(OPERATIONS)
def test_any_operations_keep_ids_and_cache_true(operations):
    """The cache never holds an id that is not there, and one id at least stays to be fed."""
    sequence, model = Sequence([1]), [1]
    sequence.start_answer()
    committed, cached = 0, model[:0]
    for i, (kind, a, b) in enumerate(operations):
        if kind == "extend":
            new = [100 * i + j for j in range(a)]
            sequence.extend(new)
            model += new
        elif kind == "feed":
            n = min(a, len(model) - sequence.n_cached - 1)
            cached = cached[: sequence.n_cached] + sequence.pending[: max(0, n)]
            sequence.mark_fed(max(0, n))
        elif kind == "cut":
            n = max(1 + committed, len(model) - a)
            new = [-100 * i - j for j in range(b)]
            sequence.replace_tail(n, new)
            model[n:] = new
        else:
            n = min(a, len(model) - 1 - committed)
            sequence.commit(n)
            committed += n
        assert list(sequence.ids) == model
        assert sequence.n_cached <= len(model) - 1
        assert cached[: sequence.n_cached] == model[: sequence.n_cached], "the slot's ids"
        assert sequence.pending == model[sequence.n_cached :]
        assert sequence.n_committed == committed


def test_all_ids_may_be_cached_until_the_answer_begins():
    sequence = Sequence([1, 2, 3], 3)
    sequence.replace_tail(3)
    assert sequence.n_cached == 3
    sequence.replace_tail(2, [7, 8])
    sequence.mark_fed(2)
    assert (sequence.ids, sequence.n_cached) == ((1, 2, 7, 8), 4)
    sequence.start_answer()
    assert sequence.pending == [8]
    with pytest.raises(RuntimeError, match="not started"):
        Sequence([1]).answer  # noqa: B018


IMPOSSIBLE = [
    *(lambda _, n=n: Sequence([1], n) for n in (-1, 2)),
    lambda _: Sequence().start_answer(),
    *(lambda sequence, n=n: sequence.mark_fed(n) for n in (-1, 7)),
    *(lambda sequence, n=n: sequence.replace_tail(n) for n in (4, 7)),
    *(lambda sequence, n=n: sequence.commit(n) for n in (-1, 2)),
]


@pytest.mark.parametrize("do", IMPOSSIBLE)
def test_lengths_that_cannot_be_are_refused_and_a_committed_id_is_never_cut(do):
    sequence = started()
    sequence.extend([5, 6, 7])
    sequence.commit(2)
    with pytest.raises(ValueError, match=r"cannot|outside|needs"):
        do(sequence)
    sequence.replace_tail(5, [8])
    assert (sequence.answer, sequence.n_cached) == ([5, 6, 8], 0)


GRID = np.linspace(0, 1, 41)


def clips(chance, n, blocks=6):
    """[n, 41] losses of clips that differ in how hard they are, so their blocks are dependent."""
    hard = chance.beta(1, 3, (n, 1))
    doubts = chance.random((n, blocks))
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
    error = fresh.std() / math.sqrt(len(fresh))
    assert fresh.mean() <= risk + 3 * error
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

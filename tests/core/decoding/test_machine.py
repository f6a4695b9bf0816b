"""The state machine on given blocks and verdicts, the gate, the owner of length."""

from dataclasses import astuple

import pytest
from fakes import no_rules, toy_vocabulary
from hypothesis import example, given
from hypothesis import strategies as st

from streamer.core.decoding import plan
from streamer.core.decoding.machine import Speculator
from streamer.core.decoding.sequence import Sequence
from streamer.core.rules.settings import Rules
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
                    machine.sequence.extend([0, 1, 3, 5, 6, 2, 7, 4][:n])
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

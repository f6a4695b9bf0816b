"""The state machine on given blocks and verdicts, the gate, the owner of length."""

import pytest
from fakes import toy_vocabulary
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.decoding import plan
from streamer.core.decoding.machine import Speculator
from streamer.core.decoding.sequence import Sequence
from streamer.core.rules.settings import Rules
from streamer.core.text.vocabulary import Vocabulary

VOCABULARY = toy_vocabulary()
RELAXED = Rules.off(max_new_tokens=30)
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
    how = plan.Plan("exact", 2, rules=Rules.off())
    machine = Speculator(how, VOCABULARY, started(), plan.Pace(1e-3))
    assert machine.next(1.0) == plan.DraftMore(2)
    machine.sequence.extend([0, 1])
    machine.drafted([CALM] * 2, 2.0)
    assert isinstance(machine.next(2.0), plan.VerifyRequest)
    assert isinstance(machine.next(2.5), plan.Wait)
    assert isinstance(machine.next(2.75), plan.Wait)
    machine.next(3.0)
    assert machine.counts.stall_ms == 500


def test_drafts_after_the_first_one_grow_where_they_may():
    """The answer's first id is asked for alone, and a draft of k after it."""
    for grows, size in ((False, 2), (True, 8)):
        how = plan.Plan("exact", 2, rules=Rules.off(), ahead=48, credits=2, grows=grows)
        machine = Speculator(how, VOCABULARY, started(), plan.Pace(plan.AT_ONCE_S / 8.5))
        sizes = []
        while len(sizes) < 2:
            match machine.next(0.0):
                case plan.DraftMore(n):
                    ids = [0, 1, 3, 5, 6, 2, 7, 4][:n]
                    machine.sequence.extend(ids)
                    machine.drafted([CALM] * n)
                case plan.VerifyRequest() as request if request.draft:
                    sizes.append(len(request.draft))
                case plan.VerifyRequest() as request:
                    machine.replied(plan.Verdict(request.number, 0, 0))
        assert sizes == [2, size]


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
    assert (
        plan.fires(2.0, SIGNS, answer, block, [plan.Signal(0.1, -0.05)] * len(block)) is is_wanted
    )


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


KINDS = st.sampled_from(["extend", "feed", "cut", "commit"])
OPERATIONS = st.lists(st.tuples(KINDS, st.integers(0, 6), st.integers(0, 6)), max_size=60)


@given(OPERATIONS)
def test_any_operations_keep_ids_and_cache_true(operations):
    """The cache never holds an id that is not there, and one id at least stays to be fed."""
    sequence, model = Sequence([1, 2, 3]), [1, 2, 3]
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
            n = max(3 + committed, len(model) - a)
            new = [-100 * i - j for j in range(b)]
            sequence.replace_tail(n, new)
            model[n:] = new
        else:
            n = min(a, len(model) - 3 - committed)
            sequence.commit(n)
            committed += n
        assert list(sequence.ids) == model
        assert sequence.n_cached <= len(model) - 1
        assert cached[: sequence.n_cached] == model[: sequence.n_cached], (
            "the slot holds what the ids say"
        )
        assert sequence.pending == model[sequence.n_cached :]
        assert sequence.n_committed == committed


def test_a_committed_id_is_never_cut():
    sequence = Sequence([1])
    sequence.start_answer()
    sequence.extend([5, 6, 7])
    sequence.commit(2)
    with pytest.raises(ValueError, match="kept for good"):
        sequence.replace_tail(2)
    sequence.replace_tail(3, [8])
    assert sequence.answer == [5, 6, 8]

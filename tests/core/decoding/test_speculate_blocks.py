"""The state machine on blocks and verdicts that are given: stops, loops, corrections and counts, id by
id."""

import pytest
from fakes import toy_vocabulary

from streamer.core.decoding.gate import Gate, Signal
from streamer.core.decoding.plan import Done, DraftMore, Emit, Plan, Verify, Wait
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.speculate import Speculator
from streamer.core.decoding.verdict import Verdict
from streamer.core.rules.settings import Rules

VOCABULARY = toy_vocabulary()
RELAXED = Rules.off(max_new_tokens=30)
CALM = Signal(0.0, 1.0, 0.0)
STOP = 9
EOS = VOCABULARY.num_ids - 1


def started():
    sequence = Sequence((3, 7, 1))
    sequence.start_answer()
    return sequence


def drive(plan, blocks, verdicts=()):
    """Feed a machine fixed drafts; returns (emitted [(ids, verified)], reason, machine)."""
    machine = Speculator(plan, VOCABULARY, started())
    blocks, verdicts, out = iter(blocks), iter(verdicts), []
    while True:
        match machine.next(0.0):
            case DraftMore():
                ids = next(blocks)
                machine.sequence.extend(ids)
                machine.drafted(ids, [Signal(0.0, 1.0, 0.0)] * len(ids))
            case Verify(request):
                n, token = next(verdicts)
                machine.verdict(Verdict(request.number, n, token))
            case Emit(ids, verified):
                out.append((ids, verified))
            case Done(reason):
                return out, reason, machine


def test_nothing_after_a_stop_inside_a_block_is_kept():
    """Defects 4 and 5: ids behind the stop were kept, and only a block's last id was looked at."""
    plan = Plan(mode="gated", k=5, gate=Gate(entropy=9.0), rules=RELAXED)
    out, reason, machine = drive(plan, [[0, 1, STOP, 3, 4]])
    assert out == [((0, 1, STOP), False)]
    assert reason == "sentence"
    assert machine.sequence.answer == [0, 1, STOP]
    assert machine.counts.n_wasted == 2


def test_ids_drafted_behind_a_stop_are_not_uploaded():
    machine = Speculator(Plan(mode="exact", k=5, rules=RELAXED), VOCABULARY, started())
    machine.next(0.0)
    machine.sequence.extend([0, 1, STOP, 3, 4])
    machine.drafted([0, 1, STOP, 3, 4], [CALM] * 5)
    request = machine.next(0.0).request
    assert request.draft == (0, 1, STOP)
    machine.verdict(Verdict(request.number, 3, 7))
    assert (machine.counts.n_drafted, machine.counts.n_uploaded, machine.counts.n_wasted) == (
        5,
        3,
        2,
    )


def test_the_gate_looks_at_the_blocks_before():
    """A loop that only shows across blocks is suspected; the same ids in other blocks do not
    fire."""
    gate = Gate(entropy=9.0, density=None, loop=True)
    blocks = [[0, 1], [2, 4], [6, 0], [1, 2], [STOP]]
    _, _, machine = drive(Plan(mode="gated", k=2, gate=gate, rules=RELAXED), blocks, [(1, 6)])
    assert machine.counts.cloud_calls == 1
    assert machine.counts.n_uploaded == 2
    blocks[2] = [6, 7]
    _, _, machine = drive(Plan(mode="gated", k=2, gate=gate, rules=RELAXED), blocks)
    assert machine.counts.cloud_calls == 0


def test_an_eos_that_the_target_alone_chose_saves_no_drafted_id():
    """Dropped drafts are wasted, all of them, unless the id that ended the answer was one of
    them."""
    eos_from_target = [(Plan(mode="exact", k=3, rules=RELAXED), [[0, 1, 2]], [(1, EOS)], 2)]
    loop = Plan(mode="exact", k=2, rules=Rules.off(loop_global=True))
    looping = [(0, 1)] * 4
    for plan, blocks, verdicts, wasted in eos_from_target:
        out, reason, machine = drive(plan, blocks, verdicts)
        assert (out, reason) == ([((0,), True)], "eos")
        assert machine.counts.n_wasted == wasted
    _, reason, machine = drive(
        loop, [[5, 6]] * 8, [(0, token) for pair in looping for token in pair]
    )
    assert reason == "loop"
    assert machine.counts.n_wasted == machine.counts.n_drafted == 16


def test_an_eos_ends_the_answer_and_is_not_shown():
    out, reason, machine = drive(Plan(mode="exact", k=4, rules=RELAXED), [[0, 1, EOS]], [(3, 5)])
    assert out == [((0, 1), True)]
    assert reason == "eos"
    assert machine.counts.n_wasted == 0, "an accepted EOS did its work"


def test_a_loop_stops_across_blocks_before_it_is_shown():
    """Fix report 3: the loop is found over several blocks, and the id that closes it is not
    committed."""
    rules = Rules.off(loop_global=True)
    out, reason, _ = drive(
        Plan(mode="gated", k=2, gate=Gate(entropy=9.0, loop=False), rules=rules), [[0, 1]] * 9
    )
    shown = [token for ids, _ in out for token in ids]
    assert reason == "loop"
    assert shown == [0, 1, 0, 1, 0, 1, 0]


def test_a_correction_replaces_the_rest_of_the_block():
    out, _, machine = drive(
        Plan(mode="exact", k=3, rules=RELAXED), [[0, 1, 2], [4, 6, 7]], [(1, 5), (3, STOP)]
    )
    assert out == [((0, 5), True), ((4, 6, 7, STOP), True)]
    counts = machine.counts
    assert (counts.n_drafted, counts.n_uploaded, counts.n_accepted, counts.n_corrected) == (
        6,
        6,
        4,
        1,
    )
    assert (counts.n_wasted, counts.cloud_calls, counts.blocks) == (2, 2, 2)
    assert counts.verified_share == 1.0


def test_the_bonus_is_dropped_when_the_block_itself_stops():
    out, reason, _ = drive(Plan(mode="exact", k=2, rules=RELAXED), [[0, STOP]], [(2, 7)])
    assert (out, reason) == ([((0, STOP), True)], "sentence")


def test_exact_mode_says_error_when_the_verdict_does_not_come():
    machine = Speculator(
        Plan(mode="exact", k=1, rules=RELAXED, verify_budget_s=2.0), VOCABULARY, started()
    )
    assert machine.next(0.0) == DraftMore(1)
    machine.sequence.extend([4])
    machine.drafted([4], [Signal(0.0, 1.0, 0.0)])
    assert isinstance(machine.next(1.0), Verify)
    assert machine.next(1.5) == Wait(3.0)
    assert machine.next(3.0) == Done("error")
    assert machine.sequence.answer == []


def test_a_late_verdict_is_ignored():
    plan = Plan(mode="gated", k=1, gate=Gate(entropy=-1.0), rules=RELAXED, verify_budget_s=1.0)
    machine = Speculator(plan, VOCABULARY, started())
    machine.next(0.0)
    machine.sequence.extend([4])
    machine.drafted([4], [Signal(0.0, 1.0, 0.0)])
    request = machine.next(0.0).request
    assert machine.next(1.0) == Emit((4,), verified=False)
    machine.verdict(Verdict(request.number, 0, 8))
    assert machine.sequence.answer == [4]
    machine.cancel()
    assert machine.next(1.1) == Done("cancelled")


def test_a_verdict_that_cannot_be_is_refused():
    machine = Speculator(Plan(mode="cloud", rules=RELAXED), VOCABULARY, started())
    request = machine.next(0.0).request
    with pytest.raises(ValueError, match="does not fit"):
        machine.verdict(Verdict(request.number, 1, 3))
    with pytest.raises(ValueError, match="does not fit"):
        machine.verdict(Verdict(request.number, 0, VOCABULARY.num_ids))


def test_plans_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="none of"):
        Plan(mode="fast")
    with pytest.raises(ValueError, match="draft length"):
        Plan(k=0)

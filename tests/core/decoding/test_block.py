"""The block in hand is one state: how large it is, and whether it must be verified."""

from __future__ import annotations

from fakes import toy_vocabulary

from streamer.core.decoding.block import Block, Drafting
from streamer.core.decoding.gate import Gate, Signal
from streamer.core.decoding.pace import Pace
from streamer.core.decoding.plan import DraftMore, Emit, Plan, Verify, Wait
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.speculate import Speculator
from streamer.core.decoding.tail import Tail
from streamer.core.decoding.verdict import Verdict
from streamer.core.rules.settings import Rules

VOCABULARY = toy_vocabulary()
CALM, TORN = Signal(0.0, 1.0, -0.1), Signal(3.0, 0.1, -2.0)
GATE = Gate(entropy=None, margin=0.2)


def drafting(plan: Plan, pace: Pace) -> tuple[Drafting, Tail, Sequence]:
    sequence = Sequence((3, 7, 1))
    sequence.start_answer()
    tail = Tail(plan, VOCABULARY, sequence)
    return Drafting(plan, VOCABULARY, sequence, pace, tail), tail, sequence


def put(tail: Tail, sequence: Sequence, ids: list[int], signal: Signal = CALM) -> None:
    sequence.extend(ids)
    tail.extend([signal] * len(ids), len(ids))


def test_a_block_is_judged_once_and_counted_once() -> None:
    """Also where it must wait for a credit, whole and in doubt."""
    plan = Plan("gated", 2, GATE, Rules.off(), ahead=8)
    hand, tail, sequence = drafting(plan, Pace(1e-4))
    put(tail, sequence, [0, 1], TORN)
    assert hand.is_whole
    assert hand.block == Block(2)
    for _ in range(3):
        hand.judge()
        assert hand.block == Block(2, must_be_verified=True)
        assert tail.counts.blocks == 1
    hand.begin()
    assert hand.block == Block(2)


def test_a_block_that_passes_is_judged_once_too() -> None:
    plan = Plan("gated", 2, GATE, Rules.off())
    hand, tail, sequence = drafting(plan, Pace(1e-4))
    put(tail, sequence, [0, 1])
    hand.judge()
    assert hand.block == Block(2)
    assert tail.counts.blocks == 1


def test_a_whole_block_in_doubt_waits_for_a_credit_and_then_goes_out() -> None:
    plan = Plan("gated", 2, GATE, Rules.off(), ahead=8, credits=1)
    machine = Speculator(plan, VOCABULARY, Sequence((3, 7, 1)), Pace(1e-3, 0.1))
    machine.sequence.start_answer()
    for ids in ([0, 1], [2, 4, 6]):
        while not isinstance(action := machine.next(0.0), DraftMore):
            assert isinstance(action, Verify)
            first = action.request
        machine.sequence.extend(ids)
        machine.drafted(ids, [TORN] * len(ids))
    assert isinstance(machine.next(0.0), Wait)
    assert machine.counts.blocks == 2
    machine.verdict(Verdict(first.number, 2, 2))
    assert machine.next(0.1) == Emit((0, 1, 2), verified=True)
    second = machine.next(0.1)
    assert isinstance(second, Verify)
    assert second.request.draft == (4, 6)
    assert machine.counts.blocks == 2, "counted when it was judged"


def test_time_with_nothing_to_do_is_counted_and_no_other() -> None:
    plan = Plan("exact", 2, rules=Rules.off())
    machine = Speculator(plan, VOCABULARY, Sequence((3, 7, 1)), Pace(1e-3, 0.1))
    machine.sequence.start_answer()
    assert machine.next(1.0) == DraftMore(2)
    machine.sequence.extend([0, 1])
    machine.drafted([0, 1], [CALM] * 2, 2.0)
    assert isinstance(machine.next(2.0), Verify)
    assert isinstance(machine.next(2.5), Wait)
    assert isinstance(machine.next(2.75), Wait)
    machine.next(3.0)
    assert machine.counts.stall_ms == 500

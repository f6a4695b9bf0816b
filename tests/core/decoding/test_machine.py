"""The state machine on given blocks and verdicts: stops, corrections, credits, counts, pace."""

import pytest
from fakes import toy_vocabulary

from streamer.core.decoding.machine import Speculator
from streamer.core.decoding.plan import (
    AT_ONCE_S,
    Done,
    DraftMore,
    Emit,
    Pace,
    Plan,
    Refusal,
    Signal,
    Verdict,
    VerifyRequest,
    Wait,
)
from streamer.core.decoding.sequence import Sequence
from streamer.core.rules.settings import Rules

VOCABULARY = toy_vocabulary()
RELAXED = Rules.off(max_new_tokens=30)
CALM = Signal(0.0, -0.1)


def started():
    sequence = Sequence((3, 7, 1))
    sequence.start_answer()
    return sequence


@pytest.mark.parametrize("mode", ["exact", "gated"])
def test_a_verdict_that_does_not_come_ends_the_answer_or_is_done_without(mode):
    plan = Plan(mode=mode, k=1, threshold=0.0, rules=RELAXED, verify_budget_s=2.0)
    goes_on = mode == "gated"
    machine = Speculator(plan, VOCABULARY, started())
    assert machine.next(0.0) == DraftMore(1)
    machine.sequence.extend([4])
    machine.drafted([4], [Signal(1.0, -0.1)])
    asked = machine.next(1.0)
    assert isinstance(asked, VerifyRequest)
    machine.replied(Refusal(asked.number, "prefix"))
    assert isinstance(machine.next(1.2), VerifyRequest)
    assert machine.next(1.5) == Wait(3.0)
    assert machine.next(3.0) == (Emit((4,), verified=False) if goes_on else Done("error"))
    assert machine.sequence.answer == [4] * goes_on
    assert (machine.num_failures, machine.counts.blocks_unverified) == (1, goes_on)


def test_time_with_nothing_to_do_is_counted_and_no_other():
    plan = Plan("exact", 2, rules=Rules.off())
    machine = Speculator(plan, VOCABULARY, started(), Pace(1e-3))
    assert machine.next(1.0) == DraftMore(2)
    machine.sequence.extend([0, 1])
    machine.drafted([0, 1], [CALM] * 2, 2.0)
    assert isinstance(machine.next(2.0), VerifyRequest)
    assert isinstance(machine.next(2.5), Wait)
    assert isinstance(machine.next(2.75), Wait)
    machine.next(3.0)
    assert machine.counts.stall_ms == 500


def test_drafts_after_the_first_one_grow_where_they_may():
    """The answer's first id is asked for alone, and a draft of k after it."""
    for grows, size in ((False, 2), (True, 8)):
        plan = Plan("exact", 2, rules=Rules.off(), ahead=48, credits=2, grows=grows)
        machine = Speculator(plan, VOCABULARY, started(), Pace(AT_ONCE_S / 8.5))
        sizes = []
        while len(sizes) < 2:
            match machine.next(0.0):
                case DraftMore(n):
                    ids = [0, 1, 3, 5, 6, 2, 7, 4][:n]
                    machine.sequence.extend(ids)
                    machine.drafted(ids, [CALM] * n)
                case VerifyRequest() as request if request.draft:
                    sizes.append(len(request.draft))
                case VerifyRequest() as request:
                    machine.replied(Verdict(request.number, 0, 0))
        assert sizes == [2, size]

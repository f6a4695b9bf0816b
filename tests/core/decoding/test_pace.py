"""k follows the delay and what is accepted."""

import pytest
from timed import OURS, PLAIN, Link, exact, measure

from streamer.core.decoding.pace import LEAST_K, MORE, MOST_K, STEP, Pace, expected


def learned(draft_s, verdict_s, accepted, tried=8):
    pace = Pace()
    for _ in range(200):
        pace.drafted(4, 4 * draft_s)
        pace.answered(verdict_s, accepted, tried)
    return pace


def test_it_learns_what_it_is_told():
    pace = learned(0.01, 0.2, 6)
    assert abs(pace.draft_s - 0.01) < 1e-4
    assert abs(pace.verdict_s - 0.2) < 1e-3
    assert abs(pace.acceptance - 6 / 7) < 0.01


@pytest.mark.parametrize("rtt_s", [0.0, 0.1])
@pytest.mark.parametrize("draft_s", [0.002, 0.1])
@pytest.mark.parametrize("k", [2, 6, 12])
def test_the_model_says_what_the_machine_does(k, draft_s, rtt_s):
    """Seconds and work of an answer, against the state machine on a link in virtual time."""
    link = Link(0.95, draft_s, rtt_s)
    cost = measure(exact(k=k, ahead=48, credits=4), link)
    step_s = link.step_s * (STEP + k * MORE)
    seconds, work = expected(k, link.a, draft_s, rtt_s + step_s, 4)
    assert cost.work / cost.num_ids * 22 == pytest.approx(work, rel=0.12)
    assert cost.seconds / cost.num_ids * 22 == pytest.approx(seconds, rel=0.2)


EDGES = [
    (0.96, 0.003),
    (0.96, 0.1),
    *(
        pytest.param(a, t, marks=pytest.mark.long)
        for a in (0.9, 0.94, 0.98)
        for t in (0.002, 0.004, 0.02, 0.1)
    ),
]


@pytest.mark.parametrize(("a", "draft_s"), EDGES)
def test_k_is_near_the_best_that_spares_the_target(a, draft_s):
    """At any delay: the target works .4 of what it takes alone, and no such k is faster by more
    than a tenth."""
    for rtt_s in (0.0, 0.05, 0.2):
        link = Link(a, draft_s, rtt_s)
        ours = measure(OURS, link)
        assert ours.work / ours.num_ids < (0.42 if a > 0.9 else 0.5)
        for k in (4, 6, 10, 16):
            fixed = measure(exact(k=k, ahead=48, credits=4), link)
            if fixed.work / fixed.num_ids < 0.4:
                assert ours.seconds < 1.1 * fixed.seconds, (rtt_s, k)


@pytest.mark.parametrize("rtt_s", [0.05, 0.1, 0.2])
def test_drafting_ahead_is_faster_than_waiting_for_each_verdict(rtt_s):
    link = Link(0.95, 0.004, rtt_s)
    assert measure(PLAIN, link).seconds > 1.4 * measure(OURS, link).seconds


def test_a_slow_edge_gains_nothing_from_drafting_ahead():
    """Where an id takes as long as a verdict, there is nothing to hide; ours must not lose what
    waiting would have."""
    link = Link(0.95, 0.1, 0.1)
    assert measure(OURS, link).seconds < 1.1 * measure(PLAIN, link).seconds


def test_a_poor_draft_is_as_long_as_spares_the_target_most():
    pace = learned(0.002, 0.05, 1)
    chosen = pace.best_k(4)
    work = [expected(k, pace.acceptance, 0.002, 0.05, 4)[1] for k in range(LEAST_K, MOST_K + 1)]
    assert work[chosen - LEAST_K] == pytest.approx(min(work), rel=0.02)


def test_a_guess_needs_time_for_a_second_id():
    pace = learned(0.1, 0.2, 6)
    assert pace.is_worth_a_guess(0.25)
    assert not pace.is_worth_a_guess(0.15)

"""Drafting ahead of verdicts, as the measured times say."""

import pytest
from timed import AHEAD, PLAIN, Link, measure

from streamer.core.decoding.pace import Pace


def learned(draft_s, verdict_s):
    pace = Pace()
    for _ in range(200):
        pace.drafted(4, 4 * draft_s)
        pace.answered(verdict_s)
    return pace


def test_it_follows_the_measured_times():
    pace = learned(0.01, 0.2)
    assert abs(pace.draft_s - 0.01) < 1e-4
    assert abs(pace.verdict_s - 0.2) < 1e-3


@pytest.mark.parametrize("rtt_s", [0.05, 0.1, 0.2])
def test_drafting_ahead_is_faster_than_waiting_for_each_verdict(rtt_s):
    link = Link(0.95, 0.004, rtt_s)
    assert measure(PLAIN, link).seconds > 1.4 * measure(AHEAD, link).seconds


def test_a_slow_edge_loses_nothing_by_drafting_ahead():
    """If an id takes as long as a verdict, there is no delay to hide."""
    link = Link(0.95, 0.1, 0.1)
    assert measure(AHEAD, link).seconds < 1.1 * measure(PLAIN, link).seconds


def test_a_guess_needs_time_for_a_second_id():
    pace = learned(0.1, 0.2)
    assert pace.is_worth_a_guess(0.25)
    assert not pace.is_worth_a_guess(0.15)

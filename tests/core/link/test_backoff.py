"""The breaker opens and closes by itself, and connections are retried ever more seldom."""

import random

import pytest

from streamer.core.link.edge_turn import FIRST_PAUSE_S, LONGEST_PAUSE_S, Breaker, Redial, pause_s


def test_the_breaker_closes_by_itself():
    breaker = Breaker()
    assert not breaker.is_closed(0.0), "there is no link yet"
    breaker.answered(0.0)
    assert breaker.is_closed(0.0)
    breaker.failed(1.0)
    assert not breaker.is_closed(100.0), "the verifier has not answered since"
    breaker.answered(1.0)
    assert not breaker.is_closed(1.0 + FIRST_PAUSE_S / 2)
    assert breaker.is_closed(1.0 + FIRST_PAUSE_S)
    breaker.unlinked()
    assert not breaker.is_closed(50.0)


def test_pauses_double_until_a_verdict_comes():
    breaker, pauses = Breaker(), []
    breaker.answered(0.0)
    for _ in range(9):
        breaker.failed(0.0)
        pauses.append(breaker.pause_s)
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == LONGEST_PAUSE_S
    breaker.succeeded()
    assert breaker.is_closed(0.0)
    assert breaker.pause_s == 0.0


def test_turns_that_miss_one_outage_count_once():
    breaker = Breaker()
    breaker.answered(0.0)
    for i in range(8):
        breaker.failed(5.0 + 0.01 * i, asked_at=0.01 * i)
    assert breaker.pause_s == FIRST_PAUSE_S
    breaker.answered(5.1)
    assert breaker.is_closed(5.0 + FIRST_PAUSE_S)
    breaker.failed(12.0, asked_at=7.0)
    assert breaker.pause_s == 2 * FIRST_PAUSE_S, "one that was asked since is another failure"


@pytest.mark.parametrize("lived_s", [0.0, 0.05, 0.5, 1.1, 3.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_verifier_that_drops_every_connection_is_asked_seldom(lived_s, seed):
    """However long each connection lives."""
    redial, chance, now, dials = Redial(), random.Random(seed), 0.0, []
    while now < 120.0:
        dials.append(now)
        now += lived_s
        redial.failed(now, dials[-1])
        now += pause_s(redial.num_failures(now), chance.random())
    first = sum(at < 5.0 for at in dials)
    later = max(sum(at <= other < at + 5.0 for other in dials) for at in dials if at >= 10.0)
    assert first <= 8
    assert later <= 5 / (lived_s + 1.5) + 1

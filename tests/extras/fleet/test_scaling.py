"""How many replicas there should be, in a simulated hour: from loads alone, by a simulated clock."""

import itertools
import math

import pytest

from streamer.config import ConfigError
from streamer.extras.fleet.manager import Scaler, ScalingDecision
from streamer.extras.fleet.options import ScalingOptions
from streamer.extras.fleet.replicas import Candidate
from streamer.net.service.admission import ReplicaStatus

LIMIT = 16
OPTIONS = ScalingOptions(up_at=0.75, down_at=0.4, lag_s=1.0, up_pause_s=10.0, down_pause_s=60.0)


def replica(number, taken=0, lag_s=0.0, **more):
    status = ReplicaStatus(f"server-{number}.0", "server", 1, False, taken, LIMIT, 0, lag_s)
    return Candidate(f"ws://127.0.0.1:{9100 + number}", status, **more)


def scaler(least=1, most=8, options=OPTIONS):
    return Scaler(options, least, most)


class Fleet:
    """Replicas that start within `start_s`, take an equal share of `load`, and leave when they are
    told."""

    def __init__(self, scaler, start_s=20.0):
        self.scaler = scaler
        self.start_s = start_s
        self.ready_at = {}
        self.changes = []  # (when, how many there are)
        self._numbers = itertools.count(1)
        self.num_over = 0  # seconds in which somebody found no place

    def step(self, now, load, lag_s=0.0):
        there = [number for number, at in self.ready_at.items() if at <= now]
        taken = min(math.ceil(load / len(there)), LIMIT) if there else 0
        self.num_over += bool(there) and load > LIMIT * len(there)
        found = [replica(number, taken, lag_s) for number in there]
        decision = self.scaler.decide(found, len(self.ready_at) - len(there), now)
        for _ in range(decision.add):
            self.ready_at[next(self._numbers)] = now + self.start_s
        if decision.drain:
            del self.ready_at[int(decision.drain.rpartition(":")[2]) - 9100]
        if decision.add or decision.drain:
            self.changes.append((now, len(self.ready_at)))


def test_it_starts_with_the_least_and_says_why():
    assert scaler(least=3).decide([], 0, 0.0) == ScalingDecision(3, why="0 replicas, at least 3")
    assert scaler(least=3).decide([], 3, 0.0) == ScalingDecision()
    assert scaler(least=3).decide([replica(1)], 0, 0.0).add == 2


@pytest.mark.parametrize(("taken", "add"), [(0, 0), (11, 0), (12, 0), (13, 1), (16, 1)])
def test_more_come_before_all_places_are_taken(taken, add):
    assert scaler().decide([replica(1, taken)], 0, 100.0).add == add


def test_it_goes_to_what_is_needed_at_once_and_never_beyond_its_bound():
    full = [replica(i, LIMIT) for i in (1, 2)]
    assert scaler(most=8).decide(full, 0, 100.0).add == 1
    roomy = ScalingOptions(up_at=0.25, down_at=0.1)
    one = [replica(1, LIMIT)]
    assert scaler(8, options=roomy).decide(one, 0, 100.0).add == 7
    assert scaler(most=8, options=roomy).decide(one, 0, 100.0).add == 3  # 16 taken, at 4 for each
    assert scaler(most=2, options=roomy).decide(one, 0, 100.0).add == 1
    assert scaler(most=1, options=roomy).decide(one, 0, 100.0) == ScalingDecision()


def test_who_is_on_the_way_again_and_again_calls_for_nothing():
    """One who wants more than its share is refused there, and comes back."""
    assert scaler().decide([replica(1, 2, sent={"noisy": 14})], 0, 100.0) == ScalingDecision()


def test_those_that_start_count():
    assert scaler().decide([replica(1, 16)], 1, 100.0) == ScalingDecision()


def test_speech_that_waits_calls_for_one_more_though_there_are_places():
    decision = scaler().decide([replica(1, 2, lag_s=1.5)], 0, 100.0)
    assert (decision.add, decision.why) == (1, "1.5 s of speech unheard")
    one_slow = [replica(1, 2, lag_s=9.0), replica(2, 2), replica(3, 2)]
    assert scaler(least=3).decide(one_slow, 0, 100.0).add == 0


def test_after_more_came_there_is_a_pause():
    policy = scaler()
    assert policy.decide([replica(1, 16)], 0, 100.0).add == 1
    assert policy.decide([replica(1, 16), replica(2, 16)], 0, 109.0).add == 0
    assert policy.decide([replica(1, 16), replica(2, 16)], 0, 111.0).add == 1


def test_the_emptiest_goes_when_the_others_had_places_to_spare_for_long_enough():
    policy = scaler()
    found = [replica(1, 3), replica(2, 1), replica(3, 5)]
    for now in range(100, 160):
        assert policy.decide(found, 0, float(now)) == ScalingDecision()
    decision = policy.decide(found, 0, 160.0)
    assert (decision.drain, decision.why) == ("ws://127.0.0.1:9102", "1 places of it taken")
    leaving = [found[0], replica(2, 1, is_leaving=True), found[2]]
    assert policy.decide(leaving, 0, 161.0) == ScalingDecision()  # the next one needs as long again


def test_one_busy_moment_begins_the_wait_anew():
    policy = scaler()
    calm = [replica(1, 3), replica(2, 3)]
    busy = [replica(1, 8), replica(2, 8)]
    assert policy.decide(calm, 0, 0.0) == policy.decide(calm, 0, 59.0) == ScalingDecision()
    assert policy.decide(busy, 0, 59.5) == ScalingDecision()
    assert policy.decide(calm, 0, 60.0) == policy.decide(calm, 0, 119.0) == ScalingDecision()
    assert policy.decide(calm, 0, 120.0).drain


def test_none_goes_below_the_least_while_one_starts_or_while_speech_waits():
    for found, num_starting, least in (
        ([replica(1), replica(2)], 0, 2),
        ([replica(1), replica(2)], 1, 1),
    ):
        policy = scaler(least=least)
        assert {policy.decide(found, num_starting, float(t)).drain for t in range(200)} == {""}
    behind = [replica(1, lag_s=2.0), replica(2, lag_s=2.0)]
    policy = scaler(most=2)
    assert {policy.decide(behind, 0, float(t)) for t in range(200)} == {ScalingDecision()}


def test_an_hour_up_and_down_again():
    """1 to 8 and back: nobody is without a place, but while the first ones start; and it never goes
    down and up within minutes."""
    fleet = Fleet(scaler())
    for now in range(3_600):
        load = 80 * math.sin(math.pi * now / 3_600) ** 2
        fleet.step(float(now), load)
    counts = [count for _, count in fleet.changes]
    assert fleet.num_over == 0
    assert (max(counts), counts[0], counts[-1]) == (7, 1, 1)
    top = counts.index(max(counts))
    assert counts[: top + 1] == sorted(counts[: top + 1])
    assert counts[top:] == sorted(counts[top:], reverse=True)


def test_a_steady_load_changes_nothing():
    """Whatever the load: after a while nobody comes and nobody goes."""
    for load in range(0, 8 * LIMIT, 3):
        fleet = Fleet(scaler())
        for now in range(1_200):
            fleet.step(float(now), load)
        assert not [at for at, _ in fleet.changes if at > 600], load


def test_a_table_that_would_swing_is_refused():
    with pytest.raises(ConfigError, match=r"down_at is 0.8; it must be below up_at"):
        ScalingOptions(up_at=0.75, down_at=0.8)

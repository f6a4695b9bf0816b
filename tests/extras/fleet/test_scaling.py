"""How many replicas there should be, in a simulated hour: from loads alone, by a simulated clock."""

import itertools
import math

from streamer.extras.fleet.manager import Scaler, Scaling, ScalingDecision
from streamer.net.service.admission import ReplicaStatus

LIMIT = 16


def replicas(*taken, lag_s=0.0):
    """The status of replicas by address. taken: places taken at each."""
    return {
        f"ws://127.0.0.1:{9101 + i}": ReplicaStatus(
            f"server-{i + 1}.0", "server", 1, False, num, LIMIT, 0, lag_s
        )
        for i, num in enumerate(taken)
    }


def scaler(least=1, most=8, **scaling):
    return Scaler(least, most, Scaling(**scaling))


class Fleet:
    """Replicas that start within `start_s`, take an equal share of `load`, and leave on request."""

    def __init__(self, scaler, start_s=20.0):
        self.scaler = scaler
        self.start_s = start_s
        self.ready_at = {}
        self.changes = []  # (when, how many there are)
        self._numbers = itertools.count(1)
        self.num_over = 0  # seconds in which a client found no place

    def step(self, now, load):
        there = [number for number, at in self.ready_at.items() if at <= now]
        taken = min(math.ceil(load / len(there)), LIMIT) if there else 0
        self.num_over += bool(there) and load > LIMIT * len(there)
        found = dict(zip(there, replicas(*[taken] * len(there)).values(), strict=True))
        found = {f"ws://127.0.0.1:{9100 + number:05}": status for number, status in found.items()}
        decision = self.scaler.decide(found, len(self.ready_at) - len(there), now)
        for _ in range(decision.add):
            self.ready_at[next(self._numbers)] = now + self.start_s
        if decision.drain:
            del self.ready_at[int(decision.drain.rpartition(":")[2]) - 9100]
        if decision.add or decision.drain:
            self.changes.append((now, len(self.ready_at)))


def test_it_adds_what_is_needed_at_once_and_never_beyond_its_bound():
    assert scaler(most=8).decide(replicas(LIMIT, LIMIT), 0, 100.0).add == 1
    roomy, one = {"up_at": 0.25, "down_at": 0.1}, replicas(LIMIT)
    assert scaler(8, **roomy).decide(one, 0, 100.0).add == 7
    assert scaler(most=8, **roomy).decide(one, 0, 100.0).add == 3  # 16 taken, at 4 for each
    assert scaler(most=2, **roomy).decide(one, 0, 100.0).add == 1
    assert scaler(most=1, **roomy).decide(one, 0, 100.0) == ScalingDecision()


def test_the_emptiest_goes_when_the_others_had_places_to_spare_for_long_enough():
    policy = scaler()
    for now in range(100, 160):
        assert policy.decide(replicas(3, 1, 5), 0, float(now)) == ScalingDecision()
    decision = policy.decide(replicas(3, 1, 5), 0, 160.0)
    assert (decision.drain, decision.why) == ("ws://127.0.0.1:9102", "1 places of it taken")
    assert policy.decide(replicas(3, 5), 0, 161.0) == ScalingDecision(), "the wait begins anew"


def test_an_hour_up_and_down_again():
    """1 to 8 and back: every client finds a place, and the number never goes down and up within
    minutes."""
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

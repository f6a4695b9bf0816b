"""Asking about a block before it is whole: the same ids as without, earlier where the edge is slow.
Toy models, and a clock that nobody waits for."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, replace

import pytest
import torch
from fakes import ToyDrafter, ToyModel, ToyStream, ToyVerifier, toy_vocabulary

from streamer.core.decoding.gate import Gate, Signal
from streamer.core.decoding.pace import AHEAD_S, Pace
from streamer.core.decoding.plan import Done, DraftMore, Emit, Plan, Verify, Wait
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.speculate import Speculator
from streamer.core.decoding.verdict import Refusal, Verdict, VerifyRequest
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules

VOCABULARY = toy_vocabulary()
CALM, TORN = Signal(0.0, 1.0, -0.1), Signal(3.0, 0.1, -2.0)
FAST_S = 0.0001  # per id: whole blocks


@dataclass(frozen=True)
class Mostly(ToyModel):
    """Says what `other` says, but for every tenth context or so."""

    other: ToyModel | None = None

    def logits(self, context: tuple[int, ...]) -> torch.Tensor:  # type: ignore[override]
        own = super().logits(context)
        return own if self.other is None or own.argmax() % 5 == 0 else self.other.logits(context)


@dataclass
class Played:
    """One answer. seen: what nobody's pace may change. took_s: on the clock."""

    seen: tuple[object, ...]
    num_early: int
    took_s: float
    machine: Speculator


def play(
    plan: Plan,
    seed: int,
    edge_s: float,
    delay_s: float,
    jitter: float = 0.0,
    pace_of: type[Pace] = Pace,
) -> Played:
    """An edge that takes `edge_s` per id and cannot be stopped in one, a target whose verdicts come
    after `delay_s`."""
    chance, sampling = random.Random(seed), Sampling()
    sequence, target = Sequence((3, 7, 1)), Sequence((3, 7, 1))
    sequence.start_answer()
    target.start_answer()
    cloud = ToyModel(VOCABULARY.num_ids, seed)
    edge = ToyStream(Mostly(VOCABULARY.num_ids, seed + 1, other=cloud), sequence)
    verifier = ToyVerifier(ToyStream(cloud, target), VOCABULARY, plan.rules, sampling)
    drafter = ToyDrafter(edge, VOCABULARY, plan.rules, sampling, "model", chance)
    machine = Speculator(plan, VOCABULARY, sequence, pace_of(edge_s, delay_s))
    now, shown, verified, num_early = 0.0, [], [], 0
    due: list[tuple[float, int, Verdict | Refusal]] = []
    while True:
        while due and due[0][0] <= now:
            reply = heapq.heappop(due)[2]
            machine.verdict(reply, now) if isinstance(reply, Verdict) else machine.refused(reply)
        match machine.next(now):
            case DraftMore(n):
                ids, signals = [], []
                for _ in range(n):
                    more = drafter.draft(1)
                    ids, signals = ids + more[0], signals + more[1]
                    now += edge_s
                machine.drafted(ids, signals, now)
            case Verify(request):
                num_early += len(request.draft) < plan.k and not machine._tail.is_ended
                reply = verifier.verify(request)
                at = now + delay_s * chance.uniform(1 - jitter, 1 + jitter)
                heapq.heappush(due, (max([at, *(d[0] for d in due)]), request.number, reply))
            case Wait(until):
                assert until > now, "it would be asked again at once, for ever"
                now = min(until, due[0][0])
            case Emit(ids, by_target):
                shown += ids
                verified += [by_target] * len(ids)
            case Done(reason):
                assert edge.num_refed == verifier.stream.num_refed == 0
                assert machine.counts.n_committed == len(shown)
                assert (
                    machine.counts.n_accepted
                    <= machine.counts.n_uploaded
                    <= machine.counts.n_drafted
                )
                return Played((shown, verified, reason), num_early, now, machine)


def plan_of(seed: int) -> Plan:
    chance = random.Random(seed)
    rules = chance.choice(
        [Rules(max_new_tokens=40), Rules.off(max_new_tokens=25), Rules(ngram=2, comma_gap=0)]
    )
    signal = chance.choice(
        [
            {"entropy": chance.choice([0.8, 1.2, 1.6])},
            {"entropy": None, "margin": 0.3},
            {"entropy": None, "surprise": 1.5},
            {"entropy": None, "log_prob": -0.8},
        ]
    )
    gate = replace(Gate(density=chance.choice([None, 0.4]), loop=seed % 2 > 0), **signal)
    return Plan(
        "gated", chance.randint(1, 7), gate, rules, verify_budget_s=1e9, ahead=24, credits=4
    )


@pytest.mark.parametrize("seed", range(30))
def test_it_changes_no_id_and_nothing_of_what_is_verified(seed: int) -> None:
    """Whatever the edge's pace, the delay and its jitter: the ids, and which of them the target
    judged."""
    plan = plan_of(seed)
    whole = play(plan, seed, FAST_S, 0.1)
    assert whole.num_early == 0
    num_early = 0
    for edge_s, delay_s in [
        (0.1, 0.105),
        (0.1, 0.0),
        (0.1, 0.02),
        (0.03, 0.105),
        (0.01, 0.3),
        (0.4, 0.1),
    ]:
        for jitter in (0.0, 0.9):
            found = play(plan, seed, edge_s, delay_s, jitter)
            assert found.seen == whole.seen, (edge_s, delay_s, jitter)
            num_early += found.num_early
    assert (
        num_early
        or plan.k == 1
        or len(whole.seen[0]) < 2 * plan.k
        or not whole.machine.counts.n_uploaded
    )


class Unwatched(Pace):
    """Nothing is asked about early."""

    @property
    def is_slow(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("edge_s", "delay_s", "most"),
    [(0.1, 0.105, 0.9), (0.1, 0.02, 0.92), (0.03, 0.105, 0.92), (0.4, 0.1, 0.92)],
)
def test_a_slow_edge_is_done_sooner(edge_s: float, delay_s: float, most: float) -> None:
    """Of the simulated seconds of 40 answers, one id in six of which the target corrects. Each no
    costs less; what it costs is more requests."""
    gate, rules = Gate(entropy=None, margin=0.2), Rules(max_new_tokens=40)
    plans = [replace(plan_of(seed), k=4, gate=gate, rules=rules) for seed in range(40)]
    early = [play(plan, i, edge_s, delay_s) for i, plan in enumerate(plans)]
    whole = [play(plan, i, edge_s, delay_s, pace_of=Unwatched) for i, plan in enumerate(plans)]
    assert [p.seen for p in early] == [p.seen for p in whole]
    assert sum(p.took_s for p in early) < most * sum(p.took_s for p in whole)


def asked(
    machine: Speculator, ids: list[int], signals: list[Signal], now: float
) -> VerifyRequest | None:
    """The request that comes of these ids, drafted one by one; None where more are wanted."""
    for token, signal in zip(ids, signals, strict=True):
        assert machine.next(now) == DraftMore(1)
        machine.sequence.extend([token])
        machine.drafted([token], [signal])
    action = machine.next(now)
    return action.request if isinstance(action, Verify) else None


def torn_at(
    at: int, edge_s: float = 0.1, **options: object
) -> tuple[Speculator, VerifyRequest | None]:
    """A machine with k 4 whose edge is in doubt of its id number `at`, and what it asks by then."""
    sequence = Sequence((3, 7, 1))
    sequence.start_answer()
    gate, rules = Gate(entropy=None, margin=0.2), Rules.off(max_new_tokens=30)
    plan = replace(Plan("gated", 4, gate, rules, ahead=24, credits=4), **options)  # type: ignore[arg-type]
    machine = Speculator(plan, VOCABULARY, sequence, Pace(edge_s, 0.105))
    return machine, asked(machine, [0, 1, 2, 4][: at + 1], [CALM] * at + [TORN], 1.0)


@pytest.mark.parametrize("at", range(4))
def test_what_is_in_doubt_is_asked_about_at_once(at: int) -> None:
    """Then the edge guesses one id, whatever a guess is worth; the rest of the block follows, and
    is asked about, too."""
    machine, request = torn_at(at)
    assert request is not None
    assert request.draft == (0, 1, 2, 4)[: at + 1]
    if at == 3:
        assert isinstance(machine.next(1.0), Wait), (
            "the block is whole: the target's own id saves the edge one"
        )
        return
    rest = asked(machine, [6], [CALM], 1.0)
    assert (rest is None) == (at < 2), "of nothing but the target's own id"
    machine.verdict(Verdict(request.number, at + 1, 6), 1.105)
    assert machine.next(1.105) == Emit((*request.draft, 6), verified=True)
    rest = rest or asked(machine, [7, 8][: 2 - at], [CALM] * (2 - at), 1.105)
    assert rest is not None, "it was the block that was in doubt, not one id"
    assert rest.draft == (7, 8)[: 2 - at]
    assert machine.counts.blocks == 1


def test_a_guess_that_the_target_corrects_ends_the_block() -> None:
    machine, request = torn_at(0)
    assert request is not None
    machine.verdict(Verdict(request.number, 1, 6), 1.02)
    assert machine.next(1.02) == DraftMore(1), (
        "the verdict is early: what it says of the guess is still to be seen"
    )
    machine.sequence.extend([8])
    machine.drafted([8], [TORN], 1.1)
    assert machine.next(1.1) == Emit((0, 6), verified=True)
    assert asked(machine, [0, 1, 2, 4], [CALM] * 4, 1.2) is None
    assert machine.counts.blocks == 2, "the next block is its own, and passes"
    assert machine.counts.cloud_calls == 1


@pytest.mark.parametrize(("edge_s", "ahead"), [(AHEAD_S / 2, 24), (0.1, 0)])
def test_otherwise_blocks_are_whole(edge_s: float, ahead: int) -> None:
    """Where the edge is fast, and where it does not draft ahead."""
    sequence = Sequence((3, 7, 1))
    sequence.start_answer()
    plan = Plan("gated", 4, Gate(entropy=None, margin=0.2), Rules.off(), ahead=ahead, credits=4)
    machine = Speculator(plan, VOCABULARY, sequence, Pace(edge_s, 0.105))
    assert machine.next(0.0) == DraftMore(4)
    machine.sequence.extend([0])
    machine.drafted([0], [TORN])
    assert machine.next(0.0) == DraftMore(3)


@pytest.mark.parametrize(("delay_s", "is_early"), [(0.19, True), (0.21, False)])
def test_credits_are_not_spent_twice_where_they_are_short(delay_s: float, is_early: bool) -> None:
    """A far verifier: with one request for each block four blocks are on their way, and with two
    half of them."""
    sequence = Sequence((3, 7, 1))
    sequence.start_answer()
    plan = Plan("gated", 4, Gate(entropy=None, margin=0.2), Rules.off(), ahead=24, credits=4)
    machine = Speculator(plan, VOCABULARY, sequence, Pace(0.01, delay_s))
    assert (asked(machine, [0], [TORN], 1.0) is not None) == is_early


def test_a_verifier_that_goes_away_leaves_no_block_half_asked() -> None:
    """The first ids are committed unverified when their verdict is overdue, and what follows is a
    block of its own."""
    machine, _ = torn_at(0, verify_budget_s=0.5)
    assert asked(machine, [6], [CALM], 1.0) is None
    assert machine.next(2.0) == Emit((0,), verified=False)
    assert asked(machine, [7, 8, 10], [CALM] * 3, 2.0) is None
    assert (machine.counts.blocks, machine.counts.blocks_unverified, machine.num_failures) == (
        2,
        1,
        1,
    )


def test_a_rest_that_is_dropped_with_a_late_verdict_is_not_counted_as_committed() -> None:
    """The rest is whole while nobody can be asked, and goes back to the edge when the first ids'
    verdict is overdue."""
    machine, _ = torn_at(1, verify_budget_s=0.5)
    for token in (6, 7, 8):
        assert machine.next(1.0, is_up=False) == DraftMore(1)
        machine.sequence.extend([token])
        machine.drafted([token], [CALM])
    assert machine.next(2.0, is_up=False) == Emit((0, 1), verified=False)
    machine.cancel()
    assert (machine.counts.blocks, machine.counts.blocks_unverified) == (1, 1)

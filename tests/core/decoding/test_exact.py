"""The state machine on toy models: two sequences kept in step, exact == cloud."""

import random

import pytest
from drawn import rules_and_sampling
from fakes import ToyDrafter, ToyModel, ToyStream, ToyVerifier, toy_form, toy_vocabulary
from oracles import target_alone

from streamer.core.decoding.machine import Speculator
from streamer.core.decoding.plan import Done, DraftMore, Emit, Gate, Plan, Verify
from streamer.core.decoding.sequence import Sequence

VOCABULARY = toy_vocabulary()
FORM = toy_form(VOCABULARY)
PROMPT = (3, 7, 1)


def started():
    sequence = Sequence(PROMPT)
    sequence.start_answer()
    return sequence


def settings(seed):
    """A random plan: mode, k, rules on or off, greedy or sampled."""
    chance = random.Random(seed)
    rules, sampling = rules_and_sampling(chance, seed)
    return chance, rules, sampling, chance.randint(1, 7)


def run(plan, sampling, chance, kind="model", edge_seed=1, form=None):
    """Drive one answer; returns (answer, machine, edge stream, cloud stream). Checks both sequences
    at each step."""
    edge = ToyStream(ToyModel(VOCABULARY.num_ids, edge_seed), started())
    cloud = ToyStream(ToyModel(VOCABULARY.num_ids, 2), started())
    drafter = ToyDrafter(edge, VOCABULARY, plan.rules, sampling, kind, chance, form)
    verifier = ToyVerifier(cloud, VOCABULARY, plan.rules, sampling, form)
    machine = Speculator(plan, VOCABULARY, edge.sequence)
    shown, now = [], 0.0
    for _ in range(20_000):
        now += 0.001
        match machine.next(now):
            case DraftMore(n):
                machine.drafted(*drafter.draft(n))
            case Verify(request):
                machine.verdict(verifier.verify(request))
            case Emit(ids, _):
                shown += ids
            case Done(reason):
                assert edge.num_refed == 0, "each id once"
                return shown, reason, machine, edge, cloud
        assert edge.sequence.answer[: edge.sequence.n_committed][: len(shown)] == shown
        assert_in_step(edge, cloud)
    raise AssertionError("no end")


def assert_in_step(edge, cloud):
    """Both caches hold the ids of their sequences: a fresh forward would give the same."""
    for stream in (edge, cloud):
        cached = stream.sequence.n_cached
        assert cached <= len(stream.sequence) - 1
        assert tuple(stream.cache[:cached]) == stream.sequence.ids[:cached]


@pytest.mark.parametrize("form", [None, FORM], ids=["free", "form"])
@pytest.mark.parametrize("seed", range(36))
def test_exact_equals_the_target_alone(seed, form):
    """Invariant 4, for perfect, random and hostile drafters, any k, rules on and off, greedy and
    sampled, with and without a form."""
    chance, rules, sampling, k = settings(seed)
    kind = ("model", "random", "hostile")[seed % 3]
    edge_seed = 2 if seed % 4 == 0 else 1  # every fourth: a twin of the target
    target = ToyModel(VOCABULARY.num_ids, 2)
    wanted = target_alone(target, VOCABULARY, PROMPT, rules, sampling, form)
    plan = Plan(mode="exact", k=k, gate=Gate(entropy=1.0), rules=rules)
    *found, machine, _, cloud = run(plan, sampling, chance, kind, edge_seed, form)
    assert tuple(found) == wanted
    assert cloud.num_refed == 0, "each id once"
    if kind == "model" and edge_seed == 2:
        assert machine.counts.n_accepted == machine.counts.n_uploaded
        assert machine.counts.n_wasted == 0
    assert run(Plan(mode="cloud", rules=rules), sampling, chance, form=form)[:2] == wanted
    if form is not None:
        gated = run(Plan(k=k, rules=rules), sampling, chance, form=form)[0]
        assert all(form.is_whole(VOCABULARY.text_of(answer)) for answer in (wanted[0], gated))


@pytest.mark.parametrize("seed", range(20))
def test_gated_feeds_the_target_each_id_once(seed):
    """Ids committed without the target reach it with the next block, all in one pass, none
    twice."""
    chance, rules, sampling, k = settings(3000 + seed)
    *_, machine, edge, cloud = run(
        Plan(mode="gated", k=k, gate=Gate(entropy=1.9), rules=rules), sampling, chance
    )
    assert edge.num_refed == cloud.num_refed == 0
    assert machine.counts.cloud_calls <= machine.counts.blocks

"""Both ends of a turn joined without a socket, on toy models: whatever the network does, exact says
what the target says alone.

The network delays, loses, doubles and reorders messages, cuts the connection and loses the
verifier's slot. The target's context begins with its samples, so a lost or doubled sample changes
every id.
"""

import random

import pytest
from fakes import ToyModel
from in_memory import run, settings
from oracles import target_alone
from toy_parts import VOCABULARY, prompt_of

from streamer.core.decoding.plan import Gate, Plan
from streamer.core.rules.constrain import constrain
from streamer.model.sampler import choose


def plan_of(chance, mode, rules, **more):
    return Plan(
        mode,
        k=chance.randint(1, 7),
        gate=Gate(entropy=1.2),
        rules=rules,
        ahead=chance.choice([0, 3, 12, 48]),
        credits=chance.randint(1, 4),
        verify_budget_s=1e9,
        **more,
    )


def oracle(samples, rules, sampling):
    return target_alone(
        ToyModel(VOCABULARY.num_ids, 2), VOCABULARY, prompt_of(samples), rules, sampling
    )


@pytest.mark.parametrize(
    "seed", [*range(36), *(pytest.param(i, marks=pytest.mark.long) for i in range(36, 1_000))]
)
def test_exact_over_the_wire_equals_the_target_alone(seed):
    """Invariant 4 with blocks in flight and draft ahead, for model, twin, random and hostile
    drafters."""
    chance, rules, sampling, samples = settings(seed)
    kind = ("model", "random", "hostile")[seed % 3]
    faults = (0.0, 0.0, 0.0) if seed % 4 == 0 else (0.25 * (seed % 2), 0.03 * (seed % 3), 0.5)
    plan = plan_of(chance, "exact", rules)
    answer, reason, machine, link = run(
        plan, sampling, chance, samples, kind, 2 if seed % 5 == 0 else 1, *faults
    )
    assert (answer, reason) == oracle(samples, rules, sampling)
    assert max(link.num_bytes) <= 24
    counts = machine.counts
    assert counts.n_accepted <= counts.n_uploaded
    assert counts.n_committed == counts.n_verified == len(answer)
    if not any(faults):
        assert link.far.num_refed == 0, "each id once on the target"


@pytest.mark.parametrize(
    "seed", [*range(9), *(pytest.param(i, marks=pytest.mark.long) for i in range(9, 200))]
)
def test_cloud_over_the_wire_equals_the_target_alone(seed):
    """The verifier decodes alone and streams; a cut link goes on where it was."""
    chance, rules, sampling, samples = settings(5_000 + seed)
    plan = Plan("cloud", rules=rules, verify_budget_s=1e9)
    answer, reason, *_ = run(
        plan, sampling, chance, samples, cut_share=0.05 * (seed % 3), restart_share=0.5
    )
    assert (answer, reason) == oracle(samples, rules, sampling)


@pytest.mark.parametrize(
    "seed", [*range(16), *(pytest.param(i, marks=pytest.mark.long) for i in range(16, 500))]
)
def test_gated_over_the_wire(seed):
    """Invariant 8: with fixed k and no deadline missed the faults of the link change no id; counts
    add up."""
    chance, rules, sampling, samples = settings(9_000 + seed)
    plan = plan_of(chance, "gated", rules)
    alone = run(plan, sampling, random.Random(seed), samples)
    found = []
    for ahead, flights in ((0, 1), (plan.ahead, plan.credits)):
        more = Plan(plan.mode, plan.k, plan.gate, rules, 1e9, ahead, flights)
        found.append(
            run(
                more,
                sampling,
                random.Random(seed),
                samples,
                loss=0.2,
                cut_share=0.02,
                restart_share=0.3,
            )
        )
    for answer, reason, machine, _ in found:
        assert (answer, reason) == alone[:2]
        assert machine.counts.n_committed == len(answer)
        assert machine.counts.n_verified == alone[2].counts.n_verified


@pytest.mark.parametrize(
    "seed", [*range(24), *(pytest.param(i, marks=pytest.mark.long) for i in range(24, 500))]
)
def test_what_degraded_exact_calls_verified_is_the_targets(seed):
    """The link comes up when the edge has committed alone: each id called verified is the target's
    after the ids before it, and none waits for a verdict that was given to another request."""
    chance, rules, sampling, samples = settings(15_000 + seed)
    plan = Plan(
        "exact",
        chance.randint(1, 6),
        rules=rules,
        verify_budget_s=1e9,
        ahead=chance.choice([3, 12, 48]),
        credits=chance.randint(1, 4),
        degrade=True,
    )
    said = []
    run(
        plan,
        sampling,
        chance,
        samples,
        "hostile",
        down=chance.choice([0, 2, 3, 5, 8, 12]),
        said=said,
    )
    answer = [i for _, ids, _ in said for i in ids]
    model = ToyModel(VOCABULARY.num_ids, 2)
    for start, ids, verified in said:
        for at in range(start, start + len(ids) if verified else start):
            logits = model.logits([*prompt_of(samples), *answer[:at]])
            constraint = constrain(VOCABULARY, rules, answer[:at])
            assert choose(logits, constraint, VOCABULARY, sampling, rules) == answer[at]

"""Mode edge: ids come several at a time where they are quick, and nothing else depends on it."""

from __future__ import annotations

import random

import pytest
from fakes import ToyDrafter, ToyModel, ToyStream, toy_vocabulary

from streamer.core.decoding.gate import Signal
from streamer.core.decoding.pace import AT_ONCE_S, MOST_AT_ONCE, Pace
from streamer.core.decoding.plan import Action, Done, DraftMore, Emit, Plan
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.speculate import Speculator
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules

VOCABULARY = toy_vocabulary()
CALM = Signal(0.0, 1.0, 0.0)
STOP, EOS = 9, VOCABULARY.num_ids - 1
ANY_RULES = [
    Rules(max_new_tokens=40),
    Rules.off(max_new_tokens=25),
    Rules(ngram=2, comma_gap=0),
    Rules.off(loop_global=True, max_new_tokens=60),
]


def started(draft_s: float, rules: Rules) -> Speculator:
    sequence = Sequence((3, 7, 1))
    sequence.start_answer()
    return Speculator(Plan("edge", rules=rules), VOCABULARY, sequence, Pace(draft_s))


def written(draft_s: float, rules: Rules, sampling: Sampling, seed: int) -> tuple[object, int]:
    """One answer: all that can be seen of it, and the most ids that were wanted at a time."""
    machine = started(draft_s, rules)
    edge = ToyStream(ToyModel(VOCABULARY.num_ids, 1), machine.sequence)
    drafter = ToyDrafter(edge, VOCABULARY, rules, sampling, "model", random.Random(seed))
    shown: list[Emit] = []
    most = 0
    while True:
        match machine.next(0.0):
            case DraftMore(n):
                most = max(most, n)
                drafted = [drafter.draft(1) for _ in range(n)]
                machine.drafted([ids[0] for ids, _ in drafted], [s[0] for _, s in drafted])
            case Emit() as emit:
                shown.append(emit)
            case Done(reason):
                counts = machine.counts
                seen = shown, reason, counts.blocks, counts.n_committed, machine.sequence.answer
                return seen, most


@pytest.mark.parametrize("seed", range(24))
def test_how_many_come_at_a_time_changes_nothing(seed: int) -> None:
    rules = ANY_RULES[seed % 4]
    sampling = [Sampling(), Sampling(temperature=1.0, seed=seed), Sampling(0.7, 0.8, seed)][
        seed % 3
    ]
    one_by_one, most = written(1.0, rules, sampling, seed)
    assert most == 1
    for draft_s in (AT_ONCE_S / 3.5, AT_ONCE_S / 7.5, 1e-9):
        found, most = written(draft_s, rules, sampling, seed)
        assert found == one_by_one
        assert most > 1


def drafted(machine: Speculator, ids: list[int]) -> list[Action]:
    """What the machine says behind these ids, until it wants more or is done."""
    machine.sequence.extend(ids)
    machine.drafted(ids, [CALM] * len(ids))
    said = []
    while not isinstance(action := machine.next(0.0), DraftMore | Done):
        said.append(action)
    return [*said, action]


def test_the_first_id_comes_at_once_and_the_others_as_time_allows() -> None:
    machine = started(1e-9, Rules.off(max_new_tokens=60))
    assert machine.next(0.0) == DraftMore(1)
    assert drafted(machine, [4]) == [Emit((4,), verified=False), DraftMore(MOST_AT_ONCE)]
    machine = started(AT_ONCE_S / 9.5, Rules.off())
    machine.next(0.0)
    assert drafted(machine, [4])[-1] == DraftMore(9)


def test_nothing_behind_a_stop_is_kept() -> None:
    """Each id that stands is a block of its own, and the end of an answer, too."""
    for end, reason in ((STOP, "sentence"), (EOS, "eos")):
        machine = started(1e-9, Rules.off())
        machine.next(0.0)
        drafted(machine, [0])
        said = drafted(machine, [1, 2, end, 7, 8])
        ids = [0, 1, 2, *([STOP] if end == STOP else [])]
        assert said == [*(Emit((i,), verified=False) for i in ids[1:]), Done(reason)]
        assert machine.sequence.answer == ids
        counts = machine.counts
        assert (counts.blocks, counts.n_drafted, counts.n_wasted) == (4, 6, 2)


def test_what_is_cancelled_is_not_shown() -> None:
    """What is drafted and not committed is dropped, and counted."""
    machine = started(1e-9, Rules.off())
    machine.next(0.0)
    drafted(machine, [0])
    machine.sequence.extend([1, 2, 4])
    machine.drafted([1, 2, 4], [CALM] * 3)
    machine.cancel()
    assert machine.next(0.0) == Done("cancelled")
    assert machine.sequence.answer == [0]
    assert (machine.counts.n_drafted, machine.counts.n_wasted, machine.counts.blocks) == (4, 3, 1)


def test_the_first_id_says_nothing_about_the_pace() -> None:
    """Its step feeds what is left of the prompt, too."""
    machine = started(0.002, Rules.off())
    for took_s, learned_s in ((5.0, 0.002), (0.001, 0.0017)):
        machine.next(0.0)
        machine.sequence.extend([4])
        machine.drafted([4], [CALM], took_s)
        assert machine.pace.draft_s == pytest.approx(learned_s)
        while not isinstance(machine.next(0.0), DraftMore):
            pass

"""Runs of blocks against one block at a time: the same ids, commits, requests and counts, on toy
models."""

from __future__ import annotations

import random

import pytest
from fakes import ToyDrafter, ToyModel, ToyStream, ToyVerifier, toy_vocabulary

from streamer.core.decoding.gate import Gate, Signal, fires
from streamer.core.decoding.pace import RUN_IDS, RUN_S, Pace
from streamer.core.decoding.plan import Run
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.speculate import Done, DraftMore, Emit, Plan, Speculator, Verify
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.core.rules.stop import stop

VOCABULARY = toy_vocabulary()
NO_RUNS = 1e9  # seconds per id
CALM = Signal(0.0, 1.0, 0.0)
RELAXED = Rules.off(max_new_tokens=30)
STOP, EOS = 9, VOCABULARY.num_ids - 1


class InRuns:
    """A drafter that goes on as a Run says, by the readable gate; its signals are counted from
    `opened` on."""

    def __init__(self, drafter: ToyDrafter) -> None:
        self._drafter, self.num_runs = drafter, 0

    def draft(self, n: int, run: Run | None) -> tuple[list[int], list[Signal]]:
        drafter, sequence = self._drafter, self._drafter.stream.sequence
        ids: list[int] = []
        signals = list(run.opened if run else ())
        size, num_passed = n + len(signals), 0
        while len(ids) < (run.most if run else n):
            more = drafter.draft(1)
            ids += more[0]
            signals += more[1]
            is_last = stop(VOCABULARY, drafter.rules, sequence.answer[:-1], ids[-1]) is not None
            if run and (is_last or len(signals) == size):
                block = sequence.answer[-len(signals) :]
                before = sequence.answer[: -len(signals)]
                if (
                    run.gate is not None
                    and fires(run.gate, VOCABULARY, before, block, signals) is not None
                ):
                    break
                size, num_passed, signals = run.size, len(ids), []
                self.num_runs += 1
            if is_last:
                break
        return ids, signals[len(signals) - (len(ids) - num_passed) :]


def written(
    plan: Plan, sampling: Sampling, seed: int, kind: str, draft_s: float, is_up: bool
) -> tuple[object, ...]:
    """One answer: all that can be seen of it, and how many blocks were drafted in runs."""
    chance = random.Random(seed)
    sequence = Sequence((3, 7, 1))
    sequence.start_answer()
    target = Sequence((3, 7, 1))
    target.start_answer()
    edge = ToyStream(ToyModel(VOCABULARY.num_ids, 1), sequence)
    verifier = ToyVerifier(
        ToyStream(ToyModel(VOCABULARY.num_ids, 2), target), VOCABULARY, plan.rules, sampling
    )
    drafter = InRuns(ToyDrafter(edge, VOCABULARY, plan.rules, sampling, kind, chance))
    machine = Speculator(plan, VOCABULARY, sequence, Pace(draft_s))
    shown: list[int] = []
    asked, verified = [], []
    is_first = True
    while True:
        match machine.next(0.0, is_up):
            case DraftMore(n, run):
                machine.drafted(*drafter.draft(1 if is_first else n, None if is_first else run))
                is_first = False
            case Verify(request):
                asked.append(request)
                machine.verdict(verifier.verify(request))
            case Emit(ids, by_target):
                shown += ids
                verified += [by_target] * len(ids)
            case Done(reason):
                assert edge.num_refed == 0
                seen = (
                    shown,
                    verified,
                    asked,
                    reason,
                    machine.counts,
                    sequence.answer,
                    sequence.n_cached,
                )
                return (*seen, drafter.num_runs)


@pytest.mark.parametrize("mode", ["gated", "edge", "exact", "cloud"])
@pytest.mark.parametrize("seed", range(40))
def test_runs_give_what_single_blocks_give(mode: str, seed: int) -> None:
    chance = random.Random(9000 + seed)
    rules = chance.choice(
        [
            Rules(max_new_tokens=40),
            Rules.off(max_new_tokens=25),
            Rules(ngram=2, comma_gap=0),
            Rules.off(loop_global=True, max_new_tokens=60),
        ]
    )
    sampling = chance.choice(
        [Sampling(), Sampling(temperature=1.0, seed=seed), Sampling(0.7, 0.8, seed)]
    )
    gate = Gate(
        entropy=chance.choice([None, 1.2, 1.9, 2.4]),
        density=chance.choice([None, 0.4]),
        loop=seed % 2 > 0,
    )
    plan = Plan(mode=mode, k=chance.randint(1, 7), gate=gate, rules=rules)  # type: ignore[arg-type]
    kind, is_up = ("model", "random")[seed % 3 == 2], seed % 5 > 0 or mode in ("exact", "cloud")
    one_by_one = written(plan, sampling, seed, kind, NO_RUNS, is_up)
    assert one_by_one[-1] == 0
    in_runs = [
        written(plan, sampling, seed, kind, draft_s, is_up)
        for draft_s in (RUN_S / 6, RUN_S / 13, 1e-9)
    ]
    for found in in_runs:
        assert found[:-1] == one_by_one[:-1]
    if mode == "edge" and len(one_by_one[0]) > 2:  # type: ignore[arg-type]
        assert in_runs[-1][-1] > 0
    if mode in ("exact", "cloud"):
        assert in_runs[-1][-1] == 0, "what is verified is drafted block by block"


def started(mode: str, k: int = 4, pace: Pace | None = None, rules: Rules = RELAXED) -> Speculator:
    sequence = Sequence((3, 7, 1))
    sequence.start_answer()
    plan = Plan(mode=mode, k=k, gate=Gate(entropy=9.0), rules=rules)  # type: ignore[arg-type]
    return Speculator(plan, VOCABULARY, sequence, pace or Pace(1e-9))


def take(
    machine: Speculator, ids: list[int], signals: list[Signal], now: float | None = None
) -> None:
    machine.sequence.extend(ids)
    machine.drafted(ids, signals, now)


def test_a_run_is_bounded_in_ids_and_in_time() -> None:
    run = started("gated").next(0.0).run  # type: ignore[union-attr]
    assert run == Run(RUN_IDS, 4, Gate(entropy=9.0))
    assert started("edge").next(0.0) == DraftMore(1, Run(RUN_IDS, 1))
    # a slow edge shows each block, and each id, as it is there
    for draft_s in (0.1, 0.01, RUN_S / 7):
        assert started("gated", pace=Pace(draft_s)).next(0.0) == DraftMore(4)
    assert started("edge", pace=Pace(0.1)).next(0.0) == DraftMore(1)
    assert started("gated", pace=Pace(RUN_S / 9)).next(0.0).run.most == 8  # type: ignore[union-attr]
    assert started("exact").next(0.0) == DraftMore(4)


def test_a_run_begins_behind_what_the_block_holds() -> None:
    machine, gate = started("gated"), Gate(entropy=9.0)
    machine.next(0.0)
    first = Signal(0.3, 0.5, -0.1)
    take(machine, [4], [first])
    assert machine.next(0.0) == DraftMore(3, Run(31, 4, gate, (first,)))
    take(machine, [0, 1, 2, 4, 6, 7, 0, 13], [CALM])
    assert machine.next(0.0) == Emit((4, 0, 1, 2, 4, 6, 7, 0), verified=False)
    assert machine.counts.blocks == 2
    assert machine.next(0.0) == DraftMore(3, Run(31, 4, gate, (CALM,)))


def test_no_run_where_something_is_on_its_way() -> None:
    sequence = Sequence((3, 7, 1))
    sequence.start_answer()
    plan = Plan(mode="gated", k=2, gate=Gate(entropy=-1.0), rules=RELAXED, ahead=8, credits=2)
    machine = Speculator(plan, VOCABULARY, sequence, Pace(1e-9))
    machine.next(0.0)
    take(machine, [0, 1], [CALM, CALM])
    assert isinstance(machine.next(0.0), Verify)
    ahead = machine.next(0.0)
    assert isinstance(ahead, DraftMore)
    assert ahead.run is None


def test_what_is_cancelled_behind_a_run_is_not_shown() -> None:
    """Between two runs, as between two blocks: what is drafted and not committed is dropped, and
    counted."""
    machine = started("gated")
    machine.next(0.0)
    take(machine, [0, 1, 2, 4, 6], [CALM])
    machine.cancel()
    assert machine.next(0.0) == Done("cancelled")
    assert machine.sequence.answer == []
    assert (machine.counts.n_drafted, machine.counts.n_wasted, machine.counts.blocks) == (5, 5, 0)


@pytest.mark.parametrize(
    ("end", "reason", "shown"),
    [(STOP, "sentence", (0, 1, 2, 4, 6, STOP)), (EOS, "eos", (0, 1, 2, 4, 6))],
)
def test_nothing_behind_a_stop_inside_a_run_is_kept(
    end: int, reason: str, shown: tuple[int, ...]
) -> None:
    """Whatever the drafter says has passed."""
    machine = started("gated")
    machine.next(0.0)
    take(machine, [0, 1, 2, 4, 6, end, 7, 8, 10, 11, 13, 14], [])
    assert machine.next(0.0) == Emit(shown, verified=False)
    assert machine.next(0.0) == Done(reason)
    counts = machine.counts
    assert (counts.blocks, counts.n_drafted, counts.n_wasted) == (2, 12, 6)
    assert machine.sequence.answer == list(shown)


def test_ids_without_signals_are_refused_outside_a_run() -> None:
    machine = started("gated", pace=Pace(1.0))
    machine.next(0.0)
    machine.sequence.extend([0, 1, 2, 4])
    with pytest.raises(ValueError, match="a signal each"):
        machine.drafted([0, 1, 2, 4], [CALM])


def test_the_first_id_says_nothing_about_the_pace() -> None:
    """Its step feeds what is left of the prompt, too."""
    machine = started("edge", pace=Pace(0.002))
    machine.next(0.0)
    take(machine, [4], [CALM], 5.0)
    assert machine.pace.draft_s == 0.002
    machine.next(5.0)
    machine.next(5.0)
    take(machine, [6], [CALM], 5.001)
    assert machine.pace.draft_s == pytest.approx(0.0017)

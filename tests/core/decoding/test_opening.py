"""An opening is shown before its block is whole, and its block is judged as if it were not."""

from __future__ import annotations

import pytest
from fakes import toy_vocabulary

from streamer.core.decoding.gate import Gate, Signal
from streamer.core.decoding.plan import Action, DraftMore, Emit, Plan, Verify
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.speculate import Speculator
from streamer.core.decoding.verdict import Verdict
from streamer.core.rules.settings import Rules

VOCABULARY = toy_vocabulary()
STOP = 9
GATE = Gate(entropy=None, surprise=1.0, density=None)


def signal(log_prob: float) -> Signal:
    return Signal(0.0, 1.0, log_prob)


def machine(mode: str = "gated", k: int = 3, gate: Gate = GATE) -> Speculator:
    sequence = Sequence((3, 7, 1))
    sequence.start_answer()
    return Speculator(Plan(mode, k, gate, Rules.off()), VOCABULARY, sequence)


def draft(
    spec: Speculator, ids: list[int], log_probs: list[float], is_opening: bool = False
) -> list[Action]:
    """All that is wanted then, up to what needs somebody."""
    spec.sequence.extend(ids)
    spec.drafted(ids, [signal(p) for p in log_probs], 0.0, is_opening)
    found = [spec.next(0.0)]
    while isinstance(found[-1], Emit):
        found.append(spec.next(0.0))
    return found


def test_it_is_shown_at_once_and_the_rest_of_its_block_follows() -> None:
    spec = machine()
    assert draft(spec, [0], [-0.001], True) == [Emit((0,), verified=False), DraftMore(2)]
    assert spec.counts.blocks == 0
    assert draft(spec, [1, 2], [-0.1, -0.1]) == [Emit((1, 2), verified=False), DraftMore(3)]
    assert spec.counts.blocks == 1


def test_what_is_no_opening_waits_for_its_block() -> None:
    assert draft(machine(), [0], [-0.1]) == [DraftMore(2)]


@pytest.mark.parametrize("log_prob", [-0.001, -0.009])
def test_its_doubt_counts_in_its_block(log_prob) -> None:
    """So the same blocks are verified as ever: here the opening's own doubt decides."""
    plain, spec = machine(), machine()
    draft(plain, [0], [log_prob])
    draft(spec, [0], [log_prob], True)
    assert spec.sequence.n_committed == 1
    rest = [draft(each, [1, 2], [-0.5, -0.495])[-1] for each in (plain, spec)]
    assert [isinstance(action, Verify) for action in rest] == [log_prob == -0.009] * 2


def test_the_target_corrects_what_follows_it() -> None:
    spec = machine()
    draft(spec, [0], [-0.001], True)
    [asked] = draft(spec, [1, 2], [-0.5, -0.6])
    assert isinstance(asked, Verify)
    assert asked.request.draft == (1, 2)
    assert asked.request.unverified == (0,)
    spec.verdict(Verdict(asked.request.number, 1, 5, (-0.1, -0.2)), 0.0)
    assert spec.next(0.0).ids == (1, 5)
    assert spec.sequence.answer == [0, 1, 5]


@pytest.mark.parametrize("log_prob", [-0.1, -1.5])
def test_in_doubt_alone_it_waits(log_prob) -> None:
    assert draft(machine(), [0], [log_prob], True) == [DraftMore(2)]


@pytest.mark.parametrize(("mode", "k"), [("exact", 3), ("gated", 1)])
def test_it_is_nothing_else_in_other_modes_or_where_it_is_the_block(mode, k) -> None:
    plain, spec = machine(mode, k), machine(mode, k)
    assert draft(plain, [0], [-0.001]) == draft(spec, [0], [-0.001], True)


def test_one_that_ends_the_answer_is_a_block() -> None:
    plain, spec = machine(), machine()
    assert draft(plain, [STOP], [-0.001]) == draft(spec, [STOP], [-0.001], True)

"""Each reason to fire, alone; and that none fires on a plain block."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.decoding.plan import SIGNALS, Gate, Signal, density, doubt, fires
from streamer.core.text.vocabulary import Vocabulary

TOKENS = ["音", "色", "中", "，", "慢", "。", "、", "，："]
VOCABULARY = Vocabulary.build([*(t.encode() for t in TOKENS), b"<eos>"], [8], [8])
CALM = Signal(entropy=0.1, margin=0.9, log_prob=-0.05)
ALL = Gate(entropy=2.0, margin=0.2, log_prob=-3.0)


def reason(
    block: list[int], *signals: Signal, gate: Gate = ALL, answer: tuple[int, ...] = ()
) -> str | None:
    return fires(gate, VOCABULARY, answer, block, [*signals, *[CALM] * (len(block) - len(signals))])


def test_a_calm_block_does_not_fire() -> None:
    assert reason([0, 1, 2, 3]) is None
    assert reason([]) is None


def test_one_uncertain_id_is_enough() -> None:
    assert reason([0, 1, 2], CALM, Signal(2.1, 0.9, -0.05)) == "entropy"
    assert reason([0, 1, 2], CALM, CALM, Signal(0.1, 0.1, -0.05)) == "margin"
    assert reason([0, 1, 2], Signal(0.1, 0.9, -3.1)) == "log_prob"
    off = Gate(entropy=None, margin=None, log_prob=None)
    assert reason([0, 1, 2], Signal(9.0, 0.0, -9.0), gate=off) is None


def test_surprise_adds_up_over_the_block_and_a_comma_counts_a_quarter() -> None:
    unsure = Signal(0.1, 0.9, -1.0)
    assert doubt("surprise", VOCABULARY, [0, 1], [unsure, unsure]) == pytest.approx(2.0)
    assert doubt("surprise", VOCABULARY, [0, 3], [unsure, unsure]) == pytest.approx(1.25)
    gate = Gate(entropy=None, surprise=1.9)
    assert reason([0, 1, 2], unsure, gate=gate) is None, "no id alone is above it"
    assert reason([0, 1, 2], unsure, unsure, gate=gate) == "surprise"


@given(
    st.lists(st.tuples(st.floats(0, 9), st.floats(0, 1), st.floats(-9, 0)), min_size=1, max_size=6),
    st.sampled_from(sorted(SIGNALS)),
    st.floats(-9, 9),
)
def test_a_gate_fires_iff_the_doubt_is_above_its_threshold(
    numbers: list[tuple[float, float, float]], name: str, limit: float
) -> None:
    """A threshold that was certified on `doubt` then means the same at run time."""
    block, signals = [0, 1, 2, 4, 0, 4][: len(numbers)], [Signal(*n) for n in numbers]
    gate = Gate(**{"entropy": None, "loop": False, name: SIGNALS[name] * limit})
    assert fires(gate, VOCABULARY, [], block, signals) == (
        name if doubt(name, VOCABULARY, block, signals) > limit else None
    )


def test_punctuation_is_counted_by_character_of_the_block() -> None:
    assert reason([0, 3, 6]) == "density"
    assert reason([0, 1, 7]) == "density", "an id of two signs counts twice"
    assert reason([0, 1, 2, 3, 3]) is None, "exactly 0.4"
    assert reason([0, 3, 6], gate=Gate(2.0, density=None)) is None
    assert reason([1, 5]) is None
    assert reason([5]) is None, "the sentence's end alone is no flood"
    assert density("") == 0.0


def test_loop_suspicion_looks_across_blocks() -> None:
    answer = (0, 1, 2, 4, 0)
    assert reason([1, 2], answer=answer) == "loop"
    assert reason([1, 2]) is None
    assert reason([1, 2], answer=answer, gate=Gate(2.0, loop=False)) is None

"""Each reason to fire, alone; and that none fires on a plain block."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.calibration import Block
from streamer.core.decoding.plan import Gate, Signal, density, fires
from streamer.core.text.vocabulary import Vocabulary

TOKENS = ["音", "色", "中", "，", "慢", "。", "、", "，："]
VOCABULARY = Vocabulary.build([*(t.encode() for t in TOKENS), b"<eos>"], [8], [8])
CALM = Signal(entropy=0.1, log_prob=-0.05)
ALL = Gate(entropy=2.0)
ANSWER = (0, 1, 2, 4, 0)


@pytest.mark.parametrize(
    ("why", "block", "answer", "gate"),
    [
        (None, [0, 1, 2, 3], (), ALL),
        (None, [], (), ALL),
        ("density", [0, 3, 6], (), ALL),
        ("density", [0, 1, 7], (), ALL),  # an id of two signs counts twice
        (None, [0, 1, 2, 3, 3], (), ALL),  # exactly 0.4
        (None, [0, 3, 6], (), Gate(2.0, density=None)),
        (None, [5], (), ALL),  # the sentence's end alone is no flood
        ("loop", [1, 2], ANSWER, ALL),  # it shows across blocks only
        (None, [1, 2], (), ALL),
        (None, [1, 2], ANSWER, Gate(2.0, loop=False)),
    ],
)
def test_what_the_text_of_a_block_says(why, block, answer, gate) -> None:
    assert fires(gate, VOCABULARY, answer, block, [CALM] * len(block)) == why
    assert density("") == 0.0


@given(st.lists(st.floats(0, 9), min_size=1, max_size=6), st.floats(0, 9))
def test_a_gate_fires_iff_the_entropy_of_an_id_is_above_its_threshold(
    numbers: list[float], limit: float
) -> None:
    """A threshold that was certified on `Block.doubt` then means the same at run time."""
    ids, signals = [0, 1, 2, 4, 0, 4][: len(numbers)], [Signal(n, -1.0) for n in numbers]
    why = fires(Gate(limit, loop=False), VOCABULARY, [], ids, signals)
    assert why == ("entropy" if max(numbers) > limit else None)
    assert Block(tuple(ids), tuple(signals), 0, 0, False).doubt == max(numbers)

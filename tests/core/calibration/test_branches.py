"""The walk over prefixes against the state machine itself: at every threshold the same ids, blocks
and uploads."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.core.calibration import Block, Branches, Prefix
from streamer.core.decoding.gate import Gate, Signal, doubt, fires
from streamer.core.decoding.machine import Speculator
from streamer.core.decoding.plan import Done, DraftMore, Emit, Plan, Verify
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.verdict import Verdict
from streamer.core.rules.settings import Rules
from streamer.core.rules.stop import stop
from streamer.core.text.vocabulary import Vocabulary

TOKENS = ["音", "色", "中", "，", "慢", "。", "高", "低"]
VOCABULARY = Vocabulary.build([*(t.encode() for t in TOKENS), b"<eos>"], [8], [8])
RULES = Rules.off(min_new_tokens=4, max_new_tokens=24, loop_global=True)


class Toy:
    """A pair whose every choice is a hash of the seed and the prefix: arbitrary, but the same each
    time."""

    def __init__(self, seed: int, k: int, agreement: int) -> None:
        self.seed, self.k, self.agreement, self.num_asked = seed, k, agreement, 0

    def _hash(self, answer: Prefix, what: int) -> int:
        return hash((self.seed, what, answer)) & 0xFFFF

    def cloud(self, answer: Prefix) -> int:
        return self._hash(answer, 1) % 9

    def edge(self, answer: Prefix) -> tuple[int, Signal]:
        agrees = self._hash(answer, 2) % 10 < self.agreement
        number = self.cloud(answer) if agrees else self._hash(answer, 3) % 9
        return number, Signal(
            self._hash(answer, 4) % 7 / 2,
            self._hash(answer, 5) % 9 / 9,
            -self._hash(answer, 6) % 5 / 1.0,
        )

    def block(self, prefix: Prefix) -> tuple[list[int], list[Signal]]:
        answer, ids, signals = list(prefix), [], []
        while len(ids) < self.k:
            number, signal = self.edge(tuple(answer))
            ids, signals = [*ids, number], [*signals, signal]
            if stop(VOCABULARY, RULES, answer, number) is not None:
                break
            answer.append(number)
        return ids, signals

    def verdict(self, prefix: Prefix, draft: list[int]) -> tuple[int, int]:
        n = 0
        while n < len(draft) and draft[n] == self.cloud((*prefix, *draft[:n])):
            n += 1
        return n, self.cloud((*prefix, *draft[:n]))

    def block_at(self, prefix: Prefix) -> Block:
        self.num_asked += 1
        ids, signals = self.block(prefix)
        forced = fires(Gate(entropy=None), VOCABULARY, prefix, ids, signals) is not None
        return Block(tuple(ids), tuple(signals), *self.verdict(prefix, ids), forced)


def really(toy: Toy, gate: Gate) -> tuple[Prefix, list[tuple[tuple[int, ...], bool]], int]:
    """(answer, [(block, uploaded)], uploads) of the state machine in gated mode."""
    sequence = Sequence([0])
    sequence.start_answer()
    spec = Speculator(Plan("gated", toy.k, gate, RULES), VOCABULARY, sequence)
    blocks: list[tuple[tuple[int, ...], bool]] = []
    while True:
        answer = tuple(sequence.answer[: sequence.n_committed])
        match spec.next(0.0):
            case DraftMore(n):
                ids, signals = toy.block(answer)
                assert len(ids) <= n
                sequence.extend(ids)
                spec.drafted(ids, signals)
                blocks.append((tuple(ids), False))
            case Verify(request):
                blocks[-1] = blocks[-1][0], True
                spec.verdict(Verdict(request.number, *toy.verdict(answer, list(request.draft))))
            case Emit():
                pass
            case Done():
                return (
                    tuple(sequence.answer[: sequence.n_committed]),
                    blocks,
                    spec.counts.cloud_calls,
                )


SCORES = {"entropy": 1.0, "margin": -1.0}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(3, 9), st.sampled_from(sorted(SCORES)))
def test_every_path_is_what_gated_mode_does(seed: int, k: int, agreement: int, signal: str) -> None:
    toy = Toy(seed, k, agreement)
    branches = Branches(toy.block_at, VOCABULARY, RULES)
    paths = branches.paths(lambda block: doubt(signal, VOCABULARY, block.ids, block.signals))
    leasts = [path.least for path in paths]
    assert leasts == sorted(set(leasts), reverse=True)
    assert leasts[-1] == -math.inf
    highest = math.inf
    for path in paths:
        # both ends of its range
        for limit in {max(path.least, -9.0), min(math.nextafter(highest, -math.inf), 99.0)}:
            threshold = SCORES[signal] * limit
            gate = Gate(**{"entropy": None, signal: threshold})
            answer, blocks, calls = really(toy, gate)
            assert answer == path.answer
            assert blocks == [(d.block.ids, d.uploaded) for d in path.decisions]
            assert calls == path.num_uploaded
        highest = path.least


@given(st.integers(0, 10**6), st.integers(3, 9))
def test_each_prefix_is_asked_for_once(seed: int, agreement: int) -> None:
    toy = Toy(seed, 4, agreement)
    branches = Branches(toy.block_at, VOCABULARY, RULES)
    for signal in ("entropy", "margin", "log_prob", "surprise", "entropy"):
        paths = branches.paths(
            lambda block, s=signal: doubt(s, VOCABULARY, block.ids, block.signals)
        )
        assert not any(
            d.block.changed for d in paths[0].decisions if d.uploaded and not d.block.forced
        )
        assert paths[-1].num_missed == 0
    visited = toy.num_asked
    branches.paths(lambda block: doubt("margin", VOCABULARY, block.ids, block.signals))
    assert toy.num_asked == visited


def test_a_missed_change_is_counted_and_a_bonus_token_is_not() -> None:
    calm = (Signal(0.1, 0.9, -0.1),)
    blocks = {
        (): Block((0,), calm, 1, 2, False),
        (0,): Block((4,), calm, 0, 6, False),
        (0, 4): Block((8,), calm, 1, 0, False),
    }
    path = Branches(blocks.__getitem__, VOCABULARY, RULES).path(lambda block: 0.0, 1.0)
    assert (path.answer, path.num_missed, path.num_uploaded, len(path.decisions)) == (
        (0, 4),
        1,
        0,
        3,
    )
    with pytest.raises(KeyError):
        Branches(blocks.__getitem__, VOCABULARY, RULES).path(lambda block: 0.0, -1.0)

"""Gated decoding of one turn at EVERY threshold. In: what edge and cloud say. Out: paths.

Greedy gated decoding is a walk on committed prefixes: behind each the edge drafts one block, and
the cloud, teacher- forced on that prefix, would change it or not. The gate only picks the branch. A
block that is skipped is looked at by the cloud all the same (nobody acts on it): so one visit of
each prefix tells what every threshold would have done.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from streamer.core.decoding.gate import Signal
from streamer.core.rules.settings import Rules
from streamer.core.rules.stop import stop
from streamer.core.text.vocabulary import Vocabulary

Prefix = tuple[int, ...]  # the answer's committed ids


@dataclass(frozen=True, slots=True)
class Block:
    """What happens behind one prefix. forced: by a test without a threshold (density, loop)."""

    ids: tuple[int, ...]
    signals: tuple[Signal, ...]
    n_accepted: int
    next_id: int
    forced: bool

    @property
    def changed(self) -> bool:
        """Whether the cloud rejects any of its ids; a bonus token is no change."""
        return self.n_accepted < len(self.ids)


BlockAt = Callable[[Prefix], Block]
Score = Callable[[Block], float]  # a block is uploaded when its score is above the threshold


@dataclass(frozen=True, slots=True)
class Decision:
    """One block on a path. doubt: its score, infinite where it is forced up."""

    block: Block
    doubt: float
    uploaded: bool


@dataclass(frozen=True, slots=True)
class Path:
    """Gated mode at every threshold from `least` up to the next path's. answer: all it commits."""

    least: float
    answer: Prefix
    decisions: tuple[Decision, ...]

    @property
    def num_missed(self) -> int:
        """Skipped blocks that the cloud would have changed."""
        return sum(d.block.changed and not d.uploaded for d in self.decisions)

    @property
    def num_uploaded(self) -> int:
        return sum(d.uploaded for d in self.decisions)


class Branches:
    """The walk over one turn's prefixes; each is visited once, however many scores ask."""

    def __init__(self, block_at: BlockAt, vocabulary: Vocabulary, rules: Rules) -> None:
        self._block_at = block_at
        self._vocabulary = vocabulary
        self._rules = rules
        self._seen: dict[Prefix, Block] = {}

    def path(self, score: Score, threshold: float) -> Path:
        """The turn with this threshold: `math.inf` is the edge alone, `-math.inf` exact mode."""
        prefix: Prefix = ()
        over = False
        least = -math.inf
        decisions: list[Decision] = []
        while not over:
            block = self._block(prefix)
            doubt = math.inf if block.forced else score(block)
            uploaded = block.forced or doubt > threshold
            if not uploaded:
                least = max(least, doubt)
            decisions.append(Decision(block, doubt, uploaded))
            prefix, over = self._commit(prefix, block, uploaded)
        return Path(least, prefix, tuple(decisions))

    def paths(self, score: Score) -> list[Path]:
        """Every path, by falling threshold; the last one skips nothing and holds from -inf on."""
        found = [self.path(score, math.inf)]
        while found[-1].least > -math.inf:
            found.append(self.path(score, math.nextafter(found[-1].least, -math.inf)))
        return found

    def _block(self, prefix: Prefix) -> Block:
        if prefix not in self._seen:
            self._seen[prefix] = self._block_at(prefix)
        return self._seen[prefix]

    def _commit(self, prefix: Prefix, block: Block, uploaded: bool) -> tuple[Prefix, bool]:
        """(the prefix behind the block, whether the answer is over), as in the state machine."""
        answer = list(prefix)
        for token in (*block.ids[: block.n_accepted], block.next_id) if uploaded else block.ids:
            stopped = stop(self._vocabulary, self._rules, answer, token)
            if stopped is None or stopped.keep:
                answer.append(token)
            if stopped is not None:
                return tuple(answer), True
        return tuple(answer), False

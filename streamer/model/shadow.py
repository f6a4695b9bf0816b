"""The pair behind any prefix of a turn. In: its listeners. Out: branches.py's Blocks.

Audio is encoded and prefilled once per model; each question rolls both sequences back by length and
feeds only what differs from the last one.
"""

from __future__ import annotations

from streamer.core.calibration import Block, Prefix
from streamer.core.decoding.gate import Gate, fires
from streamer.core.decoding.plan import Plan
from streamer.core.decoding.verdict import Verdict, VerifyRequest, prefix_hash
from streamer.core.rules.level_weights import FLAT, LevelWeights
from streamer.core.rules.sampling import Sampling
from streamer.model.drafters import IncrementalDrafter
from streamer.model.listener import Listener
from streamer.model.scheduler import drive
from streamer.model.verifier import LocalVerifier

UNTHRESHOLDED = Gate(entropy=None)  # density and loop alone


class Shadow:
    """Edge and cloud of one turn whose audio is in, greedy, under one plan."""

    def __init__(
        self, edge: Listener, cloud: Listener, plan: Plan, weights: LevelWeights = FLAT
    ) -> None:
        self._edge = edge
        self._plan = plan
        self._cloud = cloud
        self._drafter = IncrementalDrafter(edge, plan.rules, Sampling(), weights)
        self._verifier = LocalVerifier(cloud, plan.rules, Sampling(), weights)
        self._number = 0

    def block_at(self, prefix: Prefix) -> Block:
        """The block that the edge drafts behind `prefix`, and what the cloud makes of it."""
        self._rewind(prefix)
        ids, signals = drive(self._edge.engine, self._drafter.draft(self._plan.k))
        self._number += 1
        request = VerifyRequest(self._number, 0, prefix_hash([]), prefix, tuple(ids))
        verdict = drive(self._cloud.engine, self._verifier.verify(request))
        assert isinstance(verdict, Verdict), "requests are numbered in order and start from nothing"
        forced = (
            fires(UNTHRESHOLDED, self._edge.thinker.vocabulary, prefix, ids, signals) is not None
        )
        return Block(tuple(ids), tuple(signals), verdict.n_accepted, verdict.next_id, forced)

    def _rewind(self, prefix: Prefix) -> None:
        """Make the edge's answer `prefix`, keeping what is the same."""
        sequence = self._edge.sequence
        answer = sequence.answer
        n = 0
        while n < min(len(answer), len(prefix)) and answer[n] == prefix[n]:
            n += 1
        sequence.replace_tail(sequence.answer_start + n)
        sequence.extend(prefix[n:])

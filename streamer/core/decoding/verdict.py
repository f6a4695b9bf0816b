"""The target's side of a block: the accept rule, and one Verdict or Refusal for each VerifyRequest.

The edge may repeat a request (a lost reply) and the link may delay or reorder them. A repeat gets
the same verdict again without a second step. An older number, a known number with other ids, and
another prefix are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field

import numpy as np

from streamer.core.decoding.sequence import Sequence


def accept(draft: Ids[int], chosen: Ids[int]) -> tuple[int, int]:
    """Return (n_accepted, next_id) for `draft` of length k against the target's `chosen` of length
    k + 1.

    `next_id` is the correction after the first mismatch, or the bonus token after a clean block.
    Raises ValueError when the lengths do not fit.
    """
    if len(chosen) != len(draft) + 1:
        raise ValueError(
            f"{len(draft)} draft ids need {len(draft) + 1} target choices, got {len(chosen)}"
        )
    n = 0
    while n < len(draft) and draft[n] == chosen[n]:
        n += 1
    return n, chosen[n]


MAX_REPLIES = 256  # kept for a repeat: more than an answer has ids


def prefix_hash(ids: Ids[int]) -> bytes:
    """8 bytes that name the ids of an answer's beginning (BLAKE2b over little-endian int32)."""
    return hashlib.blake2b(np.asarray(ids, dtype="<i4").tobytes(), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """Ask the target about one block.

    number: grows by one per block of an answer. base: index in the ANSWER up to which the target
    agrees with the edge. prefix: `prefix_hash(answer[:base])`. unverified: ids committed since
    without it. draft: the block.
    """

    number: int
    base: int
    prefix: bytes
    unverified: tuple[int, ...]
    draft: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`n_accepted` ids of the block stand; `next_id` follows them (correction, or bonus token).

    log_probs: of each of them and the next one, in the target's raw softmax, rounded to float16 so
    that they are the same near and far; empty where the target gives none.
    """

    number: int
    n_accepted: int
    next_id: int
    log_probs: tuple[float, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The request was not applied: `reason` is "stale", "number" or "prefix"."""

    number: int
    reason: str


class TargetLedger:
    """Keeps the target's sequence in step with commits, and the latest verdicts for a repeat."""

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence
        self._number = 0  # the latest request that was applied
        self._replies: dict[int, tuple[VerifyRequest, Verdict]] = {}  # the latest MAX_REPLIES

    def begin(self, request: VerifyRequest) -> Verdict | Refusal | None:
        """Put the request's ids in place. None: feed `pending`, choose k + 1, `conclude`."""
        if request.number in self._replies:
            asked, verdict = self._replies[request.number]
            return verdict if request == asked else Refusal(request.number, "number")
        if request.number <= self._number:
            return Refusal(request.number, "stale")
        answer = self.sequence.answer
        if request.base > len(answer) or prefix_hash(answer[: request.base]) != request.prefix:
            return Refusal(request.number, "prefix")
        self._number = request.number
        # a lost verdict: keep what was fed for it
        n_same = num_same(answer[request.base :], request.unverified)
        kept = self.sequence.answer_start + request.base + n_same
        # Two steps, so that the id before the block keeps its logits to come even when nothing
        # is new before it.
        self.sequence.replace_tail(kept, request.unverified[n_same:])
        self.sequence.extend(request.draft)
        return None

    def conclude(
        self, request: VerifyRequest, chosen: Ids[int], log_probs: Ids[float] = ()
    ) -> Verdict:
        """Accept against the target's `chosen` [k + 1], roll back to what stands, append the next
        id. log_probs: of those that stand, at least, and of the next one."""
        n_accepted, next_id = accept(request.draft, chosen)
        kept = len(self.sequence) - len(request.draft) + n_accepted
        self.sequence.replace_tail(kept, [next_id])
        rounded = np.array(log_probs[: n_accepted + 1], np.float16).tolist()
        verdict = Verdict(request.number, n_accepted, next_id, tuple(rounded))
        self._replies[request.number] = request, verdict
        if len(self._replies) > MAX_REPLIES:
            del self._replies[min(self._replies)]
        return verdict


def num_same(a: Ids[object], b: Ids[object]) -> int:
    """How many ids, or characters, the two have in common at their beginning."""
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )

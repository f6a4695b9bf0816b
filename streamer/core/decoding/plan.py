"""How one answer is decoded: the plan, the actions of the state machine and the counts of its cost;
and how a block is judged, by the gate and by the target (docs/decoding.md).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

import numpy as np
from msgspec import Meta, Struct

from streamer.core.rules.settings import Rules, loop_suspected
from streamer.core.text.vocabulary import PUNCTUATION, SENTENCE_ENDS, Vocabulary


class Signal(NamedTuple):
    """Two numbers about one drafted id.

    entropy: of the distribution that it was chosen from, nats; in a form, that of the allowed ids
    with their biases. log_prob: of the id, always in the raw softmax.
    """

    entropy: float
    log_prob: float


class Preset(NamedTuple):
    """The gate's threshold, in nats, and how many ids to draft per block."""

    threshold: float
    k: int


# For Qwen's vocabulary: the middle of 5.5-6.0 and of 3.0-3.5. A streamer.json may carry others.
PRESETS = {"fluent": Preset(5.75, k=4), "quality": Preset(3.25, k=6)}
MAX_DENSITY = 0.4  # punctuation per character of a block


def fires(
    threshold: float,
    vocabulary: Vocabulary,
    answer: Ids[int],
    block_ids: Ids[int],
    signals: Ids[Signal],
) -> bool:
    """Whether the gate wants the block after `answer` verified: for an entropy above `threshold`,
    much punctuation, or the look of a loop.

    `signals`: one per id of the block. An empty block never fires.
    """
    if not block_ids:
        return False
    if max(s.entropy for s in signals) > threshold:
        return True
    text = vocabulary.text_of(block_ids)
    # The end that closes the block does not count: a last block of "。" alone is no flood.
    counted = text[:-1] if text[-1:] in SENTENCE_ENDS else text
    if sum(c in PUNCTUATION for c in counted) / max(1, len(text)) > MAX_DENSITY:
        return True
    return loop_suspected([*answer[-12:], *block_ids])


def num_same(a: Ids[object], b: Ids[object]) -> int:
    """How many ids, or characters, the two have in common at their beginning."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def accept(draft: Ids[int], chosen: Ids[int]) -> tuple[int, int]:
    """(n_accepted, next_id) for a `draft` of k ids against the k + 1 that the target has `chosen`.

    `next_id` is the correction after the first mismatch, or the bonus token after a clean block.
    Raises ValueError when the lengths do not fit.
    """
    if len(chosen) != len(draft) + 1:
        raise ValueError(
            f"{len(draft)} draft ids need {len(draft) + 1} target choices, got {len(chosen)}"
        )
    n = num_same(draft, chosen)
    return n, chosen[n]


def prefix_hash(ids: Ids[int]) -> bytes:
    """8 bytes that name the ids of an answer's beginning (BLAKE2b over little-endian int32)."""
    return hashlib.blake2b(np.asarray(ids, dtype="<i4").tobytes(), digest_size=8).digest()


Count = Annotated[int, Meta(ge=0, lt=1 << 31)]
Id = Annotated[int, Meta(ge=0, lt=1 << 24)]
MAX_IDS = 320  # of one list: the longest answer and the longest draft, with room
IdList = Annotated[tuple[Id, ...], Meta(max_length=MAX_IDS)]
Word = Annotated[str, Meta(max_length=200)]


class Message(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """On the link a MessagePack array: the kind, then the fields (core/link/wire.py)."""


class VerifyRequest(Message, tag=4, frozen=True):
    """Ask the target about one block.

    number: grows by one per block of an answer. base: index in the ANSWER up to which the target
    agrees with the edge. prefix: `prefix_hash(answer[:base])`. unverified: ids committed since
    without it. draft: the block. runs_on: the edge drafts nothing, so a verifier elsewhere decodes
    alone to the end, with a Verdict per id.
    """

    number: Count
    base: Count
    prefix: Annotated[bytes, Meta(min_length=8, max_length=8)]
    unverified: IdList
    draft: IdList
    runs_on: bool = False


class Verdict(Message, tag=3, frozen=True):
    """`n_accepted` ids of the block stand; `next_id` follows them (correction, or bonus token).

    log_probs_f16: their log-probabilities and that of the next id, in the target's raw softmax, as
    little-endian float16; empty where the target gives none.
    """

    number: Count
    n_accepted: Count
    next_id: Id
    log_probs_f16: Annotated[bytes, Meta(max_length=2 * MAX_IDS)] = b""

    def __post_init__(self) -> None:
        """Raises ValueError for impossible log-probabilities."""
        if not self.log_probs_f16:
            return
        if len(self.log_probs_f16) != 2 * (self.n_accepted + 1):
            n = f"{self.n_accepted + 1} ids"
            raise ValueError(f"{len(self.log_probs_f16)} bytes are no log-probabilities of {n}")
        if not all(-math.inf < one <= 0 for one in self.log_probs):
            raise ValueError("numbers that are no log-probabilities")

    @property
    def log_probs(self) -> tuple[float, ...]:
        """One for each id that stands, and one for the next id; or none."""
        return tuple(np.frombuffer(self.log_probs_f16, "<f2").tolist())


class Refusal(Message, tag=4, frozen=True):
    """The request was not applied: `reason` is "prefix", for other ids."""

    number: Count
    reason: Word


Mode = Literal["gated", "exact", "edge", "cloud"]


class DraftMore(NamedTuple):
    """Draft up to `n` ids onto the sequence, then report them with `drafted` (at least one)."""

    n: int


class Emit(NamedTuple):
    """Show `ids` now; they are committed.

    log_probs: one per id, in the raw softmax of the model that chose it last: the target where they
    are verified. Empty where the target gave none.
    """

    ids: tuple[int, ...]
    verified: bool
    log_probs: tuple[float, ...] = ()


class Wait(NamedTuple):
    """A verdict is on its way; call `next` when it is here, or at `until` (seconds)."""

    until: float


class Done(NamedTuple):
    """The answer is over: sentence, eos, loop, max_tokens, cancelled or error."""

    reason: str


# VerifyRequest: send it to the target, then report its verdict; earlier ones may come first
Action = DraftMore | VerifyRequest | Emit | Wait | Done


@dataclass(frozen=True, slots=True)
class Plan:
    """How one answer is decoded."""

    mode: Mode = "gated"
    k: int = 4  # draft length
    threshold: float = PRESETS["fluent"].threshold  # of the gate, nats
    rules: Rules = field(default_factory=Rules)
    verify_budget_s: float = 5.0  # gated goes on unverified after it, exact ends with `error`
    ahead: int = 0  # ids that may be drafted after the oldest block on its way
    credits: int = 1  # blocks that may be on their way
    grows: bool = False  # drafts after the first may be longer: as many ids as are quick


@dataclass(slots=True)
class Counts:
    """The cost of one answer, in ids; `cloud_calls` are verify steps, `blocks` are of drafts."""

    n_drafted: int = 0
    n_uploaded: int = 0
    n_accepted: int = 0
    n_corrected: int = 0
    n_wasted: int = 0  # drafted for the committed prefix, never committed
    n_ahead_wasted: int = 0  # drafted ahead of a verdict, dropped
    n_verified: int = 0  # committed with the target's agreement
    n_committed: int = 0
    cloud_calls: int = 0
    blocks: int = 0
    blocks_unverified: int = 0  # the gate or the mode wanted them verified, and they are not
    stall_ms: float = 0.0  # with nothing to do but wait for a verdict
    bytes_up: int = 0  # to a target elsewhere, audio and ids
    bytes_down: int = 0

    @property
    def verified_share(self) -> float:
        """Share of the committed ids that the target agreed to; 0 for an empty answer."""
        return self.n_verified / self.n_committed if self.n_committed else 0.0


AT_ONCE_S = 0.008  # length of one drafting step: ids are shown, and verdicts applied, after it


@dataclass
class Pace:
    """The moving average of seconds per drafted id, shared by all turns."""

    draft_s: float = 0.002

    def drafted(self, n: int, seconds: float) -> None:
        """Take the time of one step that drafted `n` ids, with a weight of 0.3."""
        self.draft_s += 0.3 * (max(1e-5, seconds / n) - self.draft_s)

    @property
    def num_at_once(self) -> int:
        """How many ids to draft in one step where something waits for its end."""
        return max(1, min(32, int(AT_ONCE_S / self.draft_s)))

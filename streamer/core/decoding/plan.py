"""How one answer is decoded: the gate (docs/decoding.md), the plan, the actions of the state
machine, and what the answer cost.

Thresholds of the gate are for the softmax that an id is chosen from: in a form, that of the allowed
ids with their biases; else the RAW softmax, before any rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from streamer.core.decoding.verdict import VerifyRequest
from streamer.core.rules.constrain import loop_suspected
from streamer.core.rules.settings import Rules
from streamer.core.text.characters import PUNCTUATION, SENTENCE_ENDS
from streamer.core.text.vocabulary import Vocabulary


class Signal(NamedTuple):
    """Three numbers about one drafted id, from the drafter's softmax.

    entropy: of the distribution that the id was chosen from, nats. margin: p1 - p2 of its two
    likeliest. log_prob: of the CHOSEN id, always in the raw softmax.
    """

    entropy: float
    margin: float
    log_prob: float


@dataclass(frozen=True)
class Gate:
    """Fires when any id of a block passes a threshold. None switches that test off."""

    entropy: float | None = 5.75  # max entropy above this, nats (report 5)
    margin: float | None = None  # min margin below this
    log_prob: float | None = None  # min log-probability below this, nats
    surprise: float | None = None  # the block's weighted -log-probability above this, nats
    density: float | None = 0.4  # more punctuation than this per character of the block (report 5)
    loop: bool = True  # the answer with the block looks like the start of a loop (report 3)


# A signal's threshold as the user states it, times this, is the doubt above which the gate
# fires.
SIGNALS = {"entropy": 1.0, "margin": -1.0, "log_prob": -1.0, "surprise": 1.0}
PUNCTUATION_WEIGHT = 0.25  # in a block's surprise: no attribute depends on a comma


@dataclass(frozen=True)
class Preset:
    """A gate and how many ids to draft per block."""

    gate: Gate
    k: int


# Fix report 5, for Qwen's vocabulary: the middle of 5.5-6.0 and of 3.0-3.5. A streamer.json may
# carry others.
PRESETS = {"fluent": Preset(Gate(entropy=5.75), k=4), "quality": Preset(Gate(entropy=3.25), k=6)}


def fires(
    gate: Gate,
    vocabulary: Vocabulary,
    answer: Sequence[int],
    block_ids: Sequence[int],
    signals: Sequence[Signal],
) -> str | None:
    """Why the block after `answer` should be verified: the name of the first test of `gate` that it
    fails, or None.

    `signals`: one per id of the block. An empty block never fires.
    """
    if not block_ids:
        return None
    for name, sign in SIGNALS.items():
        threshold = getattr(gate, name)
        if threshold is None:
            continue
        if doubt(name, vocabulary, block_ids, signals) > sign * threshold:
            return name
    if gate.density is not None and density(vocabulary.text_of(block_ids)) > gate.density:
        return "density"
    if gate.loop and loop_suspected([*answer[-12:], *block_ids]):
        return "loop"
    return None


def doubt(
    name: str, vocabulary: Vocabulary, ids: Sequence[int], signals: Sequence[Signal]
) -> float:
    """How unsure the drafter was of a block, by one of SIGNALS: more for more doubt. Calibration
    ranks blocks by it.

    surprise: -log of the chance that the raw softmax draws these very ids, those without content
    counting less.
    """
    if name == "entropy":
        return max(s.entropy for s in signals)
    if name == "margin":
        return -min(s.margin for s in signals)
    if name == "log_prob":
        return -min(s.log_prob for s in signals)
    total = 0.0
    # not `sum`: from Python 3.12 on it rounds otherwise
    for i, s in zip(ids, signals, strict=True):
        total += (1.0 if vocabulary.has_content[i] else PUNCTUATION_WEIGHT) * s.log_prob
    return -total


def density(text: str) -> float:
    """Punctuation per character of a block's text (report 5), 0 for none.

    The sentence end that closes the block does not count: a last block of "。" alone is no flood.
    """
    if not text:
        return 0.0
    counted = text[:-1] if text[-1] in SENTENCE_ENDS else text
    return sum(c in PUNCTUATION for c in counted) / len(text)


Mode = Literal["gated", "exact", "edge", "cloud"]
MODES: tuple[Mode, ...] = ("gated", "exact", "edge", "cloud")


@dataclass(frozen=True, slots=True)
class DraftMore:
    """Draft up to `n` ids onto the sequence, then report them with `drafted` (at least one)."""

    n: int


@dataclass(frozen=True, slots=True)
class Verify:
    """Send `request` to the target, then report its verdict; earlier ones may come first."""

    request: VerifyRequest


@dataclass(frozen=True, slots=True)
class Emit:
    """Show `ids` now; they are committed.

    log_probs: one per id, in the raw softmax of the model that chose it last: the target where they
    are verified. Empty where the target gave none.
    """

    ids: tuple[int, ...]
    verified: bool
    log_probs: tuple[float, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Wait:
    """A verdict is on its way; call `next` when it is here, or at `until` (seconds)."""

    until: float


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is over: sentence, eos, loop, max_tokens, cancelled or error."""

    reason: str


Action = DraftMore | Verify | Emit | Wait | Done


@dataclass(frozen=True, slots=True)
class Plan:
    """How one answer is decoded. Raises ValueError."""

    mode: Mode = "gated"
    k: int = 4  # draft length
    gate: Gate = PRESETS["fluent"].gate
    rules: Rules = field(default_factory=Rules)
    verify_budget_s: float = 5.0  # gated goes on unverified after it, exact ends with `error`
    ahead: int = 0  # ids that may be drafted after the oldest block on its way
    credits: int = 1  # blocks that may be on their way
    degrade: bool = False  # exact, too, goes on unverified

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode!r} is none of {', '.join(MODES)}")
        if not 1 <= self.k <= 64:
            raise ValueError(f"k is {self.k}; the draft length must be 1..64")
        if self.ahead < 0 or self.credits < 1:
            raise ValueError(
                f"ahead is {self.ahead}, credits {self.credits}; they must be at least 0 and 1"
            )


@dataclass(slots=True)
class Counts:
    """The cost of one answer, in ids; `cloud_calls` are verify steps, `blocks` are of drafts.

    Acceptance rate = accepted / uploaded. The original counted gate-accepted and corrected ids as
    accepted: it printed .84 where this ratio was .14.
    """

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

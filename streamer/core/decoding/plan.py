"""How one answer is decoded, the actions of its state machine, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from streamer.core.decoding.gate import PRESETS, Gate
from streamer.core.decoding.verdict import VerifyRequest
from streamer.core.rules.settings import Rules

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

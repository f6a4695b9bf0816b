"""What one answer cost. In: events of the state machine. Out: counts (docs/decoding.md).

Acceptance rate = accepted / uploaded. The original counted gate-accepted and corrected ids as
accepted: it printed .84 where this ratio was .14.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """In ids, but `cloud_calls` (verify steps) and `blocks`, `blocks_unverified` (of drafts)."""

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
    # to be verified by the gate's or the mode's word, and committed without a verdict
    blocks_unverified: int = 0
    stall_ms: float = 0.0  # with nothing to do but wait for a verdict
    bytes_up: int = 0  # to a target elsewhere, audio and ids
    bytes_down: int = 0

    @property
    def verified_share(self) -> float:
        """Share of the committed ids that the target agreed to; 0 for an empty answer."""
        return self.n_verified / self.n_committed if self.n_committed else 0.0

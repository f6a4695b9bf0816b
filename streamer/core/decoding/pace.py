"""How fast the edge drafts and the target answers, as measured over the turns of one edge."""

from __future__ import annotations

AT_ONCE_S = 0.004  # of drafting in one step: ids are shown, and verdicts applied, after it
MOST_AT_ONCE = 32
TRACK = 0.3  # weight of the newest time


class Pace:
    """Moving averages, shared by all turns: from the second turn on the link is known.

    draft_s: seconds per drafted id. verdict_s: seconds from a request to its verdict.
    """

    def __init__(self, draft_s: float = 0.002, verdict_s: float = 0.05) -> None:
        self.draft_s = draft_s
        self.verdict_s = verdict_s

    def drafted(self, n: int, seconds: float) -> None:
        """Take the time of one step that drafted `n` ids."""
        self.draft_s += TRACK * (max(1e-5, seconds / n) - self.draft_s)

    def answered(self, seconds: float) -> None:
        """Take the time from a request to its verdict."""
        self.verdict_s += TRACK * (max(1e-5, seconds) - self.verdict_s)

    @property
    def num_at_once(self) -> int:
        """How many ids to draft in one step where something waits for its end."""
        return max(1, min(MOST_AT_ONCE, int(AT_ONCE_S / self.draft_s)))

    def is_worth_a_guess(self, left_s: float) -> bool:
        """Whether to draft ahead of a verdict that is expected in `left_s` seconds.

        The verdict brings the first id there for free, so there must be time for a second one.
        """
        return left_s >= 2 * self.draft_s

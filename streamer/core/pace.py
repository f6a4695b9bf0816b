"""How long a draft should be. In: how long drafting and verdicts take, what is accepted. Out: k.

With C blocks on their way at once, a run of agreement costs the slowest of drafting, the link's share per block and the
target's step; a disagreement costs the whole delay, since what was drafted behind it is dropped:

    a = chance that an id is accepted, t = seconds per drafted id, d = seconds from request to verdict
    goes on   p = a^(k+1)                       the block and the guess at the bonus id
    blocks    n = 1 / (1-p)                     to the first disagreement
    ids       (k+1) (n-1) + (a - p) / (1-a) + 1
    seconds   min(max((k+1) t, d / C), k t + d) (n-1) + k t + d

best_k maximises ids / (seconds + n PRICE_S): a step of the target has its price, else k would be 2 wherever the link is
fast. UCB-SpecStop (arXiv 2606.20591) learns k online without such a model.
"""

from __future__ import annotations

LEAST_K, MOST_K = 2, 16
PRICE_S = 0.01  # of one request
MEMORY = 0.95  # of what was accepted, per verdict
TRACK = 0.3  # weight of the newest time


class Pace:
    """Shared by the turns of one edge: it knows its link from the second turn on."""

    def __init__(self, draft_s: float = 0.002, verdict_s: float = 0.05) -> None:
        self.draft_s, self.verdict_s = draft_s, verdict_s
        self._accepted, self._tried = 9.0, 10.0  # a prior: most are

    @property
    def acceptance(self) -> float:
        """Of an id whose predecessors were accepted."""
        return min(0.99, self._accepted / self._tried)

    def drafted(self, n: int, seconds: float) -> None:
        """`n` ids were drafted in one go."""
        self.draft_s += TRACK * (max(1e-5, seconds / n) - self.draft_s)

    def answered(self, seconds: float, n_accepted: int, n_draft: int) -> None:
        """A verdict came so long after its request."""
        self.verdict_s += TRACK * (max(1e-5, seconds) - self.verdict_s)
        if n_draft:
            self._accepted = MEMORY * self._accepted + n_accepted
            self._tried = MEMORY * self._tried + min(n_accepted + 1, n_draft)

    def is_worth_a_guess(self, left_s: float) -> bool:
        """Whether to draft ahead of a verdict that is expected in `left_s`: it brings the first id there for nothing,
        so there must be time for a second."""
        return left_s >= 2 * self.draft_s

    def best_k(self, credits: int) -> int:
        """The draft length that pays best with `credits` requests on their way."""
        return max(range(LEAST_K, MOST_K + 1), key=lambda k: self._worth(k, credits))

    def _worth(self, k: int, credits: int) -> float:
        a, t, d = self.acceptance, self.draft_s, self.verdict_s
        p = a ** (k + 1)
        n_more = p / (1 - p)
        ids = n_more * (k + 1) + (a - p) / (1 - a) + 1
        seconds = n_more * min(max((k + 1) * t, d / credits), k * t + d) + k * t + d
        return ids / (seconds + (n_more + 1) * PRICE_S)

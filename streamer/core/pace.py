"""How long a draft should be. In: how long drafting and verdicts take, what is accepted. Out: k.

With C blocks on their way at once, a run of agreement costs the slowest of drafting, the link's share per block and the
target's step; a disagreement costs the whole delay, since what was drafted behind it is dropped:

    a = chance that an id is accepted, t = seconds per drafted id, d = seconds from request to verdict
    goes on   p = a^(k+1)                       the block and the assumed bonus id
    ids       (k+1) p / (1-p) + (a - a^(k+1)) / (1-a) + 1
    seconds   max((k+1) t, d / C) p / (1-p) + k t + d

best_k maximises ids / seconds (UCB-SpecStop, arXiv 2606.20591, learns the same online without the model).
"""

from __future__ import annotations

LEAST_K, MOST_K = 4, 16  # below 4 ids per step the target works as hard as alone
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

    def best_k(self, credits: int) -> int:
        """The draft length that gives most ids per second with `credits` requests on their way."""
        return max(range(LEAST_K, MOST_K + 1), key=lambda k: self._ids_per_s(k, credits))

    def _ids_per_s(self, k: int, credits: int) -> float:
        a, t, d = self.acceptance, self.draft_s, self.verdict_s
        p = a ** (k + 1)
        n_more = p / (1 - p) if credits > 1 else 0.0  # without draft ahead every block waits for its verdict
        ids = n_more * (k + 1) + (a - p) / (1 - a) + 1
        return ids / (n_more * max((k + 1) * t, d / credits) + k * t + d)

"""How long a draft should be. In: how long drafting and verdicts take, what is accepted. Out: k.

    a  chance that an id is accepted       t  seconds per drafted id
    C  blocks that may be on their way     d  seconds from a request to its verdict
    block b is judged at T_b = k t + d + (b - 1) step: ahead of verdicts, or behind each of them
    step = min(max((k + 1) t, d / C), k t + d)

The edge is right for j - 1 ids and wrong at the j-th with chance a^(j-1) (1 - a). That costs the
whole delay: what stands behind it is dropped, and the n - j ids that are missing begin anew. So the
seconds for n ids are

    V(n) = sum over blocks b of T_b P(b holds the first wrong id, or is the last) + U(n)
    U(n) = sum over j of a^(j-1) (1 - a) V(n - j) = (1 - a) V(n - 1) + a U(n - 1)

and the target's work is the same sum with b (STEP + MORE k) in T_b's place: blocks behind a wrong
id are refused without a step. best_k is the fastest k whose work is at most WORK of decoding alone;
where there is none, the one with the least. Ids per second in the long run (Leviathan et al., arXiv
2211.17192, with a delay) would take k too large: C blocks hold a whole sentence. UCB-SpecStop
(arXiv 2606.20591) learns k online without such a model.

An edge that takes as long for an id as a verdict takes has nothing to hide: ids come at 1 / t,
whatever is drafted ahead, and the target's own id for each block is all that is won, (k + 1) / k.
There a small k would buy speed with the target's work: k 1 is 1.2 to 1.9 times as fast as k 4 for t
= 100 ms and d <= 200 ms, at .7 of decoding alone.
"""

from __future__ import annotations

import functools
import math

LEAST_K = 1
MOST_K = 16
ANSWER_IDS = 22  # of a sentence: the embedded pair's, all but one in a hundred
WORK = 0.4  # of the target's work when it decodes alone
# of its work for one id: a request after a pause, each id of its draft (measured 2026-11)
STEP = 1.17
MORE = 0.11
AHEAD_S = 0.008  # of drafting ahead in one go
# of drafting in one go at the edge alone: the first id is shown when the last is there
ALONE_S = 0.004
ALONE_IDS = 32
MEMORY = 0.95  # of what was accepted, per verdict
TRACK = 0.3  # weight of the newest time
GRAIN = 8  # values of a time within a factor of e that are told apart: near ones share a k


class Pace:
    """Shared by the turns of one edge: it knows its link from the second turn on."""

    def __init__(self, draft_s: float = 0.002, verdict_s: float = 0.05) -> None:
        self.draft_s = draft_s
        self.verdict_s = verdict_s
        # a prior: most are
        self._accepted = 9.0
        self._tried = 10.0

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

    @property
    def is_slow(self) -> bool:
        """Whether one id takes so long that the edge had better think again at each."""
        return self.draft_s >= AHEAD_S

    def has_credits_for_parts(self, k: int, credits: int) -> bool:
        """Whether a block of `k` ids may be asked about in two requests: not where whole ones use
        up the credits before the first verdict. Half as many blocks would be on their way, and each
        wait for its verdict."""
        return self.verdict_s < credits * (k + 1) * self.draft_s

    def is_worth_a_guess(self, left_s: float) -> bool:
        """Whether to draft ahead of a verdict that is expected in `left_s`: it brings the first id
        there for nothing, so there must be time for a second."""
        return left_s >= 2 * self.draft_s

    @property
    def num_at_once(self) -> int:
        """Ids to draft ahead in one go: a verdict that comes meanwhile waits for them."""
        return max(1, int(AHEAD_S / self.draft_s))

    @property
    def num_alone(self) -> int:
        """Ids to draft in one go at the edge alone: as many as take no longer than ALONE_S."""
        return max(1, min(ALONE_IDS, int(ALONE_S / self.draft_s)))

    def best_k(self, credits: int) -> int:
        """The draft length that pays best with `credits` requests on their way."""
        t, d = (round(GRAIN * math.log(s)) / GRAIN for s in (self.draft_s, self.verdict_s))
        return _best_k(round(self.acceptance, 2), math.exp(t), math.exp(d), credits)


@functools.lru_cache(maxsize=256)
def _best_k(a: float, t: float, d: float, credits: int) -> int:
    def cost(k: int) -> tuple[bool, float]:
        seconds, work = expected(k, a, t, d, credits)
        is_dear = work > WORK * ANSWER_IDS
        return is_dear, work if is_dear else seconds

    return min(range(LEAST_K, MOST_K + 1), key=cost)


def expected(
    k: int, a: float, t: float, d: float, credits: int, n: int = ANSWER_IDS
) -> tuple[float, float]:
    """(seconds, the target's work) to write `n` ids, the first of them without a draft."""
    first = k * t + d
    step = min(max((k + 1) * t, d / credits), k * t + d)
    seconds = _sum(k, a, first, step, n - 1)
    work = _sum(k, a, STEP + MORE * k, STEP + MORE * k, n - 1)
    return seconds, 1 + work


def _sum(k: int, a: float, first: float, step: float, n: int) -> float:
    """V(n) of the module's equations; block b costs first + (b - 1) step."""
    size = k + 1
    whole = a ** (k + 1)
    # V, U at the length before; blocks that are wholly inside it
    v = 0.0
    u = 0.0
    begun = 0.0
    chance = 1.0  # that all of them stand
    for length in range(1, n + 1):
        u = (1 - a) * v + a * u if length > 1 else 0.0
        b = (length - 1) // size  # whole blocks before the last one
        if length > 1 and (length - 1) % size == 0:
            begun += chance * (1 - whole) * (first + (b - 1) * step)
            chance *= whole
        v = begun + chance * (first + b * step) + u
    return v

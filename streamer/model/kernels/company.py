"""Whether threads that could help do help. In: how long jobs took, shared and alone. Out: share the
next one, or not.

The machine says which cores nothing runs on (model/kernels/helpers.py). On a virtual one they may
be another's all the same: a window shared by four threads took .4 of the time on a calm host and
1.1 to 4 times as long on a busy one, for a piece that stands still keeps all waiting (the embedded
pair, 4 cores, 2026-11). So it is measured, as work goes on.
"""

from __future__ import annotations

TRACK = 0.2  # weight of the newest time
PROBE = 16  # of so many jobs, one goes the other way
WORST = 8.0  # times what was usual: one job that stood still counts no more


class Company:
    """Of jobs of one kind and about one size: `pays` before one, `took` after it."""

    def __init__(self) -> None:
        self._times: dict[bool, float] = {}  # shared or not -> seconds per multiplication
        self._num = 0

    def pays(self) -> bool:
        """Whether to share the next one: the faster way, now and then the other."""
        self._num += 1
        is_faster = self._times.get(True, 0.0) <= self._times.get(False, float("inf"))
        return is_faster != (self._num % PROBE == 0)

    def took(self, products: float, is_shared: bool, seconds: float) -> None:
        """A job of so many multiplications took so long."""
        now = seconds / products
        was = self._times.get(is_shared, now)
        self._times[is_shared] = was + TRACK * (min(now, WORST * was) - was)

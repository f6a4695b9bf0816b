"""How threads share the cores. In: this machine, the environment. Out: Python and the compiled
kernels are told.

The kernels' threads wait for nobody who has not come (work.py), unlike torch's: beside three busy
processes on 4 cores, one gated answer took 74 ms with one thread of torch and 1,900 ms with four,
since each of a step's products waits for its slowest thread (2026-11).
"""

from __future__ import annotations

import functools
import os
import sys

from streamer.model.kernels.helpers import Crew

MOST = 4  # threads of the compiled kernels: a step has no more to give

# A kernel that returns waits for the GIL until a busy thread gives it up: 5 ms by default, more
# than most kernels take. 48 live streams, 2026-11: first text after 60 % of the time.
SWITCH_S = 0.0005


def set_switch_interval() -> None:
    """Have busy Python threads give up the GIL sooner."""
    sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))


def num_cores() -> int:
    """Cores this process may use, by its affinity and, on Linux, by its control group's share."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return cores


def num_kernel_threads(most: int = MOST) -> int:
    """Of the compiled kernels: the cores, at most `most`, and OMP_NUM_THREADS."""
    if os.name != "posix":  # they are woken by a pipe
        return 1
    said = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return max(1, min(num_cores(), most, int(said) if said.isdecimal() else most))


@functools.cache
def the_crew() -> Crew:
    """The one crew of this process."""
    return Crew(num_kernel_threads())

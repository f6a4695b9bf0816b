"""How threads share the cores. In: the loaded models' sizes. Out: torch, Python and the compiled
kernels are told.

Measured 2026-11 on 4 cores, the embedded pair, one gated answer: idle 1, 2 and 4 threads of torch
take 65, 62 and 66 ms; beside three busy processes 74, 190 and 1,900 ms, since each of a step's
products waits for its slowest thread. The compiled kernels' threads wait for nobody who has not
come (model/kernels/work.py).
"""

from __future__ import annotations

import functools
import os
import sys

import torch

from streamer.model.kernels.helpers import Crew

SMALL = 50_000_000  # parameters, up to which a product is too small to be worth a second thread
MOST = 4  # threads of the compiled kernels: a step has no more to give

# A kernel that returns waits for the GIL until a busy thread gives it up: 5 ms by default, more
# than most kernels take. 48 live streams, 2026-11: first text after 60 % of the time.
SWITCH_S = 0.0005


def set_threads(num_params: int) -> None:
    """One thread for small models, torch's own choice for others; OMP_NUM_THREADS in the
    environment wins."""
    sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))
    torch.set_num_threads(num_torch_threads(num_params))


def num_torch_threads(num_params: int) -> int:
    """What `set_threads` sets."""
    is_free = num_params <= SMALL and "OMP_NUM_THREADS" not in os.environ
    return 1 if is_free else torch.get_num_threads()


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


def num_kernel_threads() -> int:
    """Threads of the compiled kernels: the cores, at most MOST; OMP_NUM_THREADS in the environment
    bounds it too."""
    if os.name != "posix":  # they are woken by a pipe
        return 1
    said = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return max(1, min(num_cores(), MOST, int(said) if said.isdecimal() else MOST))


@functools.cache
def the_crew() -> Crew:
    """The one crew of this process."""
    return Crew(num_kernel_threads())

"""The devices and cores of this machine."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TextIO

# A kernel that returns waits for the GIL until a busy thread gives it up: 5 ms by default, more
# than most kernels take. 48 live streams, 2026-11: first text after 60 % of the time.
SWITCH_S = 0.0005


@dataclass(frozen=True, slots=True)
class Device:
    """name: as `--device` takes it. what: in words; empty where `why_not` says why."""

    name: str
    what: str
    why_not: str = ""


def devices() -> list[Device]:
    """The CPU, and the GPU that `--device cuda` takes or why there is none."""
    return [Device("cpu", f"{os.cpu_count() or 1} cores"), _cuda()]


def _cuda() -> Device:
    try:
        import torch  # late: few models need it
    except ImportError:
        return Device("cuda", "", "torch is not installed")
    if torch.version.cuda is None:
        return Device("cuda", "", f"torch {torch.__version__} is a build without CUDA")
    if not torch.cuda.is_available():
        return Device("cuda", "", f"torch {torch.__version__}: the driver shows no GPU")
    gigabytes = torch.cuda.get_device_properties(0).total_memory / 1e9
    return Device("cuda", f"{torch.cuda.get_device_name(0)}, {gigabytes:.0f} GB")


def num_cores() -> int:
    """Cores that this process may use, by its affinity and, on Linux, its control group's share."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return cores


def set_switch_interval() -> None:
    """Have busy Python threads give up the GIL sooner."""
    sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))


def is_ours(file: int | TextIO) -> bool:
    """Take it until it is closed, which the end of a process does too, however it dies. False where
    another process has it. Where the file system knows no locks it is ours."""
    import fcntl  # late: what only reads a model needs none

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True

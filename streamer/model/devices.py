"""The devices and cores of this machine."""

from __future__ import annotations

import os


def devices() -> list[dict[str, str]]:
    """The CPU, and the GPU that `--device cuda` takes. name: as `--device` takes it. what: in
    words; empty where `why_not` says why."""
    what = why_not = ""
    try:
        import torch  # late: few models need it
    except ImportError:
        why_not = "torch is not installed"
    else:
        if torch.version.cuda is None:
            why_not = f"torch {torch.__version__} is a build without CUDA"
        elif not torch.cuda.is_available():
            why_not = f"torch {torch.__version__}: the driver shows no GPU"
        else:
            gigabytes = torch.cuda.get_device_properties(0).total_memory / 1e9
            what = f"{torch.cuda.get_device_name(0)}, {gigabytes:.0f} GB"
    cpu = {"name": "cpu", "what": f"{os.cpu_count() or 1} cores", "why_not": ""}
    return [cpu, {"name": "cuda", "what": what, "why_not": why_not}]


def num_cores() -> int:
    """Cores that this process may use, by its affinity and, on Linux, its control group's share."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return cores

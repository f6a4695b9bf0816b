"""The devices, cores and memory of this machine."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

from streamer.model.checkpoint.weights import EMBEDDING, ModelError, Shapes, expected


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


# (bits, weights of a group) of the engines of few bits; each group has a scale in float32
BITS = {"int8": (8, 128), "int4": (4, 64)}
PEAK = 1.15  # of the weights, while they are loaded


def bits_of(engine: str, part: str) -> tuple[int, int]:
    """(bits, weights of a group) of a part: `int4` has 4 bits in the language model's layers alone.

    The head's errors would be the logits' own, and a tower's window is all products, where 4 bits
    are no faster than 8.
    """
    return BITS[engine if part.startswith("text.") else "int8"]


def weight_bytes(shapes: Shapes, engine: str) -> int:
    """Bytes of a model's weights in an engine on the CPU; for int8 and int4 also those of the
    prepared model on disk, to some per mille."""
    total = 0
    for name, size in expected(shapes.text, shapes.audio):
        is_packed = engine in BITS and len(size) == 2 and "audio_tower.proj" not in name
        if is_packed and name == EMBEDDING:  # in bfloat16; a tied one is the head as well
            total += 2 * math.prod(size)
            is_packed = shapes.text.tied
        elif not is_packed:
            total += 4 * math.prod(size)
        if is_packed:
            bits, group = bits_of(engine, "text." if name.startswith("model.layers.") else "")
            total += size[0] * -(-size[1] // group) * (group * bits // 8 + 4)
    return total


def check_memory(where: Path, shapes: Shapes, engine: str, slot_positions: int) -> None:
    """Raise ModelError where it will not fit. slot_positions: of all KV slots together."""
    text, free = shapes.text, free_bytes()
    needed = weight_bytes(shapes, engine) * PEAK
    needed += 8 * text.layers * text.kv_heads * text.head_dim * slot_positions
    if free is not None and needed > free:
        told = f"{needed / 1e9:.1f} GB of memory are needed, {free / 1e9:.1f} GB are free"
        way = "take a machine with more, a smaller model, or an --engine of fewer bits"
        raise ModelError(where, f"{told}; {way}")


def free_bytes() -> int | None:
    """Memory that may still be taken: of the machine, or of this process's control group; None
    where the system does not say."""
    found, group = [], Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):
        told = Path("/proc/meminfo").read_text("ascii").split()
        found.append(1024 * int(told[told.index("MemAvailable:") + 1]))
    with suppress(OSError, ValueError):  # no such file, or "max"
        most = int((group / "memory.max").read_text("ascii"))
        found.append(max(0, most - int((group / "memory.current").read_text("ascii"))))
    return min(found, default=None)

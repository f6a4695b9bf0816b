"""Does a model fit in memory? In: its shapes, an engine. Out: nothing, or a ModelError, at once."""

from __future__ import annotations

import math
from pathlib import Path

from streamer.model.checkpoint.layout import expected
from streamer.model.checkpoint.shapes import Shapes
from streamer.model.checkpoint.weights import ModelError

EMBEDDING = "model.embed_tokens.weight"
# (bits, weights of a group) of the engines of few bits; each group has a scale in float32
BITS = {"int8": (8, 128), "int4": (4, 64)}
PEAK = 1.15  # of the weights, while they are loaded


def bits_of(engine: str, part: str) -> tuple[int, int]:
    """(bits, weights of a group) of a part: `int4` has 4 bits in the language model's layers alone.

    The head's errors would be the logits' own, and a tower's window is all products, where 4 bits
    are no faster than 8.
    """
    return BITS[engine if part.startswith("text.") else "int8"]


def matrix_bytes(bits: int, group: int, out: int, inner: int) -> int:
    """Of a matrix in few bits, its scales included."""
    return out * -(-inner // group) * (group * bits // 8 + 4)


def weight_bytes(shapes: Shapes, engine: str) -> int:
    """What an engine on the CPU holds of a model's weights; for int8 and int4 also what they take
    on disk when they are prepared, to some per mille."""
    if engine not in BITS:
        return sum(4 * math.prod(size) for _, size in expected(shapes))
    total = 0
    for name, size in expected(shapes):
        if name == EMBEDDING:  # in bfloat16; a tied one is the head as well
            total += 2 * math.prod(size)
        if len(size) != 2 or "audio_tower.proj" in name:
            total += 4 * math.prod(size)
        elif name != EMBEDDING or shapes.text.tied:
            part = "text." if name.startswith("model.layers.") else ""
            total += matrix_bytes(*bits_of(engine, part), *size)
    return total


def check_memory(where: Path, shapes: Shapes, engine: str, slot_positions: int) -> None:
    """Raise ModelError where it will not fit. slot_positions: of all KV slots together."""
    free = free_bytes()
    text = shapes.text
    slots = 8 * text.layers * text.kv_heads * text.head_dim * slot_positions
    needed = {name: weight_bytes(shapes, name) * PEAK + slots for name in (engine, *BITS)}
    if free is None or needed[engine] <= free:
        return
    wanted = f"engine {engine} needs {needed[engine] / 1e9:.1f} GB of memory"
    told = f"{wanted}, {free / 1e9:.1f} GB are free"
    smaller = [name for name in BITS if needed[name] < needed[engine] and needed[name] <= free]
    ways = [f"--engine {name} ({needed[name] / 1e9:.1f} GB)" for name in smaller]
    way = f"take {' or '.join(ways)}" if ways else "take a machine with more, or a smaller model"
    raise ModelError(where, f"{told}; {way}")


def free_bytes() -> int | None:
    """Memory that may still be taken: of the machine, or of this process's control group; None
    where the system does not say."""
    found = [each for each in (_of_machine(), _of_group()) if each is not None]
    return min(found, default=None)


def _of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        (line,) = [each for each in lines if each.startswith("MemAvailable:")]
        return 1024 * int(line.split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _of_group() -> int | None:
    home = Path("/sys/fs/cgroup")
    try:
        most = (home / "memory.max").read_text("ascii")
        return max(0, int(most) - int((home / "memory.current").read_text("ascii")))
    except (OSError, ValueError):  # no such file, or "max"
        return None

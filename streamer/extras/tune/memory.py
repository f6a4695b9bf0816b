"""What tuning takes, before anything is loaded. In: shapes, options. Out: bytes, or one line.

docs/tune.md derives the sum and says how near it came.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamer.extras.tune.examples import Example
from streamer.extras.tune.options import TuneOptions
from streamer.extras.tune.turn import TuneError
from streamer.model.checkpoint import room
from streamer.model.checkpoint.shapes import Shapes

FIXED = 0.7e9  # Python, torch, transformers
PER_LEARNT = 24  # bytes: weight, gradient, two moments, the best and a copy of it
# Numbers per position that are alive at the worst moment, found on a layer of the 3B (2026-11)
INSIDE_HIDDEN = 28
INSIDE_FFN = 10.5


@dataclass(frozen=True)
class Need:
    """Bytes, by what they are for."""

    weights: float
    adapters: float
    activations: float

    @property
    def total(self) -> float:
        return FIXED + self.weights + self.adapters + self.activations


def need_of(
    shapes: Shapes, num_params: int, width: int, options: TuneOptions, longest: int, answer: int
) -> Need:
    """width: bytes of a weight. longest: positions of an example; answer: of them, said ids."""
    text = shapes.text
    rows = options.at_once * longest
    kept = text.layers * rows * text.hidden
    inside = rows * (INSIDE_HIDDEN * text.hidden + INSIDE_FFN * text.ffn)
    logits = options.at_once * answer * text.vocab * 4 * 3
    activations = (kept + inside) * width + logits
    adapters = PER_LEARNT * num_learnt(shapes, options.rank)
    return Need(num_params * width, adapters, activations)


def num_learnt(shapes: Shapes, rank: int) -> int:
    """Numbers in the adapters."""
    text = shapes.text
    q, kv = text.heads * text.head_dim, text.kv_heads * text.head_dim
    layer = 2 * (text.hidden + q) + 2 * (text.hidden + kv) + 3 * (text.hidden + text.ffn)
    return rank * (text.layers * layer + shapes.audio.width + shapes.audio.output)


def check_memory(
    shapes: Shapes, num_params: int, width: int, options: TuneOptions, examples: Sequence[Example]
) -> Need:
    """Raises TuneError where what is free will not do."""
    longest = max(map(len, examples))
    answer = max(len(e.answer) for e in examples)
    need = need_of(shapes, num_params, width, options, longest, answer)
    free = free_bytes(options.device)
    judging = (
        FIXED + room.PEAK * room.weight_bytes(shapes, "fast") if options.device == "cpu" else 0
    )
    if free is not None and judging > max(free, need.total):  # told now, not when all is learnt
        told = f"the engine takes about {judging / 1e9:.1f} GB to judge it in float32"
        raise TuneError(f"{told}, {free / 1e9:.1f} are free; take a machine with more, or a GPU")
    if free is not None and need.total > free:
        told = f"tuning takes about {need.total / 1e9:.1f} GB, {free / 1e9:.1f} are free"
        ways = "--at-once 1" if options.at_once > 1 else "a smaller --turn-s"
        ways += " or --precision bf16" if width > 2 else ""
        raise TuneError(f"{told}; give {ways}, or a machine with more")
    return need


def free_bytes(device: str) -> float | None:
    """What can be had there; None where the system does not say."""
    if device != "cpu":
        import torch

        return float(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else None
    return room.free_bytes()


def check_disk(directory: Path, out: Path) -> None:
    """Raises TuneError where the merged model has no room. Links are followed."""
    size = sum(os.path.getsize(file) for file in directory.iterdir() if file.is_file())
    free = shutil.disk_usage(out.parent).free
    if size > free:
        told = f"{out} takes {size / 1e9:.1f} GB, {free / 1e9:.1f} are free there"
        raise TuneError(f"{told}; make room, or give another --out")

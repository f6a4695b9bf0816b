"""Held-out recordings to measure with. In: a number, a length, a seed. Out: samples at 16 kHz and
their true levels.

Training never hears these voices (pipelines/embedded/heldout.py). The clips are kept in
.cache/bench.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from pipelines.embedded.heldout import made
from pipelines.embedded.labels import Measures

CACHE = Path(__file__).parent.parent / ".cache" / "bench"


@dataclass(frozen=True)
class Clip:
    """samples [n] float32 at 16 kHz; levels: attribute -> true level."""

    name: str
    path: Path
    samples: np.ndarray
    levels: dict[str, int]


def held_out(num: int, seconds: float, seed: int = 11) -> list[Clip]:
    """`num` clips of `seconds` (within a tenth, never longer), the same for the same arguments."""
    clips = []
    for row in made(num, seconds, seed, CACHE / "voices"):
        file = CACHE / "voices" / row["file"]
        samples, _ = soundfile.read(file, dtype="float32")
        clips.append(Clip(file.stem, file, samples, Measures(**row["measures"]).levels()))
    return clips

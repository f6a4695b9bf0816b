"""Held-out recordings to measure with. In: a number, a length, a seed. Out: samples at 16 kHz and
their true levels.

Training never hears these voices (pipelines/embedded/heldout.py). The clips are kept in
.cache/bench, since one takes up to ten seconds to synthesise.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

from pipelines.embedded.heldout import clip
from pipelines.embedded.speak import SAMPLE_RATE, voices

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
    folder = CACHE / f"{seconds:g}s-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    clips = []
    for i in tqdm(range(num), desc=f"clips of {seconds:g} s", leave=False, disable=None):
        wav = folder / f"{i:04d}.wav"
        labels = folder / f"{i:04d}.json"
        if not labels.exists():
            _make(wav, labels, seconds, random.Random(f"{seed}/{seconds:g}/{i}"))
        samples, _ = soundfile.read(wav, dtype="float32")
        clips.append(Clip(f"{seconds:g}s/{i:04d}", wav, samples, json.loads(labels.read_text())))
    return clips


def _make(wav: Path, labels: Path, seconds: float, rng: random.Random) -> None:
    """One clip; one that cannot be synthesised, or is longer than wanted, is drawn again."""
    while True:
        try:
            samples, measures = clip(rng.choice(voices(held_out=True)), 0.95 * seconds - 0.3, rng)
        except Exception as error:  # a voice that cannot say its text: draw another
            tqdm.write(f"drawn again: {error}")
            continue
        if 0.85 * seconds <= len(samples) / SAMPLE_RATE <= seconds:
            break
    soundfile.write(wav, samples, SAMPLE_RATE, subtype="PCM_16")
    labels.write_text(json.dumps(measures.levels()))

"""Held-out recordings to measure with. In: a number, a length, a seed. Out: samples at 16 kHz and their true levels.

Voices that training never hears (pipelines/embedded/voices.py); labels from the clean signal and the known text. Made
once and kept in .cache/bench, since a clip takes up to a second to synthesise.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

from pipelines.embedded.labels import measure
from pipelines.embedded.mel import raw_log_mel
from pipelines.embedded.speak import SAMPLE_RATE
from pipelines.embedded.synthesis import f0_track, session
from pipelines.embedded.voices import voices

CACHE = Path(__file__).parent.parent / ".cache" / "bench"
PAUSES = ((0.0, 0.015), (0.05, 0.15), (0.18, 0.34))  # shares of silence, one of them per clip
LEVELS_DB = (-45.0, -15.0)
NOISE_DB = (25.0, 50.0)  # under the speech


@dataclass(frozen=True)
class Clip:
    """samples [n] float32 at 16 kHz; levels: attribute -> true level."""

    name: str
    path: Path
    samples: np.ndarray
    levels: dict[str, int]


def held_out(num: int, seconds: float, seed: int = 11) -> list[Clip]:
    """`num` clips of about `seconds`, the same for the same arguments."""
    folder = CACHE / f"{seconds:g}s-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    clips = []
    for i in tqdm(range(num), desc=f"clips of {seconds:g} s", leave=False):
        wav, labels = folder / f"{i:04d}.wav", folder / f"{i:04d}.json"
        if not labels.exists():
            _make(wav, labels, seconds, random.Random(f"{seed}/{seconds:g}/{i}"))
        samples, _ = soundfile.read(wav, dtype="float32")
        clips.append(Clip(f"{seconds:g}s/{i:04d}", wav, samples, json.loads(labels.read_text())))
    return clips


def _make(wav: Path, labels: Path, seconds: float, rng: random.Random) -> None:
    """One clip; a session that cannot be synthesised or measured is drawn again."""
    while True:
        try:
            clean, syllables = _turn(seconds, rng)
            raw = raw_log_mel(clean)
            levels = measure(raw, f0_track(clean, len(raw)), syllables).levels()
        except (ValueError, OSError, RuntimeError):
            continue
        break
    noise = np.random.default_rng(rng.randrange(2**32)).normal(size=len(clean)).astype(np.float32)
    active = np.sqrt(np.mean(clean[np.abs(clean) > 0] ** 2))
    heard = clean + noise * active * 10 ** (-rng.uniform(*NOISE_DB) / 20)
    soundfile.write(wav, np.clip(heard, -1, 1), SAMPLE_RATE, subtype="PCM_16")
    labels.write_text(json.dumps(levels))


def _turn(seconds: float, rng: random.Random) -> tuple[np.ndarray, float]:
    """Phrases of one session joined to `seconds` with pauses between: (samples, syllables)."""
    whole, spans = session(rng.choice(voices(True)), rng, num_phrases=max(4, int(seconds / 2.2)))
    wanted, share = int(seconds * SAMPLE_RATE), rng.uniform(*rng.choice(PAUSES))
    pieces, syllables, spoken = [], 0.0, 0
    for start, end, count in spans:
        room = int(wanted * (1 - share)) - spoken
        if room <= 0.3 * SAMPLE_RATE:
            break
        piece = whole[start : min(end, start + room)]
        pieces.append(piece)
        spoken += len(piece)
        syllables += count * len(piece) / (end - start)
    silence = wanted - spoken if share > 0.02 else 0
    gaps = len(pieces) - 1
    if silence and not gaps:
        half = len(pieces[0]) // 2
        pieces, gaps = [pieces[0][:half], pieces[0][half:]], 1
    joined = [pieces[0]]
    for piece in pieces[1:]:
        joined += [np.zeros(silence // gaps if silence else 0, np.float32), piece]
    level = 10 ** ((rng.uniform(*LEVELS_DB) + 26.0) / 20)
    samples = np.concatenate(joined) * level
    return (samples / max(1.0, np.abs(samples).max() / 0.99)).astype(np.float32), syllables

"""Recordings of voices that training never hears, with manifest.jsonl beside them.

Made from samples (not in the mel domain as training turns are): rooms are convolutions, noise is
added to samples, so this also checks the shortcuts of training.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from tqdm import tqdm

from pipelines.embedded.codecs import room
from pipelines.embedded.labels import Measures, measured
from pipelines.embedded.speak import SAMPLE_RATE, Voice, voices
from pipelines.embedded.synthesis import session


def made(num: int, seconds: float, seed: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Rows of `num` recordings of `seconds` (within a tenth, never longer) in `folder`, the same
    for the same arguments. Those that are there are kept, since one takes up to ten seconds to
    synthesise."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "manifest.jsonl"
    lines = manifest.read_text("utf-8").splitlines() if manifest.exists() else ()
    kept = {row["file"]: row for row in map(json.loads, lines)}
    for i in tqdm(range(num), desc=f"clips of {seconds:g} s", leave=False, disable=None):
        file = f"{seconds:g}s-{seed}-{i:04d}.wav"
        if file not in kept:
            row = {"file": file, "kind": f"joined-{seconds:g}"}
            row |= _written(folder / file, seconds, random.Random(f"{seed}/{seconds:g}/{i}"))
            with manifest.open("a", encoding="utf-8") as listing:
                listing.write(json.dumps(row) + "\n")
            kept[file] = row
        yield kept[file]


def _written(wav: Path, seconds: float, rng: random.Random) -> dict[str, Any]:
    """Write one recording; one that cannot be synthesised, or is longer than wanted, is drawn
    again."""
    while True:
        voice = rng.choice(voices(held_out=True))
        try:
            samples, measures, syllables = clip(voice, 0.95 * seconds - 0.3, rng)
        except Exception as error:  # a voice that cannot say its text: draw another
            tqdm.write(f"{voice.name}: {error}; drawn again")
            continue
        if 0.85 * seconds <= len(samples) / SAMPLE_RATE <= seconds:
            break
    soundfile.write(wav, samples, SAMPLE_RATE, subtype="PCM_16")
    facts = {"speaker": voice.name, "source": voice.engine, "language": voice.language}
    known = {name: float(value) for name, value in asdict(measures).items()}
    return facts | {"syllables": syllables, "measures": known}


def clip(voice: Voice, seconds: float, rng: random.Random) -> tuple[np.ndarray, Measures, int]:
    """One turn of about `seconds`: samples, the measures of its clean signal, and syllables. Raises
    ValueError if unusable."""
    share = rng.choice((0.0, rng.uniform(0.05, 0.14), rng.uniform(0.18, 0.4)))
    whole, spans = session(voice, rng, num_phrases=2 + int(seconds / 1.2))
    parts, total, syllables = [], 0, 0
    for start, end, count in spans:
        length = (end - start) / SAMPLE_RATE
        if total and total + length > seconds * 1.1:
            continue
        gap = max(0.2, share / (1 - share) * length) if share else rng.uniform(0, 0.1)
        parts += [whole[start:end], np.zeros(int(gap * SAMPLE_RATE), np.float32)]
        total, syllables = total + length + gap, syllables + count
        if total > 0.9 * seconds:
            break
    clean = tilted(np.concatenate(parts[:-1]), rng.uniform(-4, 4))
    level = rng.uniform(*rng.choice(((-44, -38), (-38, -29), (-29, -20), (-20, -15))))
    clean *= 10 ** ((level - measured(clean, syllables).loudness) / 20)
    return recorded(clean, level, rng), measured(clean, syllables), syllables


def tilted(samples: np.ndarray, slope_db: float) -> np.ndarray:
    """A spectral slope of dB per octave around 1 kHz, clipped at 60 Hz and 8 kHz."""
    freq = np.fft.rfftfreq(len(samples), 1 / SAMPLE_RATE)
    octaves = np.log2(np.clip(freq, 60, 8000) / 1000)
    spectrum = np.fft.rfft(samples) * 10 ** (slope_db * octaves / 20)
    return np.fft.irfft(spectrum, len(samples)).astype(np.float32)


def recorded(clean: np.ndarray, level_db: float, rng: random.Random) -> np.ndarray:
    """Silence at both ends, sometimes a room, mostly a noise floor."""
    edges = [int(rng.uniform(0.05, 0.5) * SAMPLE_RATE) for _ in range(2)]
    heard, chance = np.pad(clean, edges), np.random.default_rng(rng.randrange(2**31))
    if rng.random() < 0.35:
        heard = room(heard, rng)
    if rng.random() < 0.85:
        spectrum = np.fft.rfft(chance.standard_normal(len(heard)))
        colour = np.maximum(np.fft.rfftfreq(len(heard), 1 / SAMPLE_RATE), 50) ** -rng.uniform(0, 1)
        noise = np.fft.irfft(spectrum * colour, len(heard))
        heard = heard + noise / noise.std() * 10 ** ((level_db - rng.uniform(20, 50)) / 20)
    return np.clip(heard, -1, 1).astype(np.float32)

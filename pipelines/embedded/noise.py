"""Stretches of noise as mel power of 0 dBFS, synthetic or from a folder of recordings."""

from functools import cache
from pathlib import Path

import numpy as np

from pipelines.embedded.mel import raw_log_mel


@cache
def recorded_noise(folder: Path) -> dict[str, list[np.ndarray]]:
    """Noise that people.py wrote: "noise" (rain, dogs, engines), "babble" and "breaths", without
    kinds that are empty. Lists of mel power [n_frames, 128] float32."""
    found: dict[str, list[np.ndarray]] = {}
    for kind in ("noise", "babble", "breaths"):
        file = folder / f"{kind}.npz"
        if file.exists():
            with np.load(file) as stored:
                if stored.files:
                    found[kind] = [stored[name] for name in sorted(stored.files)]
    return found


@cache
def noise_bank(seed: int, seconds: int = 20) -> list[np.ndarray]:
    """Stretches of noise at 0 dBFS as mel power: coloured noise, hum, tones, chords that change,
    crackle."""
    rng = np.random.default_rng(seed)
    num = seconds * 16_000
    freq = np.fft.rfftfreq(num, 1 / 16_000)
    t = np.arange(num) / 16_000
    signals = []
    for exponent in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5):
        spectrum = np.fft.rfft(rng.standard_normal(num)) / np.maximum(freq, 20) ** exponent
        signals.append(np.fft.irfft(spectrum, num))
    for low, high in ((100, 700), (300, 3000), (1500, 7000)):
        spectrum = np.fft.rfft(rng.standard_normal(num)) * ((freq > low) & (freq < high))
        signals.append(np.fft.irfft(spectrum, num))
    for hum in (50, 60, 100, 120):
        signals.append(
            sum(np.sin(2 * np.pi * hum * k * t + rng.uniform(0, 6)) / k**1.3 for k in range(1, 9))
            + 0.02 * rng.standard_normal(num)
        )
    for _ in range(2):
        signals.append(np.sin(2 * np.pi * rng.uniform(200, 2500) * t))
    for _ in range(5):
        music = np.zeros(num)
        for start in range(0, num - 16_000, int(rng.uniform(3000, 12_000))):
            tone = np.arange(16_000) / 16_000
            for _ in range(rng.integers(1, 4)):
                f = 110 * 2 ** (rng.integers(0, 36) / 12)
                wave = sum(np.sin(2 * np.pi * f * k * tone) / k**1.5 for k in range(1, 6))
                music[start : start + 16_000] += wave * np.exp(-tone * rng.uniform(2, 8))
        signals.append(music)
    crackle = (rng.random(num) < 3e-4) * rng.standard_normal(num)
    signals.append(crackle + 1e-3 * rng.standard_normal(num))
    return [10.0 ** raw_log_mel((s / np.sqrt(np.mean(s**2))).astype(np.float32)) for s in signals]

"""In: shards of phrases, a seed. Out: turns of 1.5-60 s as normalised log-mel, their levels and their sentence.

Turns are put together online from one session's phrases, in the mel domain: tempo, pauses, gain and tilt move the
labels (which are measured on the clean result); then rooms, microphones and noise are added, which do not.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from pipelines.embedded.labels import ATTRIBUTES, Measures, measure
from pipelines.embedded.mel import band_hz, normalise, raw_log_mel
from pipelines.embedded.sentences import no_speech, sentence

MAX_FRAMES = 6000
SILENCE = -10.0  # log10 of the extractor's floor


@dataclass(frozen=True)
class Turn:
    """One training example. `levels` is None where nobody speaks."""

    mel: np.ndarray  # [n_frames, 128] float32, normalised
    tracks: (
        np.ndarray
    )  # [n_frames, 2]: f0 in Hz, 0 where unvoiced; syllables per second, 0 in pauses
    words: list[str]
    levels: dict[str, int] | None
    measures: Measures | None
    voice: str


class Corpus:
    """Sessions of phrases, memory-mapped from the shards of one folder."""

    def __init__(self, folder: Path) -> None:
        self.sessions: dict[str, list[tuple]] = {}
        for listing in sorted(folder.glob("*.json")):
            mel = np.load(listing.with_suffix(".mel.npy"), mmap_mode="r")
            f0 = np.load(listing.with_suffix(".f0.npy"))
            for row in json.loads(listing.read_text()):
                part = (mel, f0, row["start"], row["end"], row["syllables"], row["voice"])
                self.sessions.setdefault(row["session"], []).append(part)
        self.names = sorted(self.sessions)


def split(mel: np.ndarray, rng: random.Random) -> list[int]:
    """Frames at which a phrase can pause: the quietest within every drawn 0.4-1.6 s; ends with its length."""
    loudness, cuts, at = mel[:, 5:60].mean(1), [], 0
    while (at := at + rng.randint(40, 160)) < len(mel) - 25:
        at = at - 12 + int(np.argmin(loudness[at - 12 : at + 12]))
        cuts.append(at)
    return [*cuts, len(mel)]


def join(
    phrases: list[tuple], num_frames: int, rng: random.Random
) -> tuple[np.ndarray, np.ndarray, float]:
    """Phrases in random order with drawn pauses, up to about `num_frames`; returns raw mel, tracks, syllables."""
    share = rng.choices(
        (0.0, rng.uniform(0.04, 0.15), rng.uniform(0.17, 0.42)), (0.36, 0.36, 0.28)
    )[0]
    longest = min(MAX_FRAMES - 400, 1.15 * num_frames) * (1 - share)
    debt, most = rng.uniform(5, 40) * (share > 0), min(90.0, max(26.0, share * num_frames))
    mels, tracks, syllables, spoken = [], [], 0.0, 0
    while spoken < 0.8 * longest:
        fitting = [p for p in phrases if p[3] - p[2] <= longest - spoken]
        if not fitting:
            break
        mel, f0, start, end, count, _ = rng.choice(fitting)
        mel, f0, at = np.asarray(mel[start:end], np.float32), f0[start:end].astype(np.float32), 0
        track = np.stack([f0, np.full_like(f0, 100 * count / len(f0))], 1)
        for cut in split(mel, rng) if share else [len(mel)]:
            mels.append(mel[at:cut])
            tracks.append(track[at:cut])
            debt += share / (1 - share) * (cut - at)
            gap = (
                int(debt)
                if debt > rng.uniform(19, most)
                else rng.randint(0, 10)
                if cut == len(mel)
                else 0
            )
            debt = 0.0 if gap > 10 else debt
            mels.append(np.full((gap, 128), SILENCE, np.float32))
            tracks.append(np.zeros((gap, 2), np.float32))
            at = cut
        syllables += count
        spoken += len(mel)
    if not spoken:
        raise ValueError("no phrase is short enough")
    return np.concatenate(mels[:-1]), np.concatenate(tracks[:-1]), syllables


def stretch(mel: np.ndarray, tracks: np.ndarray, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """Slow down by `factor`: linear in time for the mel, nearest for the tracks."""
    at = np.arange(int(len(mel) * factor)) / factor
    low = np.minimum(at.astype(int), len(mel) - 1)
    part = (at - low)[:, None].astype(np.float32)
    return mel[low] * (1 - part) + mel[np.minimum(low + 1, len(mel) - 1)] * part, tracks[
        low
    ] / np.float32([1, factor])


def colour(mel: np.ndarray, slope_db: float, gain_db: float) -> np.ndarray:
    """Tilt by dB per octave around 1 kHz, and gain; the floor stays."""
    octaves = np.clip(np.log2(np.maximum(band_hz(), 30) / 1000), -3.5, 3)
    return np.maximum(mel + (slope_db * octaves + gain_db).astype(np.float32) / 10, SILENCE)


class Composer:
    """Draws turns: `speech` and `silence`. One random.Random per call makes each turn reproducible."""

    def __init__(self, corpus: Corpus, seed: int) -> None:
        self.corpus = corpus
        self.noises = noise_bank(np.random.default_rng(seed))

    def speech(self, num_frames: int, rng: random.Random) -> Turn:
        """A turn of about `num_frames`. Raises ValueError when the drawn phrases hold too little speech."""
        phrases = self.corpus.sessions[rng.choice(self.corpus.names)]
        factor = 2.0 ** rng.uniform(-0.3, 0.3)
        mel, tracks, syllables = join(phrases, int(num_frames / factor), rng)
        mel, tracks = stretch(mel, tracks, factor)
        f0 = tracks[:, 0]
        first = measure(mel, f0, syllables)
        tilt = rng.uniform(*rng.choice(((-19, -13), (-13, -6), (-6, 1))))
        level = rng.uniform(*rng.choice(((-46, -38), (-38, -29), (-29, -20), (-20, -13))))
        slope = float(np.clip((tilt - first.timbre) / 2.2, -6, 6))
        mel = colour(mel, slope, 0.0)
        mel = colour(mel, 0.0, level - measure(mel, f0, syllables).loudness)
        clean = measure(mel, f0, syllables)
        levels = clean.levels()
        prominence = dict(zip(ATTRIBUTES, clean.vector().tolist(), strict=True))
        words = sentence(levels, prominence, rng)
        edges = [
            rng.randint(0, 50) if rng.random() < 0.8 else rng.randint(50, 150) for _ in range(2)
        ]
        mel = np.pad(mel, (edges, (0, 0)), constant_values=SILENCE)[:MAX_FRAMES]
        heard = normalise(self.record(mel, clean.loudness, rng))
        tracks = np.pad(tracks, (edges, (0, 0)))[:MAX_FRAMES]
        return Turn(heard.astype(np.float32), tracks, words, levels, clean, phrases[0][5])

    def record(self, mel: np.ndarray, level_db: float, rng: random.Random) -> np.ndarray:
        """A room, a microphone and a noise floor: what the labels do not see."""
        power = 10.0**mel
        if rng.random() < 0.4:
            decay = 10 ** (-6 / (100 * rng.uniform(0.15, 0.8)))
            tail = lfilter([0, 1 - decay], [1, -decay], power, axis=0).astype(np.float32)
            power += tail * 10 ** (-rng.uniform(4, 20) / 10)
        if rng.random() < 0.5:
            bands = np.interp(
                np.arange(128), np.linspace(0, 127, 8), [rng.gauss(0, 1.2) for _ in range(8)]
            )
            power *= 10 ** (bands.astype(np.float32) / 10)
        if rng.random() < 0.85:
            power += self.noise(len(power), rng) * 10 ** ((level_db - rng.uniform(14, 55)) / 10)
        return np.log10(np.maximum(power, 1e-10))

    def noise(self, num_frames: int, rng: random.Random) -> np.ndarray:
        """Noise of 0 dBFS as mel power, [num_frames, 128]."""
        bank = rng.choice(self.noises)
        start = rng.randrange(len(bank))
        return bank[np.arange(start, start + num_frames) % len(bank)]

    def silence(self, num_frames: int, rng: random.Random) -> Turn:
        """Nobody speaks: noise, hum, tones, breaths, or nothing at all."""
        power = np.full((num_frames, 128), 1e-10, np.float32)
        for _ in range(rng.randint(0, 3)):
            layer = self.noise(num_frames, rng) * 10 ** (rng.uniform(-75, -15) / 10)
            if rng.random() < 0.4:  # comes and goes, like breathing or a passing car
                period, phase = rng.uniform(50, 500), rng.uniform(0, 6)
                swell = (
                    np.sin(np.arange(num_frames) * 2 * np.pi / period + phase)
                    * rng.uniform(1, 12)
                    / 10
                )
                layer = layer * 10 ** swell[:, None].astype(np.float32)
            power += layer
        mel = normalise(np.log10(power)).astype(np.float32)
        return Turn(mel, np.zeros((num_frames, 2), np.float32), no_speech(), None, None, "none")

    def batch(self, audio_s: float, rng: random.Random) -> list[Turn]:
        """Turns of like length that sum up to about `audio_s`; lengths are log-uniform over 1.5-60 s."""
        length_s = 1.5 * 40 ** rng.random()
        turns = []
        for _ in range(max(1, int(audio_s / length_s))):
            num_frames = int(100 * min(60.0, length_s * rng.uniform(0.85, 1.15)))
            try:
                make = self.silence if rng.random() < 0.05 else self.speech
                turns.append(make(num_frames, rng))
            except ValueError:
                continue
        return turns or self.batch(audio_s, rng)


def noise_bank(rng: np.random.Generator, seconds: int = 20) -> list[np.ndarray]:
    """Stretches of noise at 0 dBFS as mel power: coloured noise, hum, tones, chords that change, crackle."""
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
        signals.append(sum(np.sin(2 * np.pi * hum * k * t + rng.uniform(0, 6)) / k**1.3 for k in range(1, 9))
                       + 0.02 * rng.standard_normal(num))  # fmt: skip
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
    signals.append(
        (rng.random(num) < 3e-4) * rng.standard_normal(num) + 1e-3 * rng.standard_normal(num)
    )
    return [10.0 ** raw_log_mel((s / np.sqrt(np.mean(s**2))).astype(np.float32)) for s in signals]

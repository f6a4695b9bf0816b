"""Real speech from samples/, joined and scaled: samples at 16 kHz, float32; live sessions that hear it,
whose Parts (streamer/stages/parts.py) a test may wrap.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import soundfile
from places import SAMPLES

RATE_HZ = 16_000


def recording(index: int) -> np.ndarray:
    """One of the bundled recordings."""
    samples, rate = soundfile.read(SAMPLES[index % len(SAMPLES)], dtype="float32")
    assert rate == RATE_HZ
    return samples


def speech(seconds: float, seed: int = 0, crescendo: bool = False) -> np.ndarray:
    """Bundled speech in a random order; with `crescendo` it grows by 40 dB."""
    chance = np.random.default_rng(seed)
    pieces, n = [], int(seconds * RATE_HZ)
    while sum(map(len, pieces)) < n:
        pieces.append(recording(int(chance.integers(len(SAMPLES)))) * chance.uniform(0.3, 1.0))
    samples = np.concatenate(pieces)[:n].astype(np.float32)
    return samples * np.linspace(0.01, 1.0, n, dtype=np.float32) if crescendo else samples


def pcm(*parts: np.ndarray) -> bytes:
    """PCM16 of samples, joined."""
    return (np.concatenate(parts) * 32767).astype("<i2").tobytes()


def wav(path, samples: np.ndarray, **kind):
    """The path, where these samples are written at 16 kHz. kind: of soundfile.write."""
    soundfile.write(path, samples, RATE_HZ, **kind)
    return path


def cuts(n: int, seed: int) -> list[slice]:
    """0..n cut at random places, short and long pieces mixed."""
    chance = np.random.default_rng(seed)
    places = [0]
    while places[-1] < n:
        size = chance.choice([1, 160, 512, 3200, 40_000]) * chance.uniform(0.5, 1.5)
        places.append(min(n, places[-1] + int(size) + 1))
    return [slice(a, b) for a, b in itertools.pairwise(places)]


def whispered(samples: np.ndarray, seed: int = 0) -> np.ndarray:
    """The same words without a voice: noise under the envelope of short spectra, 32 ms each."""
    hop, size, width = 128, 512, 17
    window = np.hanning(size)
    noise = np.random.default_rng(seed).standard_normal(len(samples))
    found = np.zeros(len(samples))
    smooth = np.hanning(width + 2)[1:-1] / np.hanning(width + 2).sum()
    for at in range(0, len(samples) - size, hop):
        envelope = np.abs(np.fft.rfft(samples[at : at + size] * window)) ** 2
        envelope = np.sqrt(np.convolve(envelope, smooth, "same"))
        spectrum = np.fft.rfft(noise[at : at + size] * window)
        found[at : at + size] += np.fft.irfft(spectrum * envelope) * window
    return (found * samples.std() / found.std()).astype(np.float32)


SILENCE = np.zeros(RATE_HZ, np.float32)


def same(one):
    return one


@dataclass(frozen=True)
class Between:
    """Parts whose drafters, targets and edge's batcher are wrapped."""

    parts: Any
    drafter_of: Callable[[Any], Any] = same
    target_of: Callable[[Any], Any] = same
    batcher_of: Callable[[Any], Any] = same

    def __getattr__(self, name):
        return getattr(self.parts, name)

    @property
    def edge(self):
        return self.parts.edge and self.batcher_of(self.parts.edge)

    def drafts(self, *arguments):
        return self.drafter_of(self.parts.drafts(*arguments))

    def target(self):
        found = self.parts.target()
        return found and self.target_of(found)


@dataclass(frozen=True)
class Passing:
    """A drafter, target, batcher or engine as it is; a subclass adds to one method."""

    inner: Any

    def __getattr__(self, name):
        return getattr(self.inner, name)


def slots_free(models):
    """KV slots of each model."""
    return [thinker.engine.num_free for thinker in models.pair if thinker is not None]


async def turn_of(session, samples):
    """The events of one turn: these samples [n], then a commit."""
    await session.feed(pcm(samples))
    await session.commit()
    return [event async for event in session]


async def feed_cut(session, data, seed):
    """Bytes cut at random, odd ones too."""
    chance, at = random.Random(seed), 0
    while at < len(data):
        n = chance.choice([1, 2, 641, 3_200, 20_001, 200_000])
        await session.feed(data[at : at + n])
        at += n

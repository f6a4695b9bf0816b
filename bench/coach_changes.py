"""What a voice may do that a coach should tell. In: samples at 16 kHz. Out: the same, changed: its
tempo and its pitch by PSOLA (Praat), its level, its end; and a room to do it in."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import parselmouth
from parselmouth.praat import call

from streamer.core.audio.pcm import SAMPLE_RATE_HZ

Sound = np.ndarray


def tempo(factor: float) -> Callable[[Sound], Sound]:
    """So many times as fast, at the same pitch."""

    def change(samples: Sound) -> Sound:
        sound = parselmouth.Sound(samples.astype(float), SAMPLE_RATE_HZ)
        changed = call(sound, "Lengthen (overlap-add)", 75, 500, 1 / factor)
        return changed.values[0].astype(np.float32)

    return change


def flattened(share: float) -> Callable[[Sound], Sound]:
    """The same words on a pitch that moves by `share` of what it did."""

    def change(samples: Sound) -> Sound:
        sound = parselmouth.Sound(samples.astype(float), SAMPLE_RATE_HZ)
        manipulation = call(sound, "To Manipulation", 0.01, 75, 500)
        tier = call(manipulation, "Extract pitch tier")
        middle = call(sound.to_pitch(), "Get quantile", 0, 0, 0.5, "Hertz")
        call(tier, "Formula", f"{middle} * (self / {middle}) ^ {share}")
        call([tier, manipulation], "Replace pitch tier")
        return call(manipulation, "Get resynthesis (overlap-add)").values[0].astype(np.float32)

    return change


def softer(db: float) -> Callable[[Sound], Sound]:
    return lambda samples: samples * np.float32(10 ** (-db / 20))


def gone(samples: Sound) -> Sound:
    """Nobody speaks any more: noise with the spectrum of the quietest twentieth of the frames."""
    size, hop = 512, 256
    window = np.sin(np.pi * (np.arange(size) + 0.5) / size)
    frames = np.lib.stride_tricks.sliding_window_view(samples, size)[::hop] * window
    quiet = np.argsort((frames**2).sum(1))[: max(1, len(frames) // 20)]
    level = np.sqrt((np.abs(np.fft.rfft(frames[quiet])) ** 2).mean(0))
    turns = np.random.default_rng(0).random((len(samples) // hop + 2, len(level)))
    noise = np.fft.irfft(level * np.exp(2j * np.pi * turns)) * window
    found = (noise[1:, :hop] + noise[:-1, hop:]).reshape(-1)
    return found[: len(samples)].astype(np.float32)


@dataclass(frozen=True)
class Room:
    """Pink noise of this amplitude (RMS; 0: none), which stays as it is whatever the voice does."""

    noise: float = 0.0

    def of(self, samples: Sound) -> Sound:
        if not self.noise:
            return samples
        return (samples + self.noise * np.resize(pink(), len(samples))).astype(np.float32)


@functools.cache
def pink() -> Sound:
    """Of RMS 1, from 50 Hz on: what lies under that nobody hears."""
    num = 60 * SAMPLE_RATE_HZ
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(num))
    hz = np.fft.rfftfreq(num, 1 / SAMPLE_RATE_HZ)
    found = np.fft.irfft(np.where(hz < 50, 0, spectrum / np.sqrt(np.maximum(hz, 50))), num)
    return found / np.sqrt((found**2).mean())


CHANGES: dict[str, tuple[str, Callable[[Sound], Sound]]] = {
    "1.3 times as fast": ("too_fast", tempo(1.3)),
    "1.5 times as fast": ("too_fast", tempo(1.5)),
    "2 times as fast": ("too_fast", tempo(2.0)),
    "1.5 times as slow": ("too_slow", tempo(1 / 1.5)),
    "2 times as slow": ("too_slow", tempo(1 / 2)),
    "6 dB softer": ("too_soft", softer(6)),
    "12 dB softer": ("too_soft", softer(12)),
    "18 dB softer": ("too_soft", softer(18)),
    "half of the movement": ("flat", flattened(0.5)),
    "a fifth of the movement": ("flat", flattened(0.2)),
    "silence": ("long_silence", gone),
}

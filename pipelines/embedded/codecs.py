"""Samples at 16 kHz as a room, a telephone, MP3 or Opus would pass them on, in time with the
original.

The encoders are real ones (LAME and libopus, in libsndfile).
"""

import io
import random

import numpy as np
import soundfile
import soxr
from scipy.signal import butter, correlate, fftconvolve, sosfilt

from pipelines.embedded.speak import SAMPLE_RATE
from streamer.core.audio.pcm import Chunker

SHARES = {"none": 0.34, "mp3": 0.24, "opus": 0.22, "telephone": 0.20}
FORMATS = {"mp3": ("MP3", "MPEG_LAYER_III", {"bitrate_mode": "CONSTANT"})}
FORMATS |= {"opus": ("OGG", "OPUS", {})}
COMPRESSION = {"mp3": (0.5, 0.93), "opus": (0.85, 0.98)}


def coded(samples: np.ndarray, way: str, compression: float) -> np.ndarray:
    """Through LAME or libopus; `compression` 0 to 1: mp3 160 to 8 kbit/s, opus 256 to 9."""
    container, codec, options = FORMATS[way]
    options = {**options, "compression_level": compression}
    heard, rate = coded_as(samples, SAMPLE_RATE, container, codec, **options)
    heard = soxr.resample(heard, rate, SAMPLE_RATE) if rate != SAMPLE_RATE else heard
    return aligned(heard.astype(np.float32), samples)


def coded_as(
    samples: np.ndarray, rate: int, container: str, codec: str, **options: object
) -> tuple[np.ndarray, int]:
    """Samples as they come back from a file of that format, and their rate."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=container, subtype=codec, **options)
    file.seek(0)
    return soundfile.read(file, dtype="float32")


def aligned(heard: np.ndarray, original: np.ndarray, most: int = 4000) -> np.ndarray:
    """Undo the delay an encoder adds: as long as `original`, shifted to where they correlate
    best."""
    length = min(len(original), 5 * SAMPLE_RATE)
    start = max(0, int(np.argmax(np.abs(original))) - length // 2)
    piece = original[start : start + length]
    around = np.pad(heard, (most, most + length))[start : start + length + 2 * most]
    lag = int(np.argmax(correlate(around, piece, "valid", "fft"))) - most
    shifted = heard[lag:] if lag >= 0 else np.pad(heard, (-lag, 0))
    return np.pad(shifted, (0, max(0, len(original) - len(shifted))))[: len(original)]


def telephone(samples: np.ndarray) -> np.ndarray:
    """300 to 3,400 Hz at 8 kHz, mu-law of 8 bits (G.711), and back, with the filters' delay."""
    band = butter(4, (300, 3400), "bandpass", fs=8000, output="sos")
    narrow = sosfilt(band, soxr.resample(samples, SAMPLE_RATE, 8000)).astype(np.float32)
    coded, _ = coded_as(np.clip(narrow, -1, 1), 8000, "WAV", "ULAW")
    return soxr.resample(coded, 8000, SAMPLE_RATE).astype(np.float32)


def room(samples: np.ndarray, rng: random.Random) -> np.ndarray:
    """The direct sound, a few early reflections, and a tail of coloured noise that decays over
    0.15 to 0.8 s."""
    chance, decay_s = np.random.default_rng(rng.randrange(2**31)), rng.uniform(0.15, 0.8)
    t = np.arange(int(decay_s * SAMPLE_RATE)) / SAMPLE_RATE
    tail = chance.standard_normal(len(t)) * 10 ** (-3 * t / decay_s) * (t > 0.004)
    tail = sosfilt(butter(1, rng.uniform(1500, 7000), fs=SAMPLE_RATE, output="sos"), tail)
    for _ in range(rng.randint(2, 6)):
        at = int(rng.uniform(0.001, 0.03) * SAMPLE_RATE)
        tail[at] += rng.uniform(-0.5, 0.5) * np.abs(tail).max()
    tail *= 10 ** (-rng.uniform(2, 18) / 20) / np.sqrt((tail**2).sum() + 1e-12)
    return (samples + fftconvolve(samples, tail)[: len(samples)]).astype(np.float32)


def passed_on(samples: np.ndarray, rng: random.Random) -> tuple[np.ndarray, str]:
    """A drawn way from the mouth to the model, and its name."""
    heard = room(samples, rng) if rng.random() < 0.2 else samples
    way = rng.choices(list(SHARES), SHARES.values())[0]
    scale = max(1.0, float(np.abs(heard).max()) / 0.99)
    heard = heard / scale
    if way in FORMATS:
        heard = coded(heard, way, rng.uniform(*COMPRESSION[way]))
    elif way == "telephone":
        heard = aligned(telephone(heard), heard)
    return heard * scale, way


def telephone_call(samples: np.ndarray) -> np.ndarray:
    """mu-law at 8 kHz, as a session hears it."""
    narrow = np.clip(soxr.resample(samples, SAMPLE_RATE, 8000), -1, 1).astype(np.float32)
    coded, _ = coded_as(narrow, 8000, "WAV", "ULAW")
    chunker = Chunker(8000)
    return np.concatenate([chunker.push(coded), chunker.finish()])

"""In: a voice, a text, a speed. Out: mono float32 samples at 16 kHz from espeak-ng or flite."""

import io
import subprocess

import numpy as np
import soundfile
import soxr

from pipelines.embedded.voices import Voice

SAMPLE_RATE = 16_000
TIMEOUT_S = 20
# What espeak-ng 1.51 calls a language. Its plain "cmn" spells characters in pinyin and reads the
# tones as English numbers, "jin one tian one": twice the syllables of the text.
NAMES = {"cmn": "cmn-latn-pinyin"}


def speak(voice: Voice, text: str, *, wpm: int = 160, pitch: int = 50) -> np.ndarray:
    """Say `text`; returns float32 [n_samples] at 16 kHz. Raises on an engine that fails or
    hangs.

    `wpm` is espeak-ng's words per minute (flite: a duration stretch from it), `pitch` its 0-99
    scale.
    """
    if voice.engine == "espeak":
        name = f"{NAMES.get(voice.language, voice.language)}+{voice.variant}"
        spoken = ["espeak-ng", "-v", name, "-s", str(wpm), "-p", str(pitch), "--stdout", text]
    else:
        stretch = f"duration_stretch={160 / wpm:.3f}"
        spoken = ["flite", "-voice", voice.variant, "--setf", stretch, "-t", text]
        spoken += ["-o", "/dev/stdout"]
    done = subprocess.run(spoken, capture_output=True, timeout=TIMEOUT_S, check=True)
    return _decode(done.stdout)


def _decode(wav: bytes) -> np.ndarray:
    # espeak-ng writes a placeholder length into the header when it streams: read the samples
    # ourselves.
    with soundfile.SoundFile(io.BytesIO(wav)) as file:
        rate = file.samplerate
        samples = file.read(dtype="float32")
    if rate == SAMPLE_RATE:
        return samples
    return soxr.resample(samples, rate, SAMPLE_RATE).astype(np.float32)


def trim(samples: np.ndarray, margin_db: float = 30.0) -> np.ndarray:
    """Cut leading and trailing silence: frames of 10 ms more than `margin_db` under the loudest
    one."""
    frames = samples[: len(samples) // 160 * 160].reshape(-1, 160)
    if not len(frames):
        return samples
    level = 10 * np.log10(np.mean(frames**2, axis=1) + 1e-12)
    heard = np.flatnonzero(level > level.max() - margin_db)
    return samples[heard[0] * 160 : (heard[-1] + 1) * 160]

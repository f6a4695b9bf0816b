"""Sound files for tests of reading them. In: samples. Out: bytes, and what is heard of them."""

from __future__ import annotations

import io
import os
import re

import numpy as np
import pytest
import soundfile

from streamer.audio.file import AudioError, open_audio

UNREADABLE = re.compile(r"is no recording that can be read \((?!/dev).+\)")


def noise(n: int, channels: int = 1) -> np.ndarray:
    return np.random.default_rng(n).uniform(-0.5, 0.5, (n, channels)).astype(np.float32)


def encoded(x: np.ndarray, rate: int = 16_000, **kind) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, x, rate, **{"format": "WAV", "subtype": "PCM_16", **kind})
    return file.getvalue()


def wav(path, samples: np.ndarray, rate: int = 16_000, **kind):
    """The path, where these samples are written."""
    soundfile.write(path, samples, rate, **kind)
    return path


def hear(path) -> tuple[np.ndarray, str | None]:
    with open_audio(path) as audio:
        blocks = [np.zeros((0, audio.channels), np.float32), *audio]
        return np.concatenate(blocks), audio.warning


def refusal(path) -> str:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(AudioError) as caught:
        hear(path)
    assert len(os.listdir("/proc/self/fd")) == before
    assert caught.value.path == str(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message == f"{path}: {caught.value.reason}"
    return caught.value.reason

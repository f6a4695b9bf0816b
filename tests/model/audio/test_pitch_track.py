"""F0 of real speech: beside Praat, beside noise, and the same for every cut."""

import numpy as np
import pytest
import speech

from pipelines.embedded.labels import f0_track
from streamer.model.audio.pitch import PitchTrack, f0_of


def rows_of(samples):
    turn = PitchTrack()
    return np.concatenate([turn.push(samples), turn.push(samples[:0], is_last=True)])


def track(samples):
    rows = rows_of(samples)
    return f0_of(rows, np.ones(len(rows), bool))


def pulses(hz, num=24_000):
    """Of a voice that glides: a harmonic sound whose F0 is hz [num]."""
    phase = 2 * np.pi * np.cumsum(hz) / speech.RATE_HZ
    return sum(np.sin(k * phase) / k for k in range(1, 9)).astype(np.float32) / 8


@pytest.mark.parametrize("index", range(4))
def test_frames_are_praats(index):
    """Which looks twice, too. It stands on frames of its own, up to 5 ms beside these."""
    samples = speech.recording(index)
    found = track(samples)
    wanted = f0_track(samples, len(found))
    assert np.mean((found > 0) == (wanted > 0)) > 0.93
    both = (found > 0) & (wanted > 0)
    assert both.sum() > 50
    assert np.mean(np.abs(found[both] / wanted[both] - 1) < 0.04) > 0.96


@pytest.mark.parametrize("hz", [65, 80, 110, 149, 152, 220, 340, 480])
def test_a_voice_of_known_f0(hz):
    found = track(pulses(np.full(24_000, float(hz))))[10:-10]
    assert found == pytest.approx(hz, rel=2e-3)


def test_noise_and_silence_have_none():
    noise = np.random.default_rng(0).normal(0, 0.1, 32_000).astype(np.float32)
    assert np.mean(track(noise) > 0) < 0.05
    assert not track(np.zeros(8_000, np.float32)).any()
    assert not track(np.full(8_000, 0.5, np.float32))[3:-3].any()
    voice = pulses(np.full(24_000, 120.0))
    soft = np.concatenate([voice, 1e-3 * voice])  # 60 dB under the loudest
    assert (track(soft)[160:] == 0).all()


def test_where_nobody_speaks_there_is_none():
    hum = 5 * pulses(np.full(48_000, 400.0))
    samples = np.concatenate([hum, pulses(np.full(24_000, 120.0))])
    rows = rows_of(samples)
    is_spoken = np.arange(len(rows)) > 305
    found = f0_of(rows, is_spoken)
    assert not found[:306].any()
    assert found[310:-10] == pytest.approx(120, rel=0.01)
    assert not f0_of(rows, np.zeros(len(rows), bool)).any()

"""Frames: the labels' numbers to the last bit, by their first definition; and what is plain to
see."""

import numpy as np
import pytest

from pipelines.embedded.labels import measure
from pipelines.embedded.mel import band_hz, band_peak, raw_log_mel
from streamer.core.measures.frames import (
    active_level,
    decibel,
    frame_power,
    on_mel_frames,
    pause_frames,
    percentiles,
    speaking,
)

RATE_HZ = 16_000


def as_first_defined(raw, f0, num_syllables, speech):
    """The labels of the weights that ship were made by these lines (2026-11)."""

    def power_of(raw, low_hz=0.0, high_hz=8000.0):
        inside = (band_hz() >= low_hz) & (band_hz() < high_hz)
        unit = band_peak()[inside]
        return 2.0 * (10.0 ** raw[:, inside].astype(np.float32) / unit).sum(1) / (400 * 150)

    power = power_of(raw)
    level_db = 10 * np.log10(power + 1e-12)
    spoken = np.ones(len(raw), bool) if speech is None else speech
    loud = spoken & (level_db > np.percentile(level_db[spoken], 95) - 25.0)
    active_db = 10 * np.log10(power[loud].mean() + 1e-12)
    heard = spoken & (level_db > active_db - 25.0)
    talking = heard if speech is None else speech
    first, last = np.flatnonzero(talking)[[0, -1]]
    span = last - first + 1
    silent = ~talking[first : last + 1]
    edges = np.flatnonzero(np.diff(np.concatenate([[0], silent.astype(np.int8), [0]])))
    lengths = edges[1::2] - edges[::2]
    paused = int(lengths[lengths >= 18].sum())
    voiced = f0[heard & (f0 > 0)].astype(np.float32)
    pitch = float(np.median(voiced))
    semitones = 12 * np.log2(voiced / pitch)
    variation = max(0.1, float(np.std(semitones[np.abs(semitones) < 12])))
    rate = 100.0 * num_syllables / (span - paused)
    low, high = (power_of(raw[heard], *band).mean() for band in ((80, 1000), (1000, 5000)))
    return rate, pitch, variation, float(active_db), paused / span, float(10 * np.log10(high / low))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("has_speech", [True, False])
def test_the_labels_are_those_that_the_models_learnt(samples, seed, kind, has_speech):
    import soundfile

    chance = np.random.default_rng(seed)
    raw = raw_log_mel(soundfile.read(samples[seed], dtype="float32")[0]).astype(kind)
    f0 = np.where(chance.random(len(raw)) < 0.6, chance.uniform(70, 400, len(raw)), 0)
    speech = np.repeat(chance.random(len(raw) // 30 + 1) < 0.8, 30)[: len(raw)]
    speech = speech if has_speech else None
    found = measure(raw, f0, 17, speech)
    assert (
        found.rate,
        found.pitch,
        found.variation,
        found.loudness,
        found.pauses,
        found.timbre,
    ) == as_first_defined(raw, f0, 17, speech)


def test_power_is_that_of_the_signal():
    """Parseval, whole and in a band, within 3 %."""
    chance = np.random.default_rng(0)
    samples = chance.normal(0, 0.1, 2 * RATE_HZ).astype(np.float32)
    raw = raw_log_mel(samples)
    assert frame_power(raw).mean() == pytest.approx(np.mean(samples**2), rel=0.03)
    tone = 0.1 * np.sin(2 * np.pi * 500 * np.arange(RATE_HZ) / RATE_HZ)
    raw = raw_log_mel(tone.astype(np.float32))[5:-5]
    assert decibel(frame_power(raw, 80, 1000)).mean() == pytest.approx(-23.01, abs=0.1)
    assert decibel(frame_power(raw, 1000, 5000)).max() < -60


def test_only_what_is_near_the_loudest_is_heard():
    power = np.array([1e-2] * 50 + [1e-3] * 50 + [1e-6] * 100, np.float32)
    active_db, heard = active_level(power, np.ones(200, bool))
    assert active_db == pytest.approx(10 * np.log10(5.5e-3), abs=0.01)
    assert heard.tolist() == [True] * 100 + [False] * 100


def test_a_pause_is_180_ms_or_more():
    silent = np.array([1] * 17 + [0] * 5 + [1] * 18 + [0] + [1] * 40, bool)
    assert pause_frames(silent).tolist() == [18, 40]
    assert pause_frames(np.zeros(9, bool)).tolist() == []


def test_speech_has_hysteresis_and_its_frames_are_32_ms():
    flags = speaking(np.array([0.4, 0.6, 0.36, 0.34, 0.45, 0.5], np.float32))
    assert flags.tolist() == [False, True, True, False, False, True]
    assert on_mel_frames(flags, 8).tolist() == [False] * 4 + [True] * 4


@pytest.mark.parametrize("seed", range(30))
def test_percentiles_are_numpy_s(seed):
    chance = np.random.default_rng(seed)
    values = chance.normal(size=chance.integers(1, 300)).astype(np.float32)
    found = percentiles(np.sort(values), 5, 95, 50)
    assert found == pytest.approx(np.percentile(values.astype(float), [5, 95, 50]), abs=1e-9)

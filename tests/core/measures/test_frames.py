"""Frames: the labels' numbers to the last bit, by their first definition; and what is plain to
see."""

import numpy as np
import pytest

from pipelines.embedded.labels import measure
from pipelines.embedded.mel import band_hz, band_peak, raw_log_mel
from streamer.core.measures.frames import on_mel_frames, speaking


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


def test_speech_has_hysteresis_and_its_frames_are_32_ms():
    flags = speaking(np.array([0.4, 0.6, 0.36, 0.34, 0.45, 0.5], np.float32))
    assert flags.tolist() == [False, True, True, False, False, True]
    assert on_mel_frames(flags, 8).tolist() == [False] * 4 + [True] * 4

"""What repeats itself is told from what does not, and how often it does."""

import numpy as np
import pytest

from streamer.core.measures.periodic import tuned

RATE_HZ = 16_000
AT = np.arange(20) * 256 + 4_000


def buzz(f0_hz):
    """A second of ten harmonics."""
    phase = 2 * np.pi * f0_hz * np.arange(RATE_HZ) / RATE_HZ
    return sum(np.sin(i * phase + i * i) / i for i in range(1, 11)).astype(np.float32)


def found(samples, f0_hz):
    return tuned(samples, AT, np.full(len(AT), f0_hz, np.float32))


def of(samples, f0_hz):
    return found(samples, f0_hz)[1]


@pytest.mark.parametrize("f0_hz", [60, 97.3, 160, 241, 500])
def test_a_voice_repeats_itself(f0_hz):
    assert of(buzz(f0_hz), f0_hz).min() > 0.95
    assert of(buzz(f0_hz) * 1e-3 + 0.2, f0_hz).min() > 0.95  # soft, beside an offset
    assert of(buzz(f0_hz), 1.02 * f0_hz).min() > 0.8  # a little off is no other pitch
    assert of(buzz(f0_hz), 1.4 * f0_hz).max() < 0.6


@pytest.mark.parametrize("f0_hz", [62, 97.3, 160, 241, 500])
@pytest.mark.parametrize("off", [0.87, 0.95, 0.99, 1, 1.03, 1.15])
def test_f0_is_where_the_sound_repeats_itself_whatever_the_tracker_says(f0_hz, off):
    """To 0.1 %; beside noise half as loud, to 2 %."""
    voice = buzz(f0_hz)
    assert found(voice, off * f0_hz)[0] == pytest.approx(f0_hz, rel=1.2e-3)
    assert found(voice + 0.5, off * f0_hz)[0] == pytest.approx(f0_hz, rel=1.2e-3)
    assert found(voice, off * f0_hz)[1] == pytest.approx(1, abs=0.04)
    noise = np.random.default_rng(2).normal(0, voice.std() / 2, RATE_HZ).astype(np.float32)
    noisy = found(voice + noise, off * f0_hz)[0]
    assert np.median(noisy) == pytest.approx(f0_hz, rel=0.02)


@pytest.mark.parametrize("off", [0.7, 1.35])
def test_a_tracker_far_off_is_believed(off):
    assert found(buzz(160), off * 160)[0] == pytest.approx(off * 160)


def test_where_no_peak_is_near_f0_stays():
    """A ramp and silence have no period."""
    for samples in (np.linspace(-1, 1, RATE_HZ), np.zeros(RATE_HZ)):
        f0_hz, strength = found(samples.astype(np.float32), 140)
        assert (f0_hz == 140).all()
        assert np.isfinite(strength).all()


def test_noise_and_silence_do_not():
    noise = np.random.default_rng(0).normal(0, 0.1, RATE_HZ).astype(np.float32)
    for f0_hz in (70, 140, 280):
        assert np.abs(of(noise, f0_hz)).max() < 0.45
        assert not of(0 * noise, f0_hz).any()


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_it_is_the_share_of_power_that_repeats_itself(share):
    noise = np.random.default_rng(1).normal(0, 1, RATE_HZ)
    voice = buzz(130)
    mixed = np.sqrt(share) * voice / voice.std() + np.sqrt(1 - share) * noise
    assert of(mixed.astype(np.float32), 130).mean() == pytest.approx(share, abs=0.1)


def test_beyond_the_ends_is_silence():
    """And a frame does not depend on those beside it."""
    voice = buzz(110)[:3_000]
    at, f0 = np.array([0, 1_500, 3_000]), np.array([110, 110, 70], np.float32)
    padded = np.pad(voice, 2_000)
    whole = tuned(voice, at, f0)
    assert np.array_equal(whole, tuned(padded, at + 2_000, f0))
    alone = [tuned(voice, at[i : i + 1], f0[i : i + 1]) for i in range(3)]
    assert np.array_equal(whole, np.concatenate(alone, 1))
    assert np.shape(tuned(voice, at[:0], f0[:0])) == (2, 0)

"""What a low rate cut off: guessed where there is a voice, nothing else touched, cut as it may be."""

import numpy as np
import pytest
import soxr
import speech

from streamer.core.audio.telephone import HOP_SAMPLES, TELEPHONE_HZ, HighBand

RATE_HZ = 16_000


def filled(samples, cuts=()):
    high_band = HighBand()
    return np.concatenate([*map(high_band.push, np.split(samples, cuts)), high_band.finish()])


def noise(length, seed=0):
    return np.random.default_rng(seed).normal(0, 0.1, length).astype(np.float32)


def narrow(samples):
    """As 8 kHz sound."""
    low = soxr.resample(samples, RATE_HZ, TELEPHONE_HZ)
    return soxr.resample(low, TELEPHONE_HZ, RATE_HZ, "MQ")


def level_db(samples, low_hz, high_hz):
    power = np.abs(np.fft.rfft(samples)) ** 2
    hz = np.fft.rfftfreq(len(samples), 1 / RATE_HZ)
    return 10 * np.log10(power[(hz >= low_hz) & (hz < high_hz)].mean())


@pytest.mark.parametrize("hz", [0, 50, 300, 1_000, 3_000])
def test_a_tone_or_an_offset_has_no_noise(hz):
    tone = (0.3 * np.cos(2 * np.pi * hz * np.arange(RATE_HZ) / RATE_HZ)).astype(np.float32)
    added = (filled(tone) - tone)[HOP_SAMPLES:-HOP_SAMPLES]
    assert added.std() < 0.02 * tone[HOP_SAMPLES:].max()
    voice = narrow(speech.recording(0))
    beside = filled(voice + np.float32(0.1)) - np.float32(0.1)
    assert level_db(beside, 3_800, 8_000) == pytest.approx(
        level_db(filled(voice), 3_800, 8_000), abs=1
    )


@pytest.mark.parametrize("room_db", [-50, -60, -70])
def test_a_rooms_noise_does_not_swell_behind_a_voice(room_db):
    room = noise(3 * RATE_HZ) * np.float32(10 * 10 ** (room_db / 20))
    heard = narrow(np.concatenate([speech.recording(0), np.zeros_like(room)]))
    room = narrow(np.concatenate([np.zeros(len(heard) - len(room), np.float32), room]))
    behind = slice(-2 * RATE_HZ, -RATE_HZ)
    swollen = filled(heard + room)[behind].std() / (heard + room)[behind].std()
    assert 20 * np.log10(swollen) < 4


def test_a_voice_is_nearly_as_bright_as_it_was():
    """In each second of recordings, above what a telephone lets pass."""
    off = []
    for index in range(4):
        samples = speech.recording(index)
        both = filled(narrow(samples)), samples
        for at in range(0, len(samples) - RATE_HZ, RATE_HZ):
            found, was = (level_db(x[at : at + RATE_HZ], 3_800, 8_000) for x in both)
            off.append(found - was)
    assert np.sqrt(np.mean(np.square(off))) < 12

"""Telephone codes, the filter of 0 Hz, and the high band that is guessed at a low rate."""

import io

import numpy as np
import pytest
import soundfile
import soxr
import speech
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.audio.pcm import SAMPLE_RATE_HZ, SILENT_SAMPLES, OffsetFilter, from_g711, on_grid
from streamer.core.audio.telephone import TELEPHONE_HZ, HighBand

SECOND = SAMPLE_RATE_HZ
NOISE = on_grid((0.05 * np.random.default_rng(0).standard_normal(3 * SECOND)).astype(np.float32))


@pytest.mark.parametrize(("law", "subtype"), [("pcmu", "ULAW"), ("pcma", "ALAW")])
def test_every_code_is_the_level_that_libsndfile_reads(law, subtype):
    codes = bytes(range(256))
    raw = {"samplerate": 8_000, "channels": 1, "format": "RAW", "subtype": subtype}
    wanted, _ = soundfile.read(io.BytesIO(codes), dtype="float32", **raw)
    assert np.array_equal(from_g711(codes, law), wanted)


@given(st.lists(st.integers(0, 3 * SECOND), max_size=12), st.sampled_from([0.0, 0.3, -0.01]))
def test_no_cut_changes_a_bit(cuts, offset):
    whole = on_grid(NOISE + np.float32(offset))
    whole[SECOND : SECOND + 5_000] = 0
    cut = OffsetFilter()
    pieces = [cut.push(piece) for piece in np.split(whole, sorted(cuts))]
    assert np.array_equal(np.concatenate(pieces), OffsetFilter().push(whole))


@pytest.mark.parametrize("offset", [0.5, 0.01, -0.003])
def test_an_offset_from_the_first_sample_on_leaves_nothing(offset):
    constant = np.full(SECOND, offset, np.float32)
    assert np.abs(OffsetFilter().push(constant)).max() <= 1 / 32768
    shifted = OffsetFilter().push(on_grid(NOISE + np.float32(offset)))
    assert np.abs(shifted - OffsetFilter().push(NOISE)).max() <= 2 / 32768


@pytest.mark.parametrize("offset", [0.0, 0.01])
def test_digital_silence_stays_so_and_changes_nothing_after_it(offset):
    sound, silence = on_grid(NOISE + np.float32(offset)), np.zeros(5 * SECOND + 219, np.float32)
    found = OffsetFilter().push(np.concatenate([silence, sound, silence]))
    begin, end = len(silence), len(silence) + len(sound)
    assert np.array_equal(found[begin:end], OffsetFilter().push(sound))
    assert not found[:begin].any()
    assert not found[end + SILENT_SAMPLES :].any()


@pytest.mark.parametrize("hz", [60, 83, 100, 250, 1000])
def test_a_voice_keeps_its_level(hz):
    tone = np.sin(2 * np.pi * hz * np.arange(2 * SECOND) / SECOND).astype(np.float32) / 2
    found = OffsetFilter().push(tone)[SECOND:]
    assert 20 * np.log10(found.std() / tone[SECOND:].std()) == pytest.approx(0, abs=0.2)


RATE_HZ = 16_000


def narrow(samples):
    """As 8 kHz sound."""
    low = soxr.resample(samples, RATE_HZ, TELEPHONE_HZ)
    return soxr.resample(low, TELEPHONE_HZ, RATE_HZ, "MQ")


def level_db(samples, low_hz, high_hz):
    power = np.abs(np.fft.rfft(samples)) ** 2
    hz = np.fft.rfftfreq(len(samples), 1 / RATE_HZ)
    return 10 * np.log10(power[(hz >= low_hz) & (hz < high_hz)].mean())


def test_a_voice_is_nearly_as_bright_as_it_was():
    """In each second of recordings, above what a telephone lets pass."""
    off = []
    for index in range(4):
        samples = speech.recording(index)
        both = HighBand().push(narrow(samples), is_last=True), samples
        for at in range(0, len(samples) - RATE_HZ, RATE_HZ):
            found, was = (level_db(x[at : at + RATE_HZ], 3_800, 8_000) for x in both)
            off.append(found - was)
    assert np.sqrt(np.mean(np.square(off))) < 12

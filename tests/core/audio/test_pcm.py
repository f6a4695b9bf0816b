"""Telephone codes against libsndfile; 0 Hz is removed, however the input was cut."""

import io

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.audio.pcm import (
    MEAN_SAMPLES,
    SAMPLE_RATE_HZ,
    SILENT_SAMPLES,
    OffsetFilter,
    from_g711,
    on_grid,
)

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


@pytest.mark.parametrize("peak", [1.0, 2.0**31])
def test_no_sample_is_too_loud(peak):
    loud = np.full(2 * MEAN_SAMPLES, peak, np.float32)
    assert np.abs(OffsetFilter().push(loud)).max() <= 1 / 32768
